"""`penstock analyze` on real streams and tables, and the plans that follow from what it finds."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from adbc_driver_postgresql import dbapi
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from connectors.spark.analyze_catalog import Analysis, Effort, analyze_catalog
from optimizer.catalog import Catalog
from optimizer.errors import PenstockError
from optimizer.interests import interests
from optimizer.optimize import optimize
from optimizer.sql.ddl import parse_catalog
from optimizer.statistics import (
    Measured,
    RelationStatistics,
    Statistics,
    read_statistics,
    with_statistics,
    write_statistics,
)
from service.cli import app
from tests.goldens import EXAMPLES
from tests.postgres_server import postgres_url

START = datetime(2026, 3, 1)
TUPLES, PER_SECOND, KEYS = 3000, 100, 25
SECONDS = 120.0  # files end before, on any machine
QUERY = """
SELECT r.k, count(*) AS n FROM readings [RANGE 10 SECONDS SLIDE 1 SECOND] AS r
JOIN rooms AS m ON r.k = m.k WHERE r.v > 75 AND m.floor = 1 GROUP BY r.k
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Half a minute of readings in three files, one in ten without a value, and the rooms they come from."""
    (tmp_path / "in").mkdir()
    number = list(range(TUPLES))
    readings = pa.table(
        {
            "ts": pa.array([START + timedelta(seconds=i / PER_SECOND) for i in number], pa.timestamp("us")),
            "k": pa.array([i * 7 % KEYS for i in number], pa.int32()),
            "v": pa.array([None if i % 10 == 3 else float(i * 37 % 100) for i in number], pa.float64()),
            "name": pa.array([f"n{i % 4}" for i in number]),
        }
    )
    for part in range(3):
        pa.parquet.write_table(readings.slice(part * 1000, 1000), tmp_path / "in" / f"{part}.parquet")
    rooms = pa.table({"k": pa.array(range(50), pa.int32()), "floor": pa.array([i % 5 for i in range(50)], pa.int32())})
    pa.parquet.write_table(rooms, tmp_path / "rooms.parquet")
    with duckdb.connect(str(tmp_path / "stored.duckdb")) as database:
        database.execute("CREATE TABLE many AS SELECT i AS id, i % 300 AS kind FROM range(20000) AS r(i)")
    return tmp_path


def catalog_text(place: Path) -> str:
    return f"""
CREATE STREAM readings (ts TIMESTAMP, k INT, v DOUBLE, name VARCHAR, WATERMARK FOR ts AS ts)
    WITH (connector = 'files', path = '{place}/in', rate = 5);
CREATE TABLE rooms (k INT PRIMARY KEY, floor INT) WITH (connector = 'files', path = '{place}/rooms.parquet');
CREATE TABLE many (id BIGINT, kind BIGINT)
    WITH (connector = 'duckdb', path = '{place}/stored.duckdb', rows = 7);
