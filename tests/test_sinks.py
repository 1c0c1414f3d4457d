"""Sinks against the real engines: a batch is there once, whole, whatever happens while it is written."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from adbc_driver_postgresql import dbapi
from pyspark.sql import SparkSession

from connectors.database import DatabaseError, DatabaseUnavailable, SchemaMismatch
from connectors.sinks import Sink, open_sink
from connectors.sinks.console import ConsoleSink
from connectors.sinks.kafka import as_json
from optimizer.errors import PenstockError
from tests.postgres_server import postgres_url

SCHEMA = pa.schema([("tick", pa.timestamp("us")), ("plug", pa.int32()), ("load", pa.float64())])
NOON = datetime(2024, 1, 1, 12)
EVERY_TYPE = pa.table(
    {
        "yes": pa.array([True, None, False]),
        "i8": pa.array([-128, None, 127], pa.int8()),
        "i16": pa.array([-(2**15), None, 2**15 - 1], pa.int16()),
        "i32": pa.array([-(2**31), None, 2**31 - 1], pa.int32()),
        "i64": pa.array([-(2**63), None, 2**63 - 1], pa.int64()),
        "f32": pa.array([-0.5, None, 1.5e30], pa.float32()),
        "f64": pa.array([0.1, None, float("inf")], pa.float64()),
        "words with 'quotes\"": pa.array(["", None, "größer; DROP TABLE"]),
        "day": pa.array([date(1970, 1, 1), None, date(1899, 12, 31)]),
        "at": pa.array([datetime(2024, 1, 1, 1, 2, 3, 456789), None, datetime(1969, 7, 20)], pa.timestamp("us")),
        "at_utc": pa.array(
            [datetime(2024, 1, 1, tzinfo=UTC), None, NOON.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")
        ),
        "bytes": pa.array([b"\x00\xff", None, b""]),
        "money": pa.array([Decimal("-1234567.89"), None, Decimal("0.01")], pa.decimal128(10, 2)),
        "most": pa.array([Decimal(10) ** 37, None, Decimal(-1)], pa.decimal128(38, 0)),
    }
)


class Crash(BaseException):
    """Like a signal: nothing catches it."""


def crash() -> None:
    raise Crash


def result(batch: int, *loads: float | None) -> pa.Table:
    at = [NOON.replace(second=batch)] * len(loads)
    return pa.table({"tick": at, "plug": range(len(loads)), "load": loads}, SCHEMA)


class Place:
    """One kind of durable sink, and how somebody else reads what is in it."""

    def __init__(self, text: str, read: Callable[[str], pa.Table], table: str) -> None:
        self.text = text
        self._read = read
        self.table = table

    def open(self, deployment: str = "one") -> Sink:
        return open_sink(self.text, deployment, None)

    def prepared(self, deployment: str = "one", schema: pa.Schema = SCHEMA) -> Sink:
        sink = self.open(deployment)
        sink.prepare(schema)
        return sink

    def rows(self, columns: str = "*", order: str = "tick, plug") -> list[tuple[Any, ...]]:
        found = self._read(f"SELECT {columns} FROM {self.table} ORDER BY {order}")
        return [tuple(row.values()) for row in found.to_pylist()]

    def loads(self) -> list[float | None]:
        return [load for (load,) in self.rows("load")]


def on_postgres(sql: str) -> pa.Table | None:
    with dbapi.connect(postgres_url(), autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetch_arrow_table() if cursor.description else None


def on_duckdb(path: Path, sql: str) -> pa.Table:
    with duckdb.connect(str(path)) as connection:
        return connection.sql(sql).to_arrow_table()


def duckdb_place(tmp_path: Path) -> Place:
    path = tmp_path / "out.duckdb"
    return Place(f"duckdb:{path}#hot plugs", lambda sql: on_duckdb(path, sql), '"hot plugs"')


def postgres_place() -> Place:
    name = f"Hot {uuid4().hex}"
    return Place(f"postgres:{postgres_url()}#{name}", lambda sql: on_postgres(sql), f'"{name}"')


def parquet_place(tmp_path: Path) -> Place:
    files = f"read_parquet('{tmp_path}/out/*.parquet')"
    return Place(f"parquet:{tmp_path}/out", lambda sql: duckdb.sql(sql).to_arrow_table(), files)


@pytest.fixture(params=["duckdb", "postgres", "parquet"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "postgres":
        return postgres_place()
    return duckdb_place(tmp_path) if request.param == "duckdb" else parquet_place(tmp_path)


@pytest.fixture(params=["duckdb", "postgres"])
def table_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return postgres_place() if request.param == "postgres" else duckdb_place(tmp_path)


def test_batches_add_up_and_a_replay_changes_nothing(place: Place) -> None:
    sink = place.prepared()
    assert sink.exactly_once
    assert not sink.note
    assert sink.last_batch() is None
    sink.write(0, result(0, 1.0, None))
    sink.write(1, result(1, 2.0))
    sink.write(1, result(1, 2.0))
    assert sink.last_batch() == 1
    sink.close()

    again = place.prepared()
    assert again.last_batch() == 1
    again.write(1, result(1, 2.0))
    again.write(2, result(2, 3.0))
    again.close()
    assert place.loads() == [1.0, None, 2.0, 3.0]
    assert place.rows("tick, plug")[0] == (NOON, 0)


def test_a_crash_while_writing_leaves_nothing_and_the_replay_writes_all(place: Place) -> None:
    sink = place.prepared()
    sink.write(0, result(0, 1.0))
    with pytest.raises(Crash):
        sink.write(1, result(1, 2.0, 3.0), during=crash)
    assert sink.last_batch() == 0
    sink.close()
    assert place.loads() == [1.0]

    again = place.prepared()
    assert again.last_batch() == 0
    again.write(1, result(1, 2.0, 3.0))
    again.close()
    assert place.loads() == [1.0, 2.0, 3.0]


def test_the_same_sink_goes_on_after_a_failure_while_writing(place: Place) -> None:
    sink = place.prepared()
    with pytest.raises(Crash):
        sink.write(0, result(0, 1.0), during=crash)
    sink.write(0, result(0, 1.0))
    sink.close()
    assert place.loads() == [1.0]


def test_every_type_and_null_comes_back_as_it_was(place: Place) -> None:
    sink = place.prepared(schema=EVERY_TYPE.schema)
    sink.write(0, EVERY_TYPE)
    sink.close()
    place.prepared(schema=EVERY_TYPE.schema).close()
    # As text where the reader's own types would blur what is compared.
    seen = 'yes, i8, i16, i32, i64, f32, f64, "words with \'quotes""", day, "at", bytes'
    money = "CAST(money AS VARCHAR), CAST(most AS VARCHAR), CAST(CAST(EXTRACT(epoch FROM at_utc) AS BIGINT) AS VARCHAR)"
    expected = []
    for row in EVERY_TYPE.to_pylist():
        exact = [row["money"], row["most"], row["at_utc"] and int(row["at_utc"].timestamp())]
        plain = [row[name] for name in EVERY_TYPE.column_names if name not in ("money", "most", "at_utc")]
        expected.append((*plain, *(None if value is None else str(value) for value in exact)))
    assert sorted(place.rows(f"{seen}, {money}", "i64"), key=str) == sorted(expected, key=str)


