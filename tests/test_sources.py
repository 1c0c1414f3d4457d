"""Sources on a real Spark: the smart-plug stream, files, sockets, and what is said of records that do not fit."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from connectors.spark import session
from connectors.spark.session import spark_session
from connectors.spark.smartplug import SmartPlugReader, smartplug_rows
from connectors.spark.sources import Source, open_stream
from optimizer.catalog import Stream
from optimizer.errors import PenstockError
from optimizer.sql.ddl import parse_catalog

PLUGS = ("id", "ts", "value", "property", "plug_id", "household_id", "house_id")
COLUMNS = """(id BIGINT NOT NULL, ts TIMESTAMP NOT NULL, value DOUBLE, property INT NOT NULL, plug_id INT NOT NULL,
    household_id INT NOT NULL, house_id INT NOT NULL, WATERMARK FOR ts AS ts)"""
READINGS = "(ts TIMESTAMP, plug INT NOT NULL, load DOUBLE, WATERMARK FOR ts AS ts)"
GOOD = {"ts": datetime(2024, 1, 1, 12), "plug": 7, "load": 1.5}


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return spark_session("local[2]", {"spark.driver.memory": "1g"})


def stream(options: str, columns: str = COLUMNS) -> Stream:
    return parse_catalog(f"CREATE STREAM s {columns} WITH ({options})").streams["s"]


def plugs(spark: SparkSession, options: str) -> Source:
    return open_stream(spark, stream(f"connector = 'smartplug', {options}"), PLUGS)


def run(frame: DataFrame, checkpoint: Path, failing: int = -1) -> list[pa.Table]:
    """The batches of everything there is now; an error after batch number `failing` has been read."""
    batches: list[pa.Table] = []

    def collect(batch: DataFrame, number: int) -> None:
        batches.append(batch.toArrow())
        if number == failing:
            raise RuntimeError("the power went off")

    query = frame.writeStream.foreachBatch(collect).trigger(availableNow=True)
    running = query.option("checkpointLocation", str(checkpoint)).start()
    try:
        running.awaitTermination()
    except StreamingQueryException:
        assert failing >= 0
    return batches


def test_the_stream_is_bounded_per_batch_and_the_same_as_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    options = "pace = 'full', rate = 1000, limit = 4500, max_per_batch = 2000, seed = 3, disorder = 2, late_share = 0.1"
    batches = run(plugs(spark, options).frame, tmp_path)
    assert [b.num_rows for b in batches] == [2000, 2000, 500]
    given = {"rate": 1000.0, "seed": 3.0, "disorder": 2.0, "late_share": 0.1}
    streamed = pa.concat_tables(batches)
    assert streamed.equals(smartplug_rows(spark, 0, 4500, given).toArrow())
    assert streamed["ts"].type == pa.timestamp("us")
    assert streamed.slice(1500, 100).equals(smartplug_rows(spark, 1500, 1600, given).toArrow())
    assert not streamed["value"].equals(smartplug_rows(spark, 0, 4500, given | {"seed": 4.0}).toArrow()["value"])
    due = [datetime(2024, 1, 1) + timedelta(milliseconds=i) for i in streamed["id"].to_pylist()]
    late = [d - t for d, t in zip(due, streamed["ts"].to_pylist(), strict=True) if d != t]
    assert 300 < len(late) < 600
    assert timedelta(0) < min(late) < max(late) <= timedelta(seconds=2)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_batch_that_is_read_again_is_the_same(spark: SparkSession, tmp_path: Path, failing: int) -> None:
    options = "pace = 'full', rate = 100, max_per_batch = 300, start = 'now', limit = "
    before = run(plugs(spark, options + "900").frame, tmp_path, failing)
    after = run(plugs(spark, options + "900").frame, tmp_path)
    assert len(before) == failing + 1
    assert after[0].equals(before[failing])
    more = run(plugs(spark, options + "1000").frame, tmp_path)
    everything = pa.concat_tables([*before[:failing], *after, *more])
    assert everything["id"].to_pylist() == list(range(1000))
    times = everything["ts"].to_pylist()
    assert [t - times[0] for t in times] == [timedelta(milliseconds=10 * i) for i in range(1000)]
    assert times[0] > datetime(2026, 1, 1)


def test_in_real_time_a_restart_keeps_the_clock(spark: SparkSession, tmp_path: Path) -> None:
    def until(limit: int) -> dict[str, int]:
        frame = plugs(spark, f"rate = 400, limit = {limit}").frame
        query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
        try:
            offset: dict[str, int] = {"index": -1}
            while offset["index"] < limit:
                assert query.exception() is None
                logged = sorted((tmp_path / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
                if logged:
                    offset = json.loads((tmp_path / "offsets" / logged[-1].name).read_text().splitlines()[-1])
                # Tuple i is not there before i/rate seconds have gone.
                assert offset["index"] <= (time.time() - offset.get("wall_us", 0) / 1e6) * 400
                time.sleep(0.05)
        finally:
            query.stop()
        return offset

    first, second = until(100), until(1000)
    assert first["wall_us"] == second["wall_us"]


def test_what_a_batch_takes_of_what_is_due() -> None:
    options = {"rate": "100", "real": "true", "max_per_batch": "50", "limit": "", "partitions": "2", "start_us": ""}
    reader = SmartPlugReader(options)
    now = time.time_ns() // 1000
    start = {"index": 10, "wall_us": now - 10_000_000, "start_us": 0}
    assert reader.getDefaultReadLimit() == ReadMaxRows(50)
    assert reader.latestOffset(start, ReadMaxRows(50))["index"] == 60
    assert reader.latestOffset(start, ReadAllAvailable())["index"] >= 1000
    assert reader.latestOffset(start | {"wall_us": now + 60_000_000}, ReadMaxRows(50))["index"] == 10
    parts = reader.partitions(start, start | {"index": 30_011})
    assert [p.value[:2] for p in parts] == [(10, 15_010), (15_010, 30_011)]
    assert [r for p in parts for r in reader.read(p)][:2] == [(10, 10_009, 0), (10_010, 15_009, 0)]
    assert reader.partitions(start, start) == []


def test_the_plugs(spark: SparkSession) -> None:
    rows = smartplug_rows(spark, 0, 3 * 4250, {"rate": 4250.0})
    rows.createOrReplaceTempView("measured")
    counts = "count(distinct house_id), count(distinct house_id, household_id), count(distinct {p}), min(value)"
    found = spark.sql(f"SELECT {counts.format(p='house_id, household_id, plug_id')}, max(value) FROM measured")
    houses, households, count, low, high = found.collect()[0]
    assert (houses, households, count) == (40, 425, 2125)
    assert 0 <= low < high < 4000
    nulls = " OR ".join(f"{c} IS NULL" for c in PLUGS)
    assert spark.sql(f"SELECT * FROM measured WHERE property <> id % 2 OR {nulls}").isEmpty()
    plug = "PARTITION BY house_id, household_id, plug_id, property ORDER BY ts"
    per = f"SELECT property, value - lag(value) OVER ({plug}) AS d, ts - lag(ts) OVER ({plug}) AS dt FROM measured"
    steps = spark.sql(f"SELECT property, min(d), max(d), min(dt), max(dt) FROM ({per}) GROUP BY 1 ORDER BY 1").collect()
    assert {s[3] for s in steps} == {s[4] for s in steps} == {timedelta(seconds=1)}  # each reports once a second
    assert 0 <= steps[0][1] < steps[0][2] < 0.001  # work never falls
    assert steps[1][1] < 0 < steps[1][2]


def test_more_is_drawn_in_the_evening(spark: SparkSession) -> None:
    def mean(start: str) -> float:
        rows = smartplug_rows(spark, 0, 4250, {"rate": 4250.0, "start": start}).where("property = 1")
        return float(rows.agg({"value": "avg"}).collect()[0][0])

    assert mean("2024-01-01 19:00:00") > 3 * mean("2024-01-01 04:00:00")


def test_executors_need_no_penstock_and_nothing_is_printed(tmp_path: Path) -> None:
    """In a process of its own, in another directory, with a worker's Python that has PySpark and Arrow only."""
    import numpy

    library, packages = tmp_path / "library", Path(pa.__file__).parents[1]
    library.mkdir()
    for path in (Path(pa.__file__).parent, Path(numpy.__file__).parent, *packages.glob("numpy.libs")):
        (library / path.name).symlink_to(path)
    worker = tmp_path / "python"
    worker.write_text(f'#!/bin/sh\nexec env PYTHONPATH="$PYTHONPATH:{library}" {sys.executable} -S "$@"\n')
    worker.chmod(0o755)
    lacking = subprocess.run([worker, "-c", "import connectors"], cwd=tmp_path, capture_output=True, check=False)
    assert b"ModuleNotFoundError" in lacking.stderr
    script = f"""
from connectors.spark.session import spark_session
from connectors.spark.sources import open_stream
from optimizer.sql.ddl import parse_catalog
spark = spark_session("local[1]", {{"spark.driver.memory": "1g"}})
text = '''CREATE STREAM s {COLUMNS} WITH (connector = 'smartplug', pace = 'full', limit = 500)'''
frame = open_stream(spark, parse_catalog(text).streams["s"], ("id",)).frame
query = frame.writeStream.foreachBatch(lambda batch, number: print(batch.count())).trigger(availableNow=True)
query.option("checkpointLocation", "checkpoint").start().awaitTermination()
spark.stop()
"""
    env = {"PYSPARK_PYTHON": str(worker), "HOME": str(tmp_path)}
    env |= {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("500\n", "")


def written_json(path: Path) -> None:
    lines = [
        '{"ts": "2024-01-01T14:00:00+02:00", "plug": 7, "load": 1.5, "more": [1]}',
        "",
        '{"ts": "2024-01-01 12:00:01", "plug": "x7", "load": "high"}',
        '{"plug": 8}',
        '{"ts": "2024-01-01 12:00:02", "load": 2}',
        '{"ts": "2024-01-01',
        '[{"ts": "2024-01-01 12:00:03", "plug": 1}]',
    ]
    (path / "a.json").write_text("\n".join(lines))


def written_csv(path: Path) -> None:
    lines = [
        "2024-01-01T14:00:00+02:00,7,1.5",
        "",
        "2024-01-01 12:00:01,x7,high",
        ",8,",
        "2024-01-01 12:00:02,,2",
        "2024-01-01",
        "2024-01-01 12:00:03,1,2,3",
    ]
    (path / "a.csv").write_text("\n".join(lines))


@pytest.mark.parametrize(("kind", "write"), [("json", written_json), ("csv", written_csv)])
def test_malformed_text(spark: SparkSession, tmp_path: Path, kind: str, write: Callable[[Path], None]) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in")
    declared = stream(f"connector = 'files', path = '{tmp_path}/in', format = '{kind}'", READINGS)
    source = open_stream(spark, declared, ("ts", "plug", "load"))
    assert source.can_be_malformed
    assert source.replayable
    rows = pa.concat_tables(run(source.frame, tmp_path / "checkpoint")).to_pylist()
    assert rows[0] == GOOD | {"_malformed": None, "_raw": None}
    broken = "not a JSON object" if kind == "json" else "not a line of CSV with 3 fields"
    assert [r["_malformed"] for r in rows[1:]] == [
        "plug: 'x7' is no INT; load: 'high' is no DOUBLE",
        "ts: no time",
        "plug: NULL, but it is NOT NULL",
        broken,
        broken,
    ]
    raw = [line for line in next((tmp_path / "in").iterdir()).read_text().splitlines() if line]
    assert [r["_raw"] for r in rows[1:]] == raw[1:]
    # What is wrong in a column that the query does not read is none of its business.
    read = open_stream(spark, declared, ("ts", "load")).frame
    reasons = pa.concat_tables(run(read.drop("_raw"), tmp_path / "other")).column("_malformed").to_pylist()
    assert reasons == [None, "load: 'high' is no DOUBLE", "ts: no time", None, broken, broken]


def test_csv_by_header(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("load;note;ts;plug\n1.5;x;01.01.2024 12:00;7\n;y;yesterday;8\n")
    words = (
        "connector = 'files', format = 'csv', header = true, sep = ';', timestampformat = 'dd.MM.yyyy HH:mm', path = "
    )
    source = open_stream(spark, stream(words + f"'{tmp_path}/in'", READINGS), ("ts", "plug", "load"))
    good, bad = pa.concat_tables(run(source.frame, tmp_path / "checkpoint")).to_pylist()
    assert good == GOOD | {"_malformed": None, "_raw": None}
    assert bad["_malformed"] == "ts: 'yesterday' is no TIMESTAMP"
    assert bad["_raw"] == ";y;yesterday;8"
    other = stream(words + f"'{tmp_path}/in'", "(ts TIMESTAMP, house INT)")
    with pytest.raises(PenstockError, match="has no column house; it has load, note, ts, plug"):
        open_stream(spark, other, ("ts",))


def test_parquet(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    declared = stream(f"connector = 'files', path = '{tmp_path}/in', maxfilespertrigger = 1", READINGS)
    empty = open_stream(spark, declared, ("ts",))
    assert "none there yet" in empty.note
    times = pa.array([GOOD["ts"], None], pa.timestamp("us", tz="UTC"))  # fits: the catalog's times are in UTC
    rows = {"ts": times, "plug": pa.array([7, 8], pa.int16()), "load": pa.array([1.5, None], pa.float32())}
    pq.write_table(pa.table(rows), tmp_path / "in" / "a.parquet")
    pq.write_table(pa.table(rows).slice(0, 1), tmp_path / "in" / "b.parquet")
    source = open_stream(spark, declared, ("plug", "ts", "load"))
    batches = run(source.frame, tmp_path / "checkpoint")
    assert sorted(b.num_rows for b in batches) == [1, 2]
    found = pa.concat_tables(batches)
    assert [found.schema.field(n).type for n in ("ts", "plug", "load")] == [
        pa.timestamp("us"),
        pa.int32(),
        pa.float64(),
    ]
    malformed = [r for r in found.to_pylist() if r["_malformed"]]
    assert [(r["_malformed"], json.loads(r["_raw"])) for r in malformed] == [
        ("ts: no time", {"ts": None, "plug": 8, "load": None})
    ]
    assert found.num_rows == 3
    unchecked = stream(f"connector = 'files', path = '{tmp_path}/in'", "(plug INT)")
    assert open_stream(spark, unchecked, ("plug",)).frame.columns == ["plug"]


def test_parquet_that_does_not_match(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"ts": ["noon"], "plug": [7], "load": [1.5]}), tmp_path / "a.parquet")
    words = "ts is string there and TIMESTAMP in the catalog; plug is bigint there and INT in the catalog"
    with pytest.raises(PenstockError, match=words):
        open_stream(spark, stream(f"connector = 'files', path = '{tmp_path}'", READINGS), ("ts",))


def test_socket(spark: SparkSession, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve() -> None:
            connection, _ = server.accept()
            connection.sendall(b"2024-01-01 12:00:00,7,1.5\n2024-01-01 12:00:00,seven,1.5\n")
            connection.close()

        threading.Thread(target=serve, daemon=True).start()
        declared = stream(f"connector = 'socket', host = '127.0.0.1', port = {port}, format = 'csv'", READINGS)
        source = open_stream(spark, declared, ("ts", "plug", "load"))
        assert not source.replayable
        found: list[pa.Table] = []
        query = source.frame.writeStream.foreachBatch(lambda batch, _: found.append(batch.toArrow())).start()
        while sum(b.num_rows for b in found) < 2:
            assert query.exception() is None
            time.sleep(0.05)
        query.processAllAvailable()
        query.stop()
    good, bad = pa.concat_tables(found).to_pylist()
    assert good == GOOD | {"_malformed": None, "_raw": None}
    assert (bad["_malformed"], bad["_raw"]) == ("plug: 'seven' is no INT", "2024-01-01 12:00:00,seven,1.5")


def test_rate(spark: SparkSession, tmp_path: Path) -> None:
    declared = stream("connector = 'rate', rate = 100", '("timestamp" TIMESTAMP, value BIGINT)')
    source = open_stream(spark, declared, ("value", "timestamp"))
    assert source.frame.dtypes == [("value", "bigint"), ("timestamp", "timestamp_ntz")]
    assert "100 numbers" in source.note


@pytest.mark.parametrize(
    ("options", "columns", "words"),
    [
        ("rate = 5", READINGS, "stream s has no connector; .*one of smartplug, files, kafka, socket, rate"),
        ("connector = 'pulsar'", READINGS, "the unknown connector 'pulsar'; .*smartplug, files"),
        ("connector = 'files'", READINGS, "stream s: the option path is missing"),
        ("connector = 'files', path = '/tmp', format = 'avro'", READINGS, "one of parquet, csv, json, found 'avro'"),
        ("connector = 'files', path = '/no/such', format = 'csv'", READINGS, "/no/such"),
        ("connector = 'files', path = '/no/such', format = 'json'", READINGS, "/no/such"),
        ("connector = 'files', path = '/no/such'", READINGS, "/no/such"),
        ("connector = 'files', path = '/tmp', format = 'csv', mode = 'FAILFAST'", READINGS, "the option mode cannot"),
        ("connector = 'files', path = '/tmp', format = 'json', multiline = true", READINGS, "one object per line"),
        ("connector = 'socket', port = 99", READINGS, "the option host is missing"),
        ("connector = 'socket', host = 'h', port = 9, format = 'xml'", READINGS, "'json' or 'csv', found 'xml'"),
        ("connector = 'kafka', topic = 't'", READINGS, "the option kafka.bootstrap.servers is missing"),
        ("connector = 'kafka', kafka.bootstrap.servers = 'h:9092'", READINGS, "kafka needs the option topic"),
        (
            "connector = 'kafka', kafka.bootstrap.servers = 'h:9092', topic = 't'",
            READINGS,
            r"spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:4\.",
        ),
        ("connector = 'rate'", READINGS, "Spark's rate source has no column ts, plug, load; it has timestamp, value"),
        ("connector = 'smartplug'", READINGS, "smart-plug stream has no column plug, load"),
        ("connector = 'smartplug'", "(ts TIMESTAMP, value INT)", "value is double there and INT in the catalog"),
        ("connector = 'smartplug', pase = 'full'", COLUMNS, "no option pase; did you mean pace"),
        ("connector = 'smartplug', pace = 'slow'", COLUMNS, "pace must be 'real' or 'full', found 'slow'"),
        ("connector = 'smartplug', start = 'noon'", COLUMNS, "start must be a time such as .* found 'noon'"),
        ("connector = 'smartplug', late_share = 2", COLUMNS, "late_share must be a number from 0 to 1, found 2"),
    ],
)
def test_what_cannot_be_opened(spark: SparkSession, options: str, columns: str, words: str) -> None:
    with pytest.raises(PenstockError, match=words):
        open_stream(spark, stream(options, columns), ("ts",))


def test_a_stream_from_now_on_has_no_rows_beforehand(spark: SparkSession) -> None:
    with pytest.raises(PenstockError, match="give it a fixed start"):
        smartplug_rows(spark, 0, 1, {"start": "now"})


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n", "needs Java 17 or newer, but .* is Java 11; install"),
        ("#!/bin/sh\nexit 1\n", "does not run"),
        (None, "there is none on the PATH; install a JDK 17"),
    ],
)
def test_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str | None, words: str) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    if script:
        (tmp_path / "java").write_text(script)
        (tmp_path / "java").chmod(0o755)
    with pytest.raises(PenstockError, match=words):
        session._check_java()


def test_the_session_is_one(spark: SparkSession) -> None:
    again = spark_session("local[1]", {"spark.sql.shuffle.partitions": "2"})
    assert again.sparkContext is spark.sparkContext
    settings = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled", "spark.sql.shuffle.partitions")
    assert [again.conf.get(s) for s in settings] == ["UTC", "true", "2"]
