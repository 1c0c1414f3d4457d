"""What goes wrong outside of Penstock: it is said in words, nothing is lost, and the same state goes on afterwards."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import duckdb
import pgserver
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from adbc_driver_postgresql import dbapi
from pgserver import pg_ctl
from pyspark.sql import SparkSession

from migration.deployment import Deployment
from migration.metrics import BatchReport
from migration.streaming import Settings
from optimizer.errors import PenstockError
from optimizer.optimize import optimize
from optimizer.physical import Where
from optimizer.pinned import everywhere
from optimizer.sql.ddl import parse_catalog
from tests import oracle
from tests.command import Command, penstock_run, rows_of
from tests.crash import Harness, compare
from tests.crash_points import LAST, WORKLOADS
from tests.postgres_server import postgres_url
from tests.recorded import START
from tests.running import read_output

BIG = 2**62  # three of them are more than a BIGINT holds
SUM = "SELECT a.k, sum(a.n) AS x FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS] AS a GROUP BY a.k"
NARROW = "SELECT a.k, max(CAST(a.n AS INT)) AS x FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS] AS a GROUP BY a.k"
COUNT = "SELECT a.k, count(*) AS c FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS] AS a GROUP BY a.k"
LONG = "SELECT a.k, count(*) AS c, sum(a.n) AS x FROM s [RANGE 60 SECONDS SLIDE 10 SECONDS] AS a GROUP BY a.k"
SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int32()), ("n", pa.int64())])
Tuple = tuple[datetime, int, int]


@dataclass
class Streamed:
    """A stream of files, one a batch, and the same tuples for the oracle."""

    directory: Path
    form: str = "parquet"
    written: int = 0
    connection: duckdb.DuckDBPyConnection = field(default_factory=duckdb.connect)

    def __post_init__(self) -> None:
        self.files = self.directory / "files"
        self.files.mkdir(parents=True)
        self.connection.execute("CREATE TABLE s (ts TIMESTAMP, k INT, n BIGINT)")
        self.ddl = (
            "CREATE STREAM s (ts TIMESTAMP NOT NULL, k INT, n BIGINT, WATERMARK FOR ts AS ts) WITH (rate = 100, "
            f"connector = 'files', path = '{self.files}', format = '{self.form}', maxFilesPerTrigger = 1)"
        )
        self.catalog = self.directory / "catalog.sql"
        self.catalog.write_text(self.ddl)

    def arrive(self, tuples: Sequence[Tuple], more: Sequence[str] = ()) -> None:
        """`more` are lines of text that are no tuples."""
        rows = pa.table(list(zip(*tuples, strict=True)), schema=SCHEMA)
        path = self.next_file()
        if self.form == "parquet":
            pq.write_table(rows, path)
        else:
            write = _json_line if self.form == "json" else _csv_line
            path.write_text("".join(f"{line}\n" for line in [*map(write, tuples), *more]))
        self._in_order(path)
        self.connection.register("arrived", rows)
        self.connection.execute("INSERT INTO s SELECT * FROM arrived")

    def next_file(self) -> Path:
        self.written += 1
        return self.files / f"{self.written:03}.{self.form}"

    def _in_order(self, path: Path) -> None:
        os.utime(path, (1_700_000_000 + self.written,) * 2)  # Spark reads files in the order of their times

    def not_a_file_of_its_form(self) -> Path:
        path = self.next_file()
        path.write_bytes(b"this is no Parquet file, whatever its name says")
        self._in_order(path)
        return path

    def deployment(self, spark: SparkSession, sql: str, where: Where, name: str = "run", sink: str = "") -> Deployment:
        catalog = parse_catalog(self.ddl)
        plan = everywhere(optimize(sql, catalog), where)
        place = self.directory / name
        self.reports: list[BatchReport] = []
        settings = Settings(
            place / "state", sink or f"parquet:{place / 'out'}", trigger=None, on_batch=self.reports.append
        )
        return Deployment(spark, plan, sql, catalog, settings)

    def wrong(self, sql: str, until: datetime, name: str = "run") -> str:
        """The first tick whose rows are not the oracle's."""
        found = read_output(self.directory / name / "out")
        slide = 10 if "SLIDE 10" in sql else 5
        ticks = [START + timedelta(seconds=s) for s in range(slide, 3600, slide)]
        for tick in [t for t in ticks if t <= until]:
            expected = oracle.run(self.connection, sql, {"s": "ts"}, tick)
            if sorted(found.pop(tick, [])) != sorted(expected):
                return f"at {tick} not {expected}"
        return f"rows at {list(found)}" if found else ""


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def steady(first: int, last: int, value: int = 1) -> list[Tuple]:
    return [(at(s), s % 2, value) for s in range(first, last)]