def test_an_empty_result_writes_no_row(place: Place) -> None:
    sink = place.prepared()
    sink.write(0, result(0, 1.0))
    sink.write(1, result(1))
    sink.write(2, pa.Table.from_batches([], SCHEMA))
    sink.close()
    assert place.loads() == [1.0]


def test_other_columns_are_refused_by_name(place: Place) -> None:
    sink = place.prepared()
    sink.write(0, result(0, 1.0))
    other = pa.schema([("tick", pa.timestamp("us")), ("plug", pa.string()), ("work", pa.float64())])
    sink.close()
    again = place.open()
    with pytest.raises(SchemaMismatch) as refused:
        again.prepare(other)
    again.close()
    message = str(refused.value)
    assert "plug is " in message
    assert "work (" in message
    assert "load is not in the result" in message
    assert "tick" not in message.partition("result:")[2]
    assert place.loads() == [1.0]


def test_two_columns_of_one_name_are_refused(place: Place) -> None:
    sink = place.open()
    with pytest.raises(PenstockError, match="two columns called load"):
        sink.prepare(pa.schema([("load", pa.int32()), ("LOAD", pa.int32())]))
    sink.close()


def test_last_batch_of_what_was_never_prepared(place: Place) -> None:
    sink = place.open()
    assert sink.last_batch() is None
    sink.close()


