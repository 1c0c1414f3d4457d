"""The native emission: the text it prints, what it refuses, and its rows in real Spark against the oracle's."""

from __future__ import annotations

import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from connectors.spark.native import native_problem, native_script
from connectors.spark.native_sources import stream_reader, table_reader
from optimizer.algebra import RelationToStream, Window, leaves
from optimizer.catalog import Catalog
from optimizer.errors import PenstockError
from optimizer.optimize import Options, optimize, read_query
from optimizer.sql.ddl import parse_catalog
from tests import goldens_native_update as goldens
from tests import oracle
from tests.federation import same
from tests.goldens import EXAMPLES
from tests.oracle import Row
from tests.recorded import CATALOG, START, TIMES, random_query, record
from tests.spark_fixture import interpreted
from tests.test_equivalence import QUERIES, TUPLE_DRIVEN, arrivals

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
LAST = START + 30 * SECOND  # every window is empty again
FILES = [START + s * SECOND for s in (4.5, 9.75, 17.25, 100)]  # where one file ends and the next begins


class Recorded:
    """The recorded streams as directories of files, read one file a batch; the last ones push the watermark on."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.connection = record()
        self.root = root
        # A session of its own, because the windows at the end come out of a batch without data.
        own = {"spark.sql.shuffle.partitions": "1", "spark.sql.streaming.noDataMicroBatches.enabled": "true"}
        self.spark = spark.newSession()
        for name, value in own.items():
            self.spark.conf.set(name, value)
        for name in TIMES:
            self.write(name)
        for name in ("d", "e"):
            table = self.connection.sql(f"SELECT * FROM {name}").to_arrow_table()
            self.spark.createDataFrame(table).createOrReplaceTempView(name)

    def write(self, name: str) -> None:
        directory = self.root / name
        directory.mkdir()
        since = START - SECOND
        for i, until in enumerate(FILES):
            part = f"SELECT * FROM {name} WHERE ts >= TIMESTAMP '{since}' AND ts < TIMESTAMP '{until}'"
            self.file(directory / f"{i}.parquet", self.connection.sql(part).to_arrow_table(), i)
            since = until
        # Several, because Spark pushes selections below the watermark: only tuples that pass them move it.
        later = self.connection.sql(f"SELECT * REPLACE (TIMESTAMP '{START + HOUR}' AS ts) FROM {name} LIMIT 20")
        self.file(directory / "last.parquet", later.to_arrow_table(), len(FILES))

    @staticmethod
    def file(path: Path, rows: pa.Table, number: int) -> None:
        pq.write_table(rows, path)
        os.utime(path, (number + 1, number + 1))  # Spark takes the oldest first

    def stream(self, name: str) -> DataFrame:
        path = str(self.root / name)
        reader = self.spark.readStream.schema(self.spark.read.parquet(path).schema)
        return reader.option("maxFilesPerTrigger", 1).parquet(path)

    def rows(self, script: str) -> dict[datetime, list[Row]]:
        """What the script's query emits, by tick."""
        names: dict[str, Callable[[SparkSession, dict[str, DataFrame]], DataFrame]] = {}
        exec(compile(script, "script", "exec"), names)
        result = names["query"](self.spark, {name: self.stream(name) for name in TIMES})
        assert result.columns[0] == "tick"
        found: dict[datetime, list[Row]] = defaultdict(list)

        def keep(batch: DataFrame, _: int) -> None:
            for tick, *row in batch.collect():
                found[tick].append(tuple(row))

        query = result.writeStream.outputMode("append").foreachBatch(keep).trigger(availableNow=True).start()
        query.awaitTermination()
        return found


@pytest.fixture(scope="module")
def recorded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    site = Recorded(spark, tmp_path_factory.mktemp("recorded"))
    with interpreted(spark):
        yield site
    site.connection.close()


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return parse_catalog(CATALOG)


def check(plan: RelationToStream, sql: str, slide: int, recorded: Recorded, catalog: Catalog) -> int:
    """Every tick's rows are the oracle's; says how many there are."""
    script = native_script(plan, catalog, sql)
    found = {tick: rows for tick, rows in recorded.rows(script).items() if tick <= LAST}
    ticks = [START + i * SECOND for i in range(-1, 31)]
    on_slide = [t for t in ticks if (t - oracle.EPOCH) % timedelta(seconds=slide) == timedelta()]
    assert set(found) <= set(on_slide), script
    emitted = 0
    for tick in on_slide:
        expected = oracle.run(recorded.connection, sql, TIMES, tick)
        emitted += len(expected)
        assert same(found.get(tick, []), expected), f"{script}\nat {tick}: {found.get(tick)}, expected {expected}"
    return emitted


# -- the text -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", goldens.NAMES)
def test_the_script_is_the_golden_one(name: str) -> None:
    words = "the script changed: python -m tests.goldens_native_update, and read the diff"
    assert goldens.script(name) == goldens.path(name).read_text(), words


def test_no_golden_is_left_over() -> None:
    assert {p.name for p in goldens.DIRECTORY.iterdir()} == {goldens.path(name).name for name in goldens.NAMES}