def _json_line(row: Tuple) -> str:
    return json.dumps({"ts": row[0].isoformat(), "k": row[1], "n": row[2]})


def _csv_line(row: Tuple) -> str:
    return f"{row[0].isoformat()},{row[1]},{row[2]}"


def run_to_end(deployment: Deployment) -> None:
    try:
        deployment.start()
        deployment.wait()
    finally:
        deployment.close()


# -- a database that is not there, or does not let us in ---------------------------------------------------------------


def closed_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.mark.parametrize("what", ["database", "sink"])
def test_the_database_is_not_there(what: str, tmp_path: Path) -> None:
    port = closed_port()
    url = f"postgresql://ann:secret@127.0.0.1:{port}/plugs"
    arguments = ("--db", "postgres", "--url", url) if what == "database" else ("--sink", f"postgres:{url}#t")
    with penstock_run(tmp_path / "run", SUM, Streamed(tmp_path).catalog, *arguments) as command:
        said = command.refused()
    assert f"127.0.0.1:{port}" in said
    assert "refused" in said
    assert "secret" not in said
    assert "starting Spark" not in said  # which takes longer than to find that out
    assert not (tmp_path / "run" / "state").exists()


@pytest.mark.parametrize("what", ["database", "sink"])
def test_a_wrong_password(what: str, tmp_path: Path) -> None:
    with role_with_password("right") as role:
        url = urlsplit(postgres_url())
        wrong = urlunsplit(url._replace(netloc=f"{role}:mistaken@{url.netloc.rpartition('@')[2]}"))
        arguments = ("--db", "postgres", "--url", wrong) if what == "database" else ("--sink", f"postgres:{wrong}#t")
        with penstock_run(tmp_path / "run", SUM, Streamed(tmp_path).catalog, *arguments) as command:
            said = command.refused()
    assert "password authentication failed" in said
    assert role in said
    assert "mistaken" not in said


@contextmanager
def role_with_password(password: str) -> Iterator[str]:
    """A role of whom the server asks it, by its list of who may connect: never in a server of others."""
    if "PENSTOCK_TEST_POSTGRES" in os.environ:
        pytest.skip("the server is not ours to configure")
    role = f"ann_{uuid4().hex[:8]}"
    administer(f"CREATE ROLE {role} LOGIN PASSWORD '{password}'")
    allowed = Path(administer("SELECT current_setting('hba_file')"))
    before = allowed.read_text()
    allowed.write_text(f"local all {role} scram-sha-256\nhost all {role} all scram-sha-256\n{before}")
    administer("SELECT pg_reload_conf()::text")
    try:
        yield role
    finally:
        allowed.write_text(before)
        administer("SELECT pg_reload_conf()::text")
        administer(f"DROP ROLE {role}")