def test_two_deployments_in_one_table(table_place: Place) -> None:
    one, two = table_place.prepared("one"), table_place.prepared("two")
    one.write(5, result(5, 1.0))
    assert two.last_batch() is None
    two.write(3, result(3, 2.0))
    two.write(5, result(5, 3.0))
    two.write(5, result(5, 3.0))
    one.write(5, result(5, 1.0))
    assert (one.last_batch(), two.last_batch()) == (5, 5)
    one.close()
    two.close()
    assert sorted(load for load in table_place.loads() if load) == [1.0, 2.0, 3.0]


def test_two_tables_of_one_deployment_have_a_ledger_each(table_place: Place) -> None:
    first = table_place.prepared()
    second = open_sink(table_place.text + " too", "one", None)
    second.prepare(SCHEMA)
    first.write(0, result(0, 1.0))
    second.write(0, result(0, 1.0))
    assert second.last_batch() == 0
    first.close()
    second.close()


def test_the_ledger_keeps_one_row_per_deployment(tmp_path: Path) -> None:
    place = duckdb_place(tmp_path)
    sink = place.prepared()
    for batch in range(5):
        sink.write(batch, result(batch, 1.0))
    sink.close()
    ledger = on_duckdb(tmp_path / "out.duckdb", "SELECT deployment, batch FROM penstock_ledger")
    assert ledger.to_pylist() == [{"deployment": "one", "batch": 4}]


def test_a_table_with_the_columns_in_another_order_and_text_as_varchar_is_taken() -> None:
    place = postgres_place()
    on_postgres(f"CREATE TABLE {place.table} (b VARCHAR, tick TIMESTAMP, a NUMERIC(10, 2))")
    schema = pa.schema([("tick", pa.timestamp("us")), ("a", pa.decimal128(10, 2)), ("b", pa.string())])
    sink = place.prepared(schema=schema)
    sink.write(0, pa.table({"tick": [NOON], "a": [Decimal("1.50")], "b": ["x"]}, schema))
    sink.close()
    assert place.rows("tick, b", "tick") == [(NOON, "x")]


def test_a_table_of_another_schema() -> None:
    name = f"s{uuid4().hex}"
    on_postgres(f"CREATE SCHEMA {name}")
    sink = open_sink(f"postgres:{postgres_url()}#{name}.results", "one", None)
    sink.prepare(SCHEMA)
    sink.write(0, result(0, 1.0))
    assert sink.last_batch() == 0
    sink.close()
    found = on_postgres(f"SELECT load FROM {name}.results")
    assert found is not None
    assert found.to_pylist() == [{"load": 1.0}]


def test_postgres_deployments_may_prepare_at_the_same_time() -> None:
    place = postgres_place()
    with ThreadPoolExecutor(8) as pool:
        sinks = list(pool.map(place.prepared, [f"d{i}" for i in range(8)]))
    for sink in sinks:
        sink.write(0, result(0, 1.0))
        sink.close()
    assert place.loads() == [1.0] * 8