S, SLOWER = "s [RANGE 4 SECONDS SLIDE 1 SECOND]", "r [RANGE 4 SECONDS SLIDE 2 SECONDS]"
REFUSED = {
    "SELECT k, count(*) AS n FROM s [ROWS 10 SLIDE 4] GROUP BY k": "window of rows",
    f"SELECT count(*) AS n FROM {S}": "without GROUP BY",
    f"SELECT k, count(DISTINCT v) AS n FROM {S} GROUP BY k": "distinct",
    f"SELECT a.k, count(*) AS n FROM {S} AS a JOIN {SLOWER} AS b ON a.k = b.k GROUP BY a.k": "by 1 SECOND and by 2",
    "SELECT k, count(*) AS n FROM s [RANGE 1 SECOND SLIDE 2 SECONDS] GROUP BY k": "longer than it is",
    f"SELECT RSTREAM d.k, a.v FROM d LEFT JOIN {S} AS a ON a.k = d.k": "left of a LEFT JOIN",
    f"SELECT ISTREAM k, count(*) AS n FROM {S} GROUP BY k": "ISTREAM",
    f"SELECT k AS tick, count(*) AS n FROM {S} GROUP BY k": "called tick",
    f"SELECT k, percentile_cont(0.5) WITHIN GROUP (ORDER BY v) AS m FROM {S} GROUP BY k": "no function",
}


@pytest.mark.parametrize(("sql", "words"), REFUSED.items())
def test_what_spark_cannot_do_is_refused(sql: str, words: str, catalog: Catalog) -> None:
    plan, _ = read_query(sql, catalog)
    problem = native_problem(plan, catalog)
    assert problem is not None
    assert words in problem
    with pytest.raises(PenstockError, match="no native Spark query"):
        native_script(plan, catalog, sql)


def test_a_stream_needs_a_watermark_on_the_windows_column() -> None:
    catalog = parse_catalog("CREATE STREAM t (a TIMESTAMP, b TIMESTAMP, k INT, WATERMARK FOR a AS a)")
    sql = "SELECT window_end, k FROM TUMBLE(TABLE t, DESCRIPTOR(b), INTERVAL '3' SECOND) GROUP BY window_end, k"
    plan, _ = read_query(sql, catalog)
    assert native_problem(plan, catalog) == "stream t has no watermark on b"


# -- the rows -------------------------------------------------------------------------------------------------------

CHOSEN = {
    "spark": 2,
    "hop": 1,
    "hop without words": 2,
    "self join": 1,
    "comma": 1,
    "left using": 1,
    "scalar in the select list": 1,
    "constant keys": 1,
    "integer division": 1,
    "texts": 1,
    "times": 1,
    "a large column is computed once": 1,
    "pushed 3": 1,
    "pulled 2": 1,
}


def example(name: str, recorded: Recorded, catalog: Catalog) -> None:
    sql = (EXAMPLES / f"{name}.sql").read_text().replace("MINUTE", "SECOND")
    plan, _ = read_query(sql, catalog)
    assert check(plan, sql, 1, recorded, catalog) > 0


@pytest.mark.parametrize("name", ["cq1", "cq3"])
def test_examples(name: str, recorded: Recorded, catalog: Catalog) -> None:
    example(name, recorded, catalog)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cq2", "cq4", "cq5", "cq6"])
def test_more_examples(name: str, recorded: Recorded, catalog: Catalog) -> None:
    example(name, recorded, catalog)


@pytest.mark.parametrize("name", [n if n == "left using" else pytest.param(n, marks=pytest.mark.slow) for n in CHOSEN])
def test_written(name: str, recorded: Recorded, catalog: Catalog) -> None:
    plan, _ = read_query(QUERIES[name], catalog)
    assert check(plan, QUERIES[name], CHOSEN[name], recorded, catalog) > 0


def tuple_driven(number: int, recorded: Recorded, catalog: Catalog) -> None:
    sql, windows = TUPLE_DRIVEN[number]
    plan = optimize(sql, catalog, Options()).plan.tree
    script = native_script(plan, catalog, sql)
    found = {tick: rows for tick, rows in recorded.rows(script).items() if tick <= LAST}
    instants = [START + i * SECOND / 4 for i in range(-1, 81)]
    expected = {at: arrivals(recorded.connection, sql, windows, at) for at in instants}
    assert sum(map(len, expected.values())) > 0
    assert set(found) <= set(instants)
    for at in instants:
        assert same(found.get(at, []), expected[at]), f"{script}\nat {at}: {found.get(at)}, expected {expected[at]}"


def test_tuple_driven(recorded: Recorded, catalog: Catalog) -> None:
    tuple_driven(1, recorded, catalog)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 2, 3])