def administer(sql: str) -> str:
    with dbapi.connect(postgres_url(), autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return str(cursor.fetchall()[0][0]) if cursor.description else ""


# -- a database that goes away -----------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[pgserver.PostgresServer]:
    """A server that a test may stop."""
    found = pgserver.get_server(Path(mkdtemp(prefix="penstock-rough-")), cleanup_mode="delete")
    yield found
    found.ensure_postgres_running()
    found.cleanup()


def crash(server: pgserver.PostgresServer) -> None:
    pg_ctl(["-w", "-m", "immediate", "stop"], pgdata=server.pgdata, user=server.system_user)


@contextmanager
def running_on(server: pgserver.PostgresServer, harness: Harness, table: str) -> Iterator[tuple[Command, Path]]:
    """CQ1 with its windows and its sink in the server, and where Spark notes the batches that are done."""
    workload, url, place = WORKLOADS["db"], server.get_uri(), harness.directory / "run"
    arguments = ("--db", "postgres", "--url", url, "--sink", f"postgres:{url}#{table}", *workload.arguments)
    with penstock_run(place, workload.sql, harness.directory / "catalog.sql", *arguments) as command:
        yield command, place / "state" / "checkpoint" / "commits"


@pytest.mark.slow
def test_a_database_that_is_killed_and_comes_back(server: pgserver.PostgresServer, tmp_path: Path) -> None:
    harness = Harness(tmp_path, "postgres")
    with running_on(server, harness, "result") as (command, commits):
        for batch in range(2):
            command.until((commits / str(batch)).exists)
            waits = command.said.count("trying again in")
            crash(server)
            command.until(lambda waits=waits: command.said.count("trying again in") > waits + 1)
            server.ensure_postgres_running()
        assert command.ended() == 0, command.said
        assert "Traceback" not in command.said
    assert (commits / str(LAST)).exists()
    assert compare(harness.expected("db"), rows_of(server.get_uri(), "result")) == (0, 0, 0)


@pytest.mark.slow
def test_it_can_be_stopped_while_the_database_is_away(server: pgserver.PostgresServer, tmp_path: Path) -> None:
    harness = Harness(tmp_path, "postgres")
    with running_on(server, harness, "result") as (command, commits):
        command.until((commits / "0").exists)
        crash(server)
        command.until(lambda: "trying again in" in command.said)
        command.process.send_signal(signal.SIGINT)
        assert command.ended() == 0, command.said
        assert "Traceback" not in command.said
    assert not (commits / str(LAST)).exists()
    server.ensure_postgres_running()
    with running_on(server, harness, "result") as (command, _):
        assert command.ended() == 0, command.said
    assert compare(harness.expected("db"), rows_of(server.get_uri(), "result")) == (0, 0, 0)


# -- no room -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["no larger file", "full disk"])
def test_the_disk_is_full(kind: str, tmp_path: Path) -> None:
    streamed = Streamed(tmp_path)
    for number in range(4):
        streamed.arrive([(at(10 * number + i / 6_000), i % 7, i) for i in range(60_000)])
    streamed.arrive([(at(120), 0, 0)])
    place, limit = tmp_path / "run", (2 << 20) if kind == "no larger file" else None
    arguments = ("--plan", "db", "--sink", f"parquet:{place / 'out'}")
    with small_disk(place / "state", "3m") if limit is None else nothing_small() as give_room:
        with penstock_run(place, LONG, streamed.catalog, *arguments, largest_file=limit) as command:
            assert ("File too large" if limit else "disk is full") in command.refused()
        give_room()
        with penstock_run(place, LONG, streamed.catalog, *arguments) as command:
            assert command.ended() == 0, command.said
    assert not streamed.wrong(LONG, at(120))


@contextmanager
def small_disk(directory: Path, size: str) -> Iterator[Callable[[], None]]:
    """A file system of its own in a directory, and what makes it larger."""
    directory.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "penstock", str(directory)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no right to mount a file system")

    def give_room() -> None:
        subprocess.run(["mount", "-o", "remount,size=100m", str(directory)], check=True)

    try:
        yield give_room
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


@contextmanager
def nothing_small() -> Iterator[Callable[[], None]]:
    yield lambda: None


# -- what does not match -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (
            pa.schema([("ts", pa.timestamp("us")), ("k", pa.int32())]),
            r"stream s: .*files has no column n; it has ts, k",
        ),
        (SCHEMA.set(1, pa.field("k", pa.string())), r"k is string there and INT in the catalog"),
    ],
)
def test_files_with_other_columns(schema: pa.Schema, said: str, spark: SparkSession, tmp_path: Path) -> None:
    streamed = Streamed(tmp_path)
    pq.write_table(schema.empty_table(), streamed.next_file())
    with pytest.raises(PenstockError, match=said):
        streamed.deployment(spark, SUM, Where.DB)


def test_a_sink_with_other_columns(spark: SparkSession, tmp_path: Path) -> None:
    streamed, file = Streamed(tmp_path), tmp_path / "out.duckdb"
    with duckdb.connect(str(file)) as there:
        there.execute("CREATE TABLE result (ts TIMESTAMP, k INT, total TEXT)")
    with pytest.raises(PenstockError, match=r"table result has other columns than the query's result.*x .* is missing"):
        streamed.deployment(spark, SUM, Where.DB, sink=f"duckdb:{file}#result")
    with duckdb.connect(str(file)) as there:  # it is closed, and as it was
        assert [c[0] for c in there.execute("DESCRIBE result").fetchall()] == ["ts", "k", "total"]


