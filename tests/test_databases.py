"""One suite for both databases: what `connectors.database.Database` promises."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from adbc_driver_postgresql import dbapi
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.functions import struct
from pyspark.sql.pandas.functions import arrow_udf

from connectors.database import (
    Database,
    DatabaseError,
    DatabaseUnavailable,
    LedgerEntry,
    Panes,
    SchemaMismatch,
    Store,
)
from connectors.duckdb import DuckDb
from connectors.postgres import Postgres
from connectors.postgres_parallel import append_from_executors, writer
from connectors.postgres_session import quoted
from optimizer.catalog import Table
from optimizer.sql.ddl import parse_catalog
from tests.postgres_server import postgres_url

NOON = datetime(2024, 5, 1, 12)
SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int32()), ("v", pa.float64()), ("name", pa.string())])
STORE = Store("win_p", SCHEMA, "ts")
EVERY_TYPE = pa.table(
    {
        "a": pa.array([True, None], pa.bool_()),
        "b": pa.array([-128, None], pa.int8()),
        "c": pa.array([-(2**15), None], pa.int16()),
        "d": pa.array([2**31 - 1, None], pa.int32()),
        "e": pa.array([-(2**63), None], pa.int64()),
        "f": pa.array([0.5, None], pa.float32()),
        "g": pa.array([0.1, None], pa.float64()),
        "h": pa.array(['it\'s "ä"\n', None], pa.string()),
        "i": pa.array([date(1969, 12, 31), None], pa.date32()),
        "j": pa.array([datetime(1969, 12, 31, 23, 59, 59, 999999), None], pa.timestamp("us")),
        "k": pa.array([NOON, None], pa.timestamp("us", tz="UTC")),
        "l": pa.array([b"\x00'", None], pa.binary()),
        "m": pa.array([Decimal("-12345678.90"), None], pa.decimal128(10, 2)),
    }
)
Maker = Callable[[], Database]


def rows(*seconds: float, k: int | None = 1, name: str | None = "x") -> pa.Table:
    count = len(seconds)
    stamps = [NOON + timedelta(seconds=s) for s in seconds]
    return pa.table([stamps, [k] * count, list(seconds), [name] * count], schema=SCHEMA)


@pytest.fixture(params=["duckdb", "postgres"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Maker]:
    """Opens the same deployment again, as after a restart."""
    schema, opened = f"test_{uuid4().hex[:8]}", list[Database]()

    def opening() -> Database:
        for database in opened:
            database.close()
        new: Database = DuckDb(tmp_path / "db") if request.param == "duckdb" else Postgres(postgres_url(), schema)
        opened.append(new)
        return new

    yield opening
    opening().drop()
    opened[-1].close()


@pytest.fixture
def database(make: Maker) -> Database:
    made = make()
    made.prepare((STORE,))
    return made


def stored(database: Database, store: Store = STORE) -> list[dict[str, object]]:
    columns = ", ".join(f'"{name}"' for name in store.schema.names)
    sql = f'SELECT {columns} FROM "{store.name}" ORDER BY "{store.time_column}"'
    result: list[dict[str, object]] = database.query(sql, {}, store.schema).to_pylist()
    return result


# -- stores and the ledger -------------------------------------------------------------------------------------------


def test_appended_rows_are_there_after_a_restart(make: Maker) -> None:
    database = make()
    database.prepare((STORE,))
    with database.transaction():
        database.append(STORE, rows(1, 2))
        database.record(LedgerEntry(0, '{"a": "ä"}'))
    again = make()
    again.prepare((STORE,))
    assert stored(again) == rows(1, 2).to_pylist()
    assert again.last_entry() == LedgerEntry(0, '{"a": "ä"}')
    assert again.durable


def test_every_type_comes_back_as_it_went(database: Database) -> None:
    store = Store("win every", EVERY_TYPE.schema, "j")
    database.prepare((store,))
    database.append(store, EVERY_TYPE)
    found = database.query('SELECT * FROM "win every" ORDER BY "j" NULLS LAST', {}, EVERY_TYPE.schema)
    assert found.schema.equals(EVERY_TYPE.schema)
    assert found.to_pylist() == EVERY_TYPE.to_pylist()
    database.fill("in_every", EVERY_TYPE)
    assert database.query('SELECT * FROM in_every ORDER BY "j" NULLS LAST', {}, EVERY_TYPE.schema) == found


def test_columns_are_appended_by_name(database: Database) -> None:
    database.append(STORE, rows(1).select(["name", "v", "k", "ts"]))
    assert stored(database) == rows(1).to_pylist()


def test_rows_are_repeated_at_earlier_times(database: Database) -> None:
    database.repeat(STORE, rows(10, 11).select(["name", "v", "k", "ts"]), [timedelta(seconds=4), timedelta(seconds=2)])
    found = stored(database)
    assert [row["ts"] for row in found] == [NOON + timedelta(seconds=s) for s in (6, 7, 8, 9)]
    assert [row["v"] for row in found] == [10.0, 11.0, 10.0, 11.0]
    database.append(STORE, rows(10))  # and the store is as any other
    assert database.evict(STORE, NOON + timedelta(seconds=8)) == 2
    assert len(stored(database)) == 3


def test_a_repeated_store_has_its_index(postgres: Postgres) -> None:
    postgres.prepare((STORE,))
    postgres.repeat(STORE, rows(1), [timedelta(0)])
    sql = "SELECT indexdef FROM pg_indexes WHERE schemaname = $1"
    found = postgres._session.fetch(sql, [postgres.schema]).column(0).to_pylist()
    assert [words for words in found if "(ts)" in words and STORE.name in words]


def test_a_transaction_that_fails_leaves_nothing(database: Database) -> None:
    database.append(STORE, rows(1))

    def fail() -> None:
        with database.transaction():
            database.append(STORE, rows(2))
            database.evict(STORE, NOON + timedelta(seconds=2))
            database.record(LedgerEntry(1, ""))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert stored(database) == rows(1).to_pylist()
    assert database.last_entry() is None
    with database.transaction():
        database.append(STORE, rows(3))
    assert len(stored(database)) == 2


def test_a_failed_statement_undoes_the_transaction(database: Database) -> None:

    def fail() -> None:
        with database.transaction():
            database.append(STORE, rows(2))
            database.query("SELECT nothing FROM nowhere", {}, SCHEMA)

    with pytest.raises(DatabaseError, match="nowhere"):
        fail()
    assert stored(database) == []


def test_eviction_is_up_to_a_time_and_says_how_many(database: Database) -> None:
    database.append(STORE, rows(1, 2, 3))
    assert database.evict(STORE, NOON + timedelta(seconds=2, microseconds=1)) == 2
    assert stored(database) == rows(3).to_pylist()
    assert database.evict(STORE, NOON) == 0


def test_the_ledger_keeps_the_last_entries(database: Database) -> None:
    for batch in range(20):
        with database.transaction():
            database.record(LedgerEntry(batch, str(batch)))
    assert database.last_entry() == LedgerEntry(19, "19")
    found = database.query("SELECT count(*), min(batch) FROM ledger", {}, pa.schema([("n", "int64"), ("m", "int64")]))
    assert found.to_pylist() == [{"n": 8, "m": 12}]


def test_a_batch_is_recorded_once(database: Database) -> None:
    database.record(LedgerEntry(1, "a"))

    def again() -> None:
        with database.transaction():
            database.append(STORE, rows(1))
            database.record(LedgerEntry(1, "b"))

    with pytest.raises(DatabaseError, match="ledger"):
        again()
    assert stored(database) == []
    assert database.last_entry() == LedgerEntry(1, "a")


def test_size(database: Database) -> None:
    assert database.size(STORE).rows == 0
    database.append(STORE, rows(*range(5000)))
    size = database.size(STORE)
    assert size.rows == 5000
    assert size.bytes > 0


@pytest.mark.parametrize(
    "other",
    [
        pa.schema([*list(SCHEMA)[:3], pa.field("title", pa.string())]),
        SCHEMA.set(1, pa.field("k", pa.int64())),
        SCHEMA.append(pa.field("_seq", pa.int64())),
        pa.schema(list(SCHEMA)[:3]),
    ],
)
def test_a_store_of_other_columns_is_refused(database: Database, other: pa.Schema) -> None:
    database.append(STORE, rows(1))
    with pytest.raises(SchemaMismatch, match=r"win_p.*ts.*k.*v.*name") as error:
        database.prepare((Store("win_p", other, "ts"),))
    assert "DOUBLE" in str(error.value).upper()
    database.prepare((STORE,))
    assert len(stored(database)) == 1


def test_drop_removes_everything(make: Maker) -> None:
    database = make()
    database.prepare((STORE,))
    database.append(STORE, rows(1))
    database.record(LedgerEntry(3, ""))
    database.drop()
    again = make()
    again.prepare((STORE,))
    assert stored(again) == []
    assert again.last_entry() is None


# -- queries ---------------------------------------------------------------------------------------------------------


def test_parameters_stand_outside_of_texts_and_names(database: Database) -> None:
    database.append(STORE, rows(1, 2, 3))
    sql = """SELECT '$tick it''s' AS "$last", count(*) AS n, $last + 1 AS m FROM win_p
        WHERE ts < CAST($tick AS TIMESTAMP) AND ts >= CAST($tick AS TIMESTAMP) - INTERVAL '1 SECOND'"""
    schema = pa.schema([("text", pa.string()), ("n", pa.int64()), ("m", pa.int64())])
    found = database.query(sql, {"last": 41, "tick": NOON + timedelta(seconds=3)}, schema)
    assert found.to_pylist() == [{"text": "$tick it's", "n": 1, "m": 42}]


def test_results_have_the_wanted_types_by_position(database: Database) -> None:
    database.append(STORE, rows(1, 2, k=3))
    schema = pa.schema([("s", pa.int64()), ("a", pa.float64()), ("b", pa.float64()), ("c", pa.decimal128(10, 2))])
    sql = "SELECT sum(k) AS x, avg(k) AS x, sum(v), sum(CAST(v AS DECIMAL(10, 2))) FROM win_p"
    found = database.query(sql, {}, schema)
    assert found.schema.equals(schema)
    assert found.to_pylist() == [{"s": 6, "a": 3.0, "b": 3.0, "c": Decimal("3.00")}]
    empty = database.query("SELECT k, v, v, 1.5 FROM win_p WHERE k > 3", {}, schema)
    assert empty.schema.equals(schema)
    assert empty.num_rows == 0


def test_a_result_that_does_not_fit_is_said(database: Database) -> None:
    database.append(STORE, rows(300, 70000, k=1))
    for kind in (pa.int8(), pa.int16()):
        with pytest.raises(DatabaseError, match=r"range|fit|bounds"):
            database.query("SELECT CAST(v AS INT) FROM win_p", {}, pa.schema([("v", kind)]))
    assert len(stored(database)) == 2


def test_a_filled_table_is_replaced(database: Database) -> None:
    schema = pa.schema([("n", pa.int64())])
    database.fill("in_join1", rows(1, 2))
    database.fill("in_join1", rows(3))
    assert database.query("SELECT k FROM in_join1", {}, schema).num_rows == 1
    database.fill("in_join1", rows())
    assert database.query("SELECT k FROM in_join1", {}, schema).num_rows == 0
    database.fill("in_join1", pa.table({"other": pa.array([7], pa.int64())}))
    assert database.query("SELECT other FROM in_join1", {}, schema).to_pylist() == [{"n": 7}]


def test_a_table_filled_in_a_transaction_that_failed(database: Database) -> None:
    def fail() -> None:
        with database.transaction():
            database.fill("in_join1", rows(1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    database.fill("in_join1", rows(2, 3))
    assert database.query("SELECT k FROM in_join1", {}, pa.schema([("n", pa.int64())])).num_rows == 2


def test_a_view_is_replaced(database: Database) -> None:
    database.append(STORE, rows(1, 2))
    schema = pa.schema([("n", pa.float64())])
    database.view("win_q", 'SELECT "v", "ts" FROM "win_p" WHERE "v" > 1')
    assert database.query("SELECT v FROM win_q", {}, schema).num_rows == 1
    database.view("win_q", 'SELECT "ts", "v" AS "w" FROM "win_p"')
    assert database.query("SELECT w FROM win_q", {}, schema).num_rows == 2


def test_the_session_is_in_utc(database: Database) -> None:
    zoned = pa.schema([("t", pa.timestamp("us", tz="UTC"))])
    found = database.query("SELECT CAST(TIMESTAMP '2024-05-01 12:00:00' AS TIMESTAMPTZ)", {}, zoned)
    assert found.column(0).cast(pa.int64()).to_pylist() == [1714564800000000]


def test_after_reconnect_stores_and_views_are_there(database: Database) -> None:
    database.append(STORE, rows(1))
    database.view("win_q", 'SELECT * FROM "win_p"')
    database.reconnect()
    database.fill("in_a", rows(1))
    sql = "SELECT count(*) FROM win_q JOIN in_a ON win_q.k = in_a.k"
    assert database.query(sql, {}, pa.schema([("n", pa.int64())])).to_pylist() == [{"n": 1}]


# -- stored tables ---------------------------------------------------------------------------------------------------


def table(
    options: str, columns: str = "k INT PRIMARY KEY, label VARCHAR, since TIMESTAMP, price DECIMAL(6, 2)"
) -> Table:
    return parse_catalog(f"CREATE TABLE d ({columns}) WITH ({options})").tables["d"]


STORED = pa.table(
    [[1, 2], ["x", None], [NOON, None], [Decimal("1.50"), None]],
    schema=pa.schema(
        [("k", pa.int32()), ("label", pa.string()), ("since", pa.timestamp("us")), ("price", pa.decimal128(6, 2))]
    ),
)
NAMES = ("label", "k", "since", "price")


def write(form: str, path: Path) -> None:
    if form == "parquet":
        pyarrow.parquet.write_table(STORED, path)
    elif form == "csv":
        pyarrow.csv.write_csv(STORED, path)
    else:
        path.write_text(
            '{"k": 1, "label": "x", "since": "2024-05-01 12:00:00", "price": "1.50"}\n'
            '{"k": 2, "label": null, "since": null, "price": null}\n'
        )


@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
def test_a_file_is_a_table(form: str, database: Database, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    write(form, tmp_path / "d" / f"part.{form}")
    wanted = table(f"connector = 'files', path = '{tmp_path / 'd'}', format = '{form}'")
    for _ in range(2):
        database.attach(wanted)
    found = database.query("SELECT label, k, since, price FROM d ORDER BY k", {}, STORED.select(NAMES).schema)
    assert found.to_pylist() == STORED.select(NAMES).to_pylist()
    assert sorted(map(str, database.read_table(wanted, ("k", "label")).column(0).to_pylist())) == ["1", "2"]


def test_a_file_attached_after_a_restart_is_read_anew(make: Maker, tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    write("parquet", path)
    wanted = table(f"connector = 'files', path = '{path}'")
    make().attach(wanted)
    pyarrow.parquet.write_table(STORED.slice(1), path)
    assert make().read_table(wanted, ("k",)).column(0).to_pylist() == [2]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("connector = 'files'", "path"),
        ("connector = 'files', path = '/nowhere/d.parquet'", "/nowhere/d.parquet"),
        ("connector = 'files', path = '/nowhere', format = 'xml'", "parquet, csv or json"),
        ("connector = 'mysql'", "mysql"),
    ],
)
def test_a_table_that_cannot_be_read(options: str, says: str, database: Database) -> None:
    with pytest.raises(DatabaseError, match=says):
        database.attach(table(options))


def test_a_file_without_a_column(database: Database, tmp_path: Path) -> None:
    pyarrow.parquet.write_table(STORED.drop(["label"]), tmp_path / "d.parquet")
    with pytest.raises(SchemaMismatch, match="label"):
        database.attach(table(f"connector = 'files', path = '{tmp_path / 'd.parquet'}'"))


# -- PostgreSQL alone ------------------------------------------------------------------------------------------------


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    made = Postgres(postgres_url(), f'a "schema" {uuid4().hex[:8]}')
    made.prepare((STORE,))
    yield made
    made.reconnect()
    made.drop()
    made.close()


def administer(sql: str) -> None:
    with dbapi.connect(postgres_url(), autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(sql)


def lose_connection(postgres: Postgres) -> None:
    me = postgres.query("SELECT pg_backend_pid()", {}, pa.schema([("pid", pa.int64())])).column(0)[0].as_py()
    administer(f"SELECT pg_terminate_backend({me}, 5000)")


def test_a_table_of_the_same_server(postgres: Postgres) -> None:
    administer('DROP TABLE IF EXISTS public."The D"')
    administer('CREATE TABLE public."The D" (price NUMERIC, label VARCHAR(9), since TIMESTAMP, k BIGINT, more INT)')
    administer("""INSERT INTO public."The D" VALUES (1.5, 'x', '2024-05-01 12:00:00', 1, 0)""")
    wanted = table("connector = 'postgres', schema = 'public', table = 'The D'")
    assert postgres.read_table(wanted, NAMES).equals(STORED.slice(0, 1).select(NAMES))
    administer("""INSERT INTO public."The D" VALUES (NULL, NULL, NULL, 2, 0)""")
    assert postgres.read_table(wanted, NAMES).equals(STORED.select(NAMES))
    postgres.drop()
    administer('DROP TABLE public."The D"')  # the user's own, so it was still there


def test_a_table_that_is_elsewhere_or_nowhere(postgres: Postgres) -> None:
    with pytest.raises(DatabaseError, match="table d is in another PostgreSQL"):
        postgres.attach(table("connector = 'postgres', url = 'postgresql://u:secret@elsewhere/x'"))
    with pytest.raises(DatabaseError, match="d_nowhere"):
        postgres.attach(table("connector = 'postgres', table = 'd_nowhere'"))


def test_a_lost_connection(postgres: Postgres) -> None:
    def batch() -> None:
        with postgres.transaction():
            postgres.append(STORE, rows(1))
            if not lost:
                lost.append(True)
                lose_connection(postgres)
            postgres.record(LedgerEntry(1, ""))

    lost: list[bool] = []
    with pytest.raises(DatabaseUnavailable):
        batch()
    with pytest.raises(DatabaseUnavailable):
        postgres.last_entry()
    postgres.reconnect()
    batch()
    assert len(stored(postgres)) == 1


def test_a_connection_lost_before_commit(postgres: Postgres) -> None:
    def batch() -> None:
        with postgres.transaction():
            postgres.append(STORE, rows(1))
            lose_connection(postgres)

    with pytest.raises(DatabaseUnavailable):
        batch()
    postgres.reconnect()
    assert stored(postgres) == []


def test_panes_are_made_anew_after_a_lost_connection(postgres: Postgres) -> None:
    counted = "SELECT date_trunc('second', ts) AS _pane, count(*) AS n FROM win_p WHERE ts >= $since AND ts < $until"
    panes, schema = Panes("pane_a", f"{counted} GROUP BY 1"), pa.schema([("n", pa.int64())])
    postgres.append(STORE, rows(0, 0.5, 1, 2))
    postgres.reach(panes, NOON, NOON + timedelta(seconds=2))
    lose_connection(postgres)
    with pytest.raises(DatabaseUnavailable):
        postgres.reach(panes, NOON, NOON + timedelta(seconds=3))
    postgres.reconnect()
    postgres.reach(panes, NOON, NOON + timedelta(seconds=3))
    found = postgres.query("SELECT n FROM pane_a ORDER BY _pane", {}, schema)
    assert found.column(0).to_pylist() == [2, 1, 1]


def test_a_session_neither_merges_nor_sorts(postgres: Postgres) -> None:
    wanted = "SELECT setting FROM pg_settings WHERE name IN ('enable_mergejoin', 'enable_sort')"
    for _ in range(2):  # after a reconnection, too
        found = postgres.query(wanted, {}, pa.schema([("setting", pa.string())]))
        assert found.column(0).to_pylist() == ["off", "off"]
        postgres.reconnect()


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(DatabaseUnavailable, match=r"127\.0\.0\.1:1/plugs") as error:
        Postgres("postgresql://ann:secret@127.0.0.1:1/plugs", "x")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:sec@ret@127.0.0.1:1/plugs",
        "postgresql://ann:secret/more@127.0.0.1:1/plugs",
        "mysql://ann:secret@127.0.0.1/plugs",
        "host=127.0.0.1 password=secret",
    ],
)
def test_a_url_that_cannot_be_read(url: str) -> None:
    with pytest.raises(DatabaseError, match="percent-encoded") as error:
        Postgres(url, "x")
    assert "sec" not in str(error.value)


def test_a_database_that_is_not_there() -> None:
    with pytest.raises(DatabaseError, match='"nosuch" does not exist') as error:
        Postgres(postgres_url().replace("/postgres?", "/nosuch?"), "x")
    assert not isinstance(error.value, DatabaseUnavailable)


def test_the_servers_own_words(postgres: Postgres) -> None:
    store = Store("small", pa.schema([("ts", pa.timestamp("us")), ("d", pa.decimal128(4, 2))]), "ts")
    postgres.prepare((store,))
    wanted = pa.schema([("d", pa.decimal128(4, 2))])
    with pytest.raises(DatabaseError, match="numeric field overflow") as error:
        postgres.query("SELECT 1000", {}, wanted)
    assert "SELECT" not in str(error.value)
    assert not isinstance(error.value, DatabaseUnavailable)


def test_a_wrong_password() -> None:
    """Asks for the password of one role, by the server's list of who may connect: never in a server of others."""
    if "PENSTOCK_TEST_POSTGRES" in os.environ:
        pytest.skip("the server is not ours to configure")
    server = Postgres(postgres_url(), "x")
    shown = server.query("SELECT current_setting('hba_file')", {}, pa.schema([("path", pa.string())]))
    server.close()
    allowed = Path(shown.column(0)[0].as_py())
    role = f"ann_{uuid4().hex[:8]}"
    administer(f"CREATE ROLE {role} LOGIN PASSWORD 'right'")
    before = allowed.read_text()
    allowed.write_text(f"local all {role} scram-sha-256\nhost all {role} all scram-sha-256\n{before}")
    administer("SELECT pg_reload_conf()")
    try:
        url = urlsplit(postgres_url())
        host = url.netloc.rpartition("@")[2]
        with pytest.raises(DatabaseError, match="password authentication failed") as error:
            Postgres(urlunsplit(url._replace(netloc=f"{role}:mistaken@{host}")), "x")
        assert not isinstance(error.value, DatabaseUnavailable)
        assert "mistaken" not in str(error.value)
        Postgres(urlunsplit(url._replace(netloc=f"{role}:right@{host}")), "x").close()
    finally:
        allowed.write_text(before)
        administer("SELECT pg_reload_conf()")
        administer(f"DROP ROLE {role}")