def test_more_tuple_driven(number: int, recorded: Recorded, catalog: Catalog) -> None:
    tuple_driven(number, recorded, catalog)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_random_queries(block: int, recorded: Recorded, catalog: Catalog) -> None:
    """Those of a block that have a native emission, in the form the optimizer gives them."""
    checked = emitted = 0
    for seed in range(100 * block, 100 * block + 100):
        sql = random_query(seed)
        plan = optimize(sql, catalog, Options()).plan.tree
        windows = [leaf for leaf in leaves(plan) if isinstance(leaf, Window)]
        if native_problem(plan, catalog) is None and len(windows) < 4 and checked < 5:
            emitted += check(plan, sql, (windows[0].spec.slide or 0) // 1_000_000, recorded, catalog)
            checked += 1
    assert emitted > 0


# -- the whole script -----------------------------------------------------------------------------------------------

FORMATS = {
    "parquet": "(FORMAT parquet)",
    "json": "(FORMAT json, TIMESTAMPFORMAT '%Y-%m-%dT%H:%M:%S.%f')",
    "csv": "(FORMAT csv, HEADER false)",
}
COLUMNS = "ts TIMESTAMP, k INT, g INT, v DOUBLE, n BIGINT, name VARCHAR"


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_the_script_reads_files(form: str, recorded: Recorded, tmp_path: Path) -> None:
    recorded.connection.execute(f"COPY s TO '{tmp_path}/s.{form}' {FORMATS[form]}")
    options = f"connector = 'files', format = '{form}', path = '{tmp_path}', maxFilesPerTrigger = 1"
    catalog = parse_catalog(f"CREATE STREAM s ({COLUMNS}, WATERMARK FOR ts AS ts) WITH ({options})")
    reader = stream_reader(catalog.streams["s"])
    assert reader is not None
    found: list[Row] = []
    rows = eval(reader, {"spark": recorded.spark}).select("ts", "k", "v")
    sink = rows.writeStream.foreachBatch(lambda batch, _: found.extend(map(tuple, batch.collect())))
    sink.trigger(availableNow=True).start().awaitTermination()
    assert same(found, recorded.connection.sql("SELECT ts, k, v FROM s").fetchall())


@pytest.mark.slow
@pytest.mark.parametrize("connector", ["files", "duckdb"])
def test_the_script_reads_stored_tables(connector: str, recorded: Recorded, tmp_path: Path) -> None:
    path = tmp_path / "d.file"
    if connector == "files":
        recorded.connection.execute(f"COPY d TO '{path}' (FORMAT parquet)")
    else:
        with duckdb.connect(str(path)) as other:
            other.register("given", recorded.connection.sql("SELECT * FROM d").to_arrow_table())
            other.execute("CREATE TABLE d AS SELECT * FROM given")
    columns = "k INT PRIMARY KEY, label VARCHAR, grp INT, factor DOUBLE"
    catalog = parse_catalog(f"CREATE TABLE d ({columns}) WITH (connector = '{connector}', path = '{path}')")
    reader = table_reader(catalog.tables["d"])
    assert reader is not None
    found = eval(reader, {"spark": recorded.spark, "duckdb": duckdb}).collect()
    assert same([tuple(row) for row in found], recorded.connection.sql("SELECT * FROM d").fetchall())


def test_other_connectors_are_plain_spark() -> None:
    catalog = parse_catalog(
        "CREATE STREAM a (ts TIMESTAMP, k INT)"
        " WITH (connector = 'kafka', topic = 't', \"kafka.bootstrap.servers\" = 'h:1');"
        "CREATE STREAM b (timestamp TIMESTAMP, value BIGINT) WITH (connector = 'rate', rate = 50);"
        "CREATE TABLE c (k INT) WITH (connector = 'postgres', url = 'postgresql://me:secret@db:5433/x')"
    )
    kafka = stream_reader(catalog.streams["a"])
    assert kafka is not None
    assert '"kafka.bootstrap.servers": "h:1"' in kafka
    assert '"subscribe": "t"' in kafka
    assert "rowspersecond" in str(stream_reader(catalog.streams["b"]))
    postgres = table_reader(catalog.tables["c"])
    assert postgres is not None
    assert "jdbc:postgresql://db:5433/x" in postgres
    assert "secret" not in postgres


@pytest.mark.slow
def test_the_script_runs(tmp_path: Path) -> None:
    """As a process of its own, over the smart-plug stream, until it has printed a result."""
    script = tmp_path / "query.py"
    sql = "SELECT house_id, max(value) AS top FROM plugs [RANGE 2 SECONDS SLIDE 1 SECOND] GROUP BY house_id"
    known = parse_catalog((EXAMPLES / "catalog.sql").read_text())
    script.write_text(native_script(read_query(sql, known)[0], known, sql))
    command = [sys.executable, str(script), "--checkpoint", str(tmp_path / "checkpoint"), "--master", "local[1]"]
    there = {"PYTHONPATH": str(EXAMPLES.parent.parent), "PYSPARK_PYTHON": sys.executable}
    with Popen(command, stdout=PIPE, stderr=STDOUT, text=True, env=os.environ | there) as process:
        assert process.stdout is not None
        seen: list[str] = []
        for line in process.stdout:
            seen.append(line)
            if re.match(r"\|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s*\|\d+\s*\|", line):
                break
        process.terminate()
    assert any(re.match(r"\|tick\s*\|house_id\|top", line) for line in seen), "".join(seen)