def test_the_state_of_another_plan(spark: SparkSession, tmp_path: Path) -> None:
    streamed = Streamed(tmp_path)
    streamed.arrive(steady(0, 12))
    run_to_end(streamed.deployment(spark, SUM, Where.SPE))
    before = (tmp_path / "run" / "state" / "deployment.json").read_text()
    with pytest.raises(PenstockError, match="holds the state of another deployment"):
        streamed.deployment(spark, SUM, Where.DB)
    with penstock_run(tmp_path / "run", SUM, streamed.catalog, "--plan", "db") as command:
        said = command.refused()
    assert "holds the state of another deployment" in said
    assert "--fresh" in said
    assert "starting Spark" not in said
    assert (tmp_path / "run" / "state" / "deployment.json").read_text() == before
    streamed.arrive(steady(12, 24))
    run_to_end(streamed.deployment(spark, SUM, Where.SPE))
    assert not streamed.wrong(SUM, at(20))


# -- what cannot be read -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "bad"),
    [
        ("csv", ["2024-05-01T12:00:03,one,1", "yesterday,1,1", "2024-05-01T12:00:03,1", ",,"]),
        ("json", ['{"ts": "2024-05-01T12:00:03", "k": "one", "n": 1}', '{"ts": ', "not even that"]),
    ],
)
@pytest.mark.parametrize("where", [pytest.param(Where.SPE, marks=pytest.mark.slow), Where.DB])
def test_malformed_records(form: str, bad: list[str], where: Where, spark: SparkSession, tmp_path: Path) -> None:
    streamed = Streamed(tmp_path, form)
    streamed.arrive(steady(0, 8), more=bad)
    streamed.arrive(steady(8, 21), more=bad[:1])
    run_to_end(streamed.deployment(spark, COUNT, where))
    assert not streamed.wrong(COUNT, at(20))
    assert streamed.reports[-1].malformed == len(bad) + 1
    kept = [
        json.loads(line)
        for path in sorted((tmp_path / "run" / "state" / "dead-letter" / "s").glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    assert sorted(letter["record"] for letter in kept) == sorted([*bad, bad[0]])
    assert all(letter["reason"] for letter in kept)
    assert "k: 'one' is no INT" in next(letter["reason"] for letter in kept if letter["record"] == bad[0])


@pytest.mark.parametrize("where", [Where.SPE, pytest.param(Where.DB, marks=pytest.mark.slow)])
def test_a_file_that_is_no_parquet(where: Where, spark: SparkSession, tmp_path: Path) -> None:
    streamed = Streamed(tmp_path)
    streamed.arrive(steady(0, 8))
    deployment = streamed.deployment(spark, COUNT, where)
    bad = streamed.not_a_file_of_its_form()
    with pytest.raises(PenstockError, match=bad.name):
        run_to_end(deployment)
    streamed.written -= 1
    streamed.arrive(steady(8, 21))  # under the name of the bad one
    run_to_end(streamed.deployment(spark, COUNT, where))
    assert not streamed.wrong(COUNT, at(20))


# -- values beyond their type ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sql", [SUM, pytest.param(NARROW, marks=pytest.mark.slow)], ids=["sum", "cast"])
@pytest.mark.parametrize("where", list(Where))
def test_a_value_beyond_its_type(sql: str, where: Where, spark: SparkSession, tmp_path: Path) -> None:
    streamed = Streamed(tmp_path)
    streamed.arrive(steady(0, 11))
    streamed.arrive([(at(s), 1, BIG) for s in (11, 12, 13)])
    streamed.arrive([(at(40), 1, 1)])
    for _ in range(2):  # a second start finds the state as it was, and the same tuples
        with pytest.raises(PenstockError, match=r"(?i)overflow|out of range|does not fit"):
            run_to_end(streamed.deployment(spark, sql, where))
        assert not streamed.wrong(sql, at(10))


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["spe", "db"])
@pytest.mark.parametrize("what", ["overflow", "no parquet", "other columns"])
def test_what_a_person_sees(what: str, plan: str, tmp_path: Path) -> None:
    """The same through the command: one message, exit code 2."""
    streamed = Streamed(tmp_path)
    said = r"overflow"
    if what == "no parquet":
        said = streamed.not_a_file_of_its_form().name
    elif what == "other columns":
        pq.write_table(SCHEMA.remove(2).empty_table(), streamed.next_file())
        said = "no column n"
    else:
        streamed.arrive([(at(s), 1, BIG) for s in (0, 1, 2)])
        streamed.arrive([(at(40), 1, 1)])
    with penstock_run(tmp_path / "run", SUM, streamed.catalog, "--plan", plan) as command:
        lines = command.refused().splitlines()
    (message,) = [line for line in lines if line.startswith("error: ")]
    assert said in message or (what == "overflow" and "does not fit its type: agg1_sum_n (int64)" in message), message