def test_a_lost_postgres_connection_is_worth_another_try() -> None:
    place = postgres_place()
    url, _, table = place.text.rpartition("#")
    mine = f"sink {uuid4().hex}"
    place.text = f"{url}{'&' if '?' in url else '?'}application_name={mine.replace(' ', '%20')}#{table}"

    def end_connections() -> None:
        ended = on_postgres(
            f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = '{mine}'"
        )
        assert ended is not None
        assert ended.num_rows == 1

    sink = place.prepared()
    end_connections()
    with pytest.raises(DatabaseUnavailable):
        sink.write(0, result(0, 1.0))
    sink.write(0, result(0, 1.0))
    with pytest.raises(DatabaseUnavailable):
        sink.write(1, result(1, 2.0), during=end_connections)
    assert sink.last_batch() == 0
    sink.write(1, result(1, 2.0))
    sink.close()
    assert place.loads() == [1.0, 2.0]


@pytest.mark.parametrize(
    "url", ["postgresql://me:secret@127.0.0.1:1/house", "postgresql://me:secret@/house?host=/nowhere"]
)
def test_a_server_that_is_not_there_is_worth_another_try(url: str) -> None:
    with pytest.raises(DatabaseUnavailable, match=r"table t: .*Is the server running") as refused:
        open_sink(f"postgres:{url}#t", "one", None)
    assert "secret" not in str(refused.value)


def test_what_postgres_refuses_is_said_and_not_worth_another_try() -> None:
    url = postgres_url()
    with pytest.raises(DatabaseError, match='role "nobody" does not exist') as refused:
        open_sink(f"postgres:postgresql://nobody@{url.partition('@')[2]}#t", "one", None)
    assert not isinstance(refused.value, DatabaseUnavailable)

    place = postgres_place()
    on_postgres(f"CREATE TABLE {place.table} (tick TIMESTAMP, plug INT, load FLOAT CHECK (load < 100))")
    sink = place.prepared()
    with pytest.raises(DatabaseError, match="violates check constraint") as refused:
        sink.write(0, result(0, 1.0, 1000.0))
    assert not isinstance(refused.value, DatabaseUnavailable)
    # COPY reports a value of the wrong type under a code for lost connections.
    with pytest.raises(DatabaseError, match=r"binary data|data left") as refused:
        sink.write(0, pa.table({"plug": ["a"]}))
    assert not isinstance(refused.value, DatabaseUnavailable)
    sink.write(0, result(0, 1.0))
    sink.close()
    assert place.loads() == [1.0]


def test_a_duckdb_file_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "text.duckdb").write_text("no database" * 2000)
    with pytest.raises(DatabaseError, match=r"cannot open .*text\.duckdb: .*not a valid DuckDB"):
        open_sink(f"duckdb:{tmp_path}/text.duckdb#t", "one", None)
    with pytest.raises(DatabaseError, match="cannot open"):
        open_sink(f"duckdb:{tmp_path}/no/such.duckdb#t", "one", None)


def test_parquet_files_have_the_batch_in_their_name_and_no_leftovers(tmp_path: Path) -> None:
    place = parquet_place(tmp_path)
    sink = place.prepared()
    with pytest.raises(Crash):
        sink.write(12, result(12, 1.0), during=crash)
    assert len(list((tmp_path / "out").glob("*.tmp"))) == 1
    again = place.prepared()
    assert not list((tmp_path / "out").glob(".*"))
    again.write(12, result(12, 1.0))
    again.write(13, result(13))
    assert sorted(os.listdir(tmp_path / "out")) == ["_penstock.json", "batch-000000000012.parquet"]
    assert pq.read_table(tmp_path / "out").equals(result(12, 1.0))


def test_a_parquet_directory_belongs_to_one_deployment(tmp_path: Path) -> None:
    place = parquet_place(tmp_path)
    place.prepared("one").write(0, result(0, 1.0))
    with pytest.raises(PenstockError, match="another deployment"):
        place.prepared("two")
    (tmp_path / "out" / "_penstock.json").unlink()
    with pytest.raises(PenstockError, match="write to another directory"):
        place.prepared("one")


def test_a_parquet_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(PenstockError, match="cannot be kept in"):
        parquet_place(tmp_path).prepared()