# -- executors -------------------------------------------------------------------------------------------------------


def test_executors_write_a_batch(postgres: Postgres, spark: SparkSession) -> None:
    stamp = "timestamp_ntz '2024-05-01 12:00:00' + make_dt_interval(0, 0, 0, id) AS ts"
    frame = spark.range(100).repartition(3).selectExpr("'x' AS name", stamp, "int(1) AS k", "double(id) AS v")
    for parts in (3, 1):  # the second time as after a crash before the commit
        count = append_from_executors(postgres.url, postgres.schema, STORE, frame.coalesce(parts), 5)
    assert count == 100
    assert stored(postgres) == []
    with postgres.transaction():
        postgres.adopt(STORE, 5, count)
        postgres.record(LedgerEntry(5, ""))
    assert stored(postgres) == rows(*range(100)).to_pylist()
    with pytest.raises(DatabaseUnavailable, match="100 tuples were staged for win_p, 0 are there"):
        postgres.adopt(STORE, 5, count)
    assert len(stored(postgres)) == 100


def waiting(postgres: Postgres) -> int:
    sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    count: int = postgres.query(sql, {}, pa.schema([("n", pa.int64())])).column(0)[0].as_py()
    return count


def test_two_attempts_at_once(postgres: Postgres, spark: SparkSession) -> None:
    """As speculation does it: both write partition 0 of batch 7, and both commit."""
    table = postgres.stage(STORE, 7)
    stamp = "timestamp_ntz '2024-05-01 12:00:00' AS ts"
    frame = spark.range(0, 30_000, 1, 1).selectExpr(stamp, "int(1) AS k", "double(id) AS v", "'x' AS name")
    write = arrow_udf(writer(postgres.url, postgres.schema, table, SCHEMA, 7), "bigint")  # type: ignore[call-overload]

    def attempt() -> int:  # a frame of its own: Spark runs one frame's plan once at a time
        count: int = frame.select(write(struct("*")).alias("n")).agg({"n": "sum"}).collect()[0][0]
        return count

    with ThreadPoolExecutor(2) as pool, dbapi.connect(postgres.url) as other, other.cursor() as cursor:
        # Nobody gets to the table before both have come to it.
        cursor.execute(f"LOCK TABLE {quoted(postgres.schema)}.{quoted(table)} IN EXCLUSIVE MODE")
        attempts = [pool.submit(attempt) for _ in range(2)]
        deadline = time.monotonic() + 60
        while waiting(postgres) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        both = waiting(postgres)
        other.rollback()
        assert both == 2
        assert [done.result() for done in attempts] == [30_000, 30_000]
    postgres.adopt(STORE, 7, 30_000)
    assert postgres.size(STORE).rows == 30_000


def test_executors_that_fail(postgres: Postgres, spark: SparkSession) -> None:
    frame = spark.range(3).selectExpr(
        "timestamp_ntz '2024-05-01 12:00:00' AS ts", "int(1) AS k", "1D AS v", "'\0' AS name"
    )
    with pytest.raises(DatabaseError, match=r"win_p.*invalid byte sequence"):
        append_from_executors(postgres.url, postgres.schema, STORE, frame, 1)


def test_workers_need_nothing_of_ours() -> None:
    """What goes to the workers is loaded where none of the project's packages can be imported."""
    pickled = cloudpickle.dumps(writer("postgresql:///x", "s", "t", SCHEMA, 1))
    code = """if True:
        import pickle, sys
        for package in ("service", "migration", "connectors", "optimizer", "costmodel"):
            sys.modules[package] = None
        print(pickle.loads(sys.stdin.buffer.read()).__name__)
    """
    ran = subprocess.run([sys.executable, "-c", code], input=pickled, capture_output=True, check=False)
    assert ran.stdout.decode().strip() == "write", ran.stderr.decode()