CREATE STATISTICS ON readings (k, name) WITH (distinct = 3);
"""


def analyzed(spark: SparkSession, catalog: Catalog, *queries: str, tuples: int = 100_000) -> Analysis:
    return analyze_catalog(lambda: spark, catalog, interests(catalog, queries), Effort(SECONDS, tuples))


def relation(found: Analysis, name: str) -> RelationStatistics:
    return next(r for r in found.statistics.relations if r.name == name)


def distinct(found: RelationStatistics, *columns: str) -> Measured:
    figure = next(c.distinct for c in found.columns if set(c.columns) == set(columns))
    assert figure is not None
    return figure


def holds(found: Measured | None, truth: float) -> bool:
    assert found is not None
    return found.low is not None and found.high is not None and found.low <= truth <= found.high


def test_a_stream_of_files(spark: SparkSession, place: Path) -> None:
    catalog = parse_catalog(catalog_text(place))
    found = relation(analyzed(spark, catalog, QUERY), "readings")
    assert (found.kind, found.sample, found.whole) == ("stream", TUPLES, False)
    assert found.rate is not None
    assert found.rate.value == pytest.approx(PER_SECOND, rel=0.01)
    assert holds(found.rate, PER_SECOND)
    assert distinct(found, "k").value == KEYS
    assert distinct(found, "k", "name").value == KEYS * 4
    (v,) = (c for c in found.columns if c.columns == ("v",))
    assert (v.minimum, v.maximum) == (0, 99)
    assert holds(v.nulls, 0.1)
    assert v.histogram is not None
    assert v.histogram.sample == TUPLES * 9 // 10
    (k,) = (c for c in found.columns if c.columns == ("k",))
    assert k.histogram is None  # nothing is compared with it
    shares = {p.predicate: p.share for p in found.predicates}
    above = sum(i * 37 % 100 > 75 for i in range(TUPLES) if i % 10 != 3) / TUPLES
    assert shares['"readings"."v" > 75'].value == above
    assert holds(shares['"readings"."v" > 75'], above)
    assert shares['"readings"."k" = "rooms"."k"'].value == pytest.approx(1 / 50)


def test_tables_are_exact_where_all_rows_are_read(spark: SparkSession, place: Path) -> None:
    found = analyzed(spark, parse_catalog(catalog_text(place)), QUERY)
    rooms = relation(found, "rooms")
    assert rooms.whole
    assert rooms.rows == Measured(value=50, sample=50)
    assert distinct(rooms, "floor") == Measured(value=5, sample=50)
    assert [p.share for p in rooms.predicates] == [Measured(value=0.2, sample=50)]


def test_large_tables_are_sampled(spark: SparkSession, place: Path) -> None:
    many = relation(analyzed(spark, parse_catalog(catalog_text(place)), tuples=2000), "many")
    assert (many.sample, many.whole) == (2000, False)
    assert many.rows == Measured(value=20_000, sample=2000)
    kinds, ids = distinct(many, "kind"), distinct(many, "id")
    assert kinds.value == pytest.approx(300, rel=0.05)
    assert holds(kinds, 300)
    assert ids.value == pytest.approx(20_000, rel=0.05)


def test_a_table_in_postgres(spark: SparkSession) -> None:
    url = postgres_url()
    with dbapi.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS analyzed")
        cursor.execute("CREATE TABLE analyzed AS SELECT i AS id, i % 40 AS kind FROM generate_series(1, 5000) AS i")
    text = f"CREATE TABLE analyzed (id INT PRIMARY KEY, kind INT) WITH (connector = 'postgres', url = '{url}')"
    all_rows = relation(analyzed(spark, parse_catalog(text)), "analyzed")
    assert (all_rows.rows, distinct(all_rows, "kind").value) == (Measured(value=5000, sample=5000), 40)
    some = relation(analyzed(spark, parse_catalog(text), tuples=1000), "analyzed")
    assert (some.sample, distinct(some, "kind").value) == (1000, 40)


def test_plans_rest_on_what_was_found(spark: SparkSession, place: Path) -> None:
    catalog = parse_catalog(catalog_text(place))
    merged = with_statistics(catalog, analyzed(spark, catalog, QUERY).statistics, "x.stats.json")
    estimates = {e.what: e for e in optimize(QUERY, merged).estimates}
    for what in ("rate of readings", "rows of rooms", "r.v > 75", "m.floor = 1", "distinct k of readings"):
        assert estimates[what].source.label == "analyzed", what
    assert estimates["r.v > 75"].spread is not None
    assert estimates["r.v > 75"].spread.sample == TUPLES
    assert estimates["rows of rooms"].spread is None  # counted


def test_the_smart_plugs(spark: SparkSession) -> None:
    catalog = parse_catalog((EXAMPLES / "catalog.sql").read_text())
    found = relation(analyzed(spark, catalog, (EXAMPLES / "cq1.sql").read_text()), "plugs")
    assert found.sample == 100_000  # of two minutes at 2,000 a second, what is enough
    assert found.rate is not None
    assert found.rate.value == pytest.approx(2000, rel=0.001)
    assert distinct(found, "house_id", "household_id", "plug_id").value == 2125
    shares = {p.predicate: p.share.value for p in found.predicates}
    # A load is 0.7 to 1.3 times the plug's level: 0.13 of 0.6 are above 0.9 times the largest.
    above = '"plugs"."value" > 0.9 * MAX("plugs"."value")'
    assert shares == {'"plugs"."property" = 1': 0.5, above: pytest.approx(0.13 / 0.6, rel=0.05)}


def test_what_cannot_be_read_is_passed_over_with_the_reason(spark: SparkSession, place: Path) -> None:
    text = catalog_text(place) + "CREATE TABLE gone (k INT) WITH (connector = 'duckdb', path = '/nowhere.duckdb');"
    found = analyzed(spark, parse_catalog(text))
    assert [r.name for r in found.statistics.relations] == ["rooms", "many", "readings"]
    assert "there is no file /nowhere.duckdb" in found.passed_over["gone"]


def test_malformed_records_are_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("2026-01-01 00:00:00,1\nno time,2\n2026-01-01 00:00:01,x\n2026-01-01 00:00:02,4\n")
    text = f"""CREATE STREAM s (ts TIMESTAMP, k INT, WATERMARK FOR ts AS ts)
        WITH (connector = 'files', format = 'csv', path = '{tmp_path}')"""
    found = relation(analyzed(spark, parse_catalog(text)), "s")
    assert found.sample == 2


def test_an_empty_directory_has_no_statistics(spark: SparkSession, tmp_path: Path) -> None:
    text = f"""CREATE STREAM s (ts TIMESTAMP, k INT, WATERMARK FOR ts AS ts)
        WITH (connector = 'files', format = 'json', path = '{tmp_path}')"""
    found = analyzed(spark, parse_catalog(text))
    assert found.statistics.relations == ()
    assert "no tuple came" in found.passed_over["s"]


# -- the command ------------------------------------------------------------------------------------------------------


def test_the_command_writes_what_explain_uses(spark: SparkSession, place: Path) -> None:
    catalog, query = place / "house.sql", place / "query.sql"
    catalog.write_text(catalog_text(place))
    query.write_text(QUERY)
    said = CliRunner().invoke(app, ["analyze", str(catalog), "--query", str(query), "--for", "120s"])
    assert said.exit_code == 0, said.output
    assert "distinct k, name" in said.output
    assert read_statistics(place / "house.stats.json").relations[0].name == "rooms"
    words = ["explain", str(query), "--catalog", str(catalog)]
    text = CliRunner().invoke(app, words).output
    assert "100  analyzed  rate of readings   (" in text
    assert "3,000 tuples)" in text
    plain = CliRunner().invoke(app, [*words, "--no-statistics"]).output
    assert "analyzed" not in plain
    assert "5  catalog   rate of readings" in plain
    document = json.loads(CliRunner().invoke(app, [*words, "--format", "json"]).output)
    assert document["ranges"]["utilization"]["low"] <= document["cost"]["utilization"]
    catalog.write_text(catalog_text(place).replace("name VARCHAR", "title VARCHAR").replace("(k, name)", "(k)"))
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 2
    assert "house.stats.json is stale" in refused.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.sql"], "cannot be read"),
        (["-"], "give --output"),
        ([str(EXAMPLES / "catalog.sql"), "--for", "0s"], "--for must be longer"),
        ([str(EXAMPLES / "catalog.sql"), "--query", "nowhere.sql"], "the query nowhere.sql cannot be read"),
        ([str(EXAMPLES / "catalog.sql"), "--query", str(EXAMPLES / "catalog.sql")], "catalog.sql:"),
    ],
)
def test_arguments_that_cannot_hold(arguments: list[str], words: str) -> None:
    said = CliRunner().invoke(app, ["analyze", *arguments], input="CREATE TABLE t (k INT)")
    assert said.exit_code == 2
    assert words in said.output


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    catalog = tmp_path / "c.sql"
    catalog.write_text("CREATE TABLE gone (k INT) WITH (connector = 'duckdb', path = '/nowhere.duckdb');")
    said = CliRunner().invoke(app, ["analyze", str(catalog)])
    assert said.exit_code == 2
    assert "nothing to write" in said.output
    assert not (tmp_path / "c.stats.json").exists()


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    nothing = Statistics(made="2026-01-01T00:00:00+00:00", catalog="", relations=())
    with pytest.raises(PenstockError, match="cannot be written"):
        write_statistics(tmp_path / "no" / "dir.json", nothing)