def test_the_console_shows_each_tick_and_cuts_it() -> None:
    out = io.StringIO()
    sink = ConsoleSink(limit=2, out=out)
    assert not sink.exactly_once
    assert sink.note
    sink.prepare(SCHEMA)
    sink.write(0, pa.concat_tables([result(0, *range(2107)), result(1, None)]))
    sink.write(1, result(2))
    assert out.getvalue().splitlines() == [
        "tick 2024-01-01 12:00:00: 2,107 rows",
        "  plug  load",
        "     0   0.0",
        "     1   1.0",
        "  … and 2,105 more",
        "tick 2024-01-01 12:00:01: 1 row",
        "  plug  load",
        "     0  NULL",
    ]


def test_the_console_knows_the_tick_of_a_query_that_has_a_column_tick() -> None:
    out = io.StringIO()
    rows = pa.table({"_tick": [NOON, NOON], "tick": [1, 2]})
    ConsoleSink(out=out).write(0, rows)
    assert out.getvalue().splitlines() == ["tick 2024-01-01 12:00:00: 2 rows", "  tick", "     1", "     2"]


def test_the_console_shows_every_type_and_no_control_character() -> None:
    out = io.StringIO()
    sink = ConsoleSink(out=out)
    sink.write(0, EVERY_TYPE)
    sink.write(1, pa.table({"name": ["\x1b[2J", "x" * 1000]}))
    assert "\x1b" not in out.getvalue()
    assert "\\x1b[2J" in out.getvalue()
    assert "-1234567.89" in out.getvalue()
    assert max(map(len, out.getvalue().splitlines()[-2:])) < 60


def test_the_console_takes_a_terminal_that_knows_only_ascii() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, "ascii")
    ConsoleSink(limit=1, out=out).write(0, pa.table({"größe": [1, 2]}))
    assert raw.getvalue().decode("ascii").splitlines()[-1] == "  ? and 1 more"


@pytest.mark.parametrize(
    "text", ["", "consol", "console:x", "parquet:", "duckdb:file", "duckdb:#t", "postgres:db#t", "kafka:host:1"]
)
def test_an_unknown_form_lists_the_forms(text: str) -> None:
    with pytest.raises(PenstockError, match=r"(?s)no sink.*console.*parquet:.*duckdb:.*postgres:.*kafka:"):
        open_sink(text, "one", None)


@pytest.mark.parametrize("text", ["parquet:s3://bucket/x", "duckdb::memory:#t", "duckdb:x#a.b.c", "kafka:host:1#t"])
def test_a_form_that_cannot_work_is_refused(text: str) -> None:
    with pytest.raises(PenstockError, match=r"write parquet|write duckdb|SCHEMA\.TABLE|needs a Spark session"):
        open_sink(text, "one", None)


def test_no_password_in_an_error() -> None:
    with pytest.raises(PenstockError) as refused:
        open_sink("postgres:postgresql://me:secret@db/house", "one", None)
    assert "secret" not in str(refused.value)


def test_kafka_without_its_package_is_refused(spark: SparkSession) -> None:
    with pytest.raises(PenstockError, match=rf"org\.apache\.spark:spark-sql-kafka-0-10_2\.13:{spark.version}"):
        open_sink("kafka:localhost:9092#results", "one", spark)


def test_rows_for_kafka_are_json(spark: SparkSession) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/New_York")  # times must not depend on it
    found = [json.loads(row.value) for row in as_json(session, EVERY_TYPE).collect()]
    assert found[1] == dict.fromkeys(EVERY_TYPE.column_names)
    assert found[0]["at"] == "2024-01-01T01:02:03.456789"
    assert found[0]["at_utc"] == "2024-01-01T00:00:00.000000Z"
    assert found[0]["bytes"] == "AP8="
    assert found[0]["i64"] == -(2**63)
    assert found[2]["words with 'quotes\""] == "größer; DROP TABLE"
    assert found[2]["day"] == "1899-12-31"
