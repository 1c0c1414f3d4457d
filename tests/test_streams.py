"""Tuple-driven queries, late tuples, gaps, silent streams, ISTREAM and DSTREAM, on real Spark and DuckDB."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from migration.ticks import Windows, instant
from migration.watermark import Watermarks
from optimizer.algebra import operators
from optimizer.catalog import Catalog
from optimizer.optimize import optimize, read_query
from optimizer.physical import Where
from optimizer.pinned import everywhere, placed
from optimizer.sql.ddl import parse_catalog
from tests import oracle
from tests.federation import same
from tests.recorded import CATALOG, START
from tests.running import DELAY, END, Recording, deploy
from tests.spark_fixture import interpreted
from tests.test_equivalence import TUPLE_DRIVEN, arrivals

SLIDING = "SELECT a.g, count(*) AS n, sum(a.v) AS x FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] AS a GROUP BY a.g"


@pytest.fixture(scope="module")
def recording(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    with interpreted(spark):
        yield Recording.make(tmp_path_factory.mktemp("streams"))


@pytest.mark.parametrize(("sql", "windows"), TUPLE_DRIVEN)
def test_tuple_driven(
    sql: str, windows: dict[str, tuple[str, int]], spark: SparkSession, recording: Recording, tmp_path: Path
) -> None:
    optimized = optimize(sql, recording.catalog)
    random, count = Random(3), len(operators(optimized.plan.tree))
    plans = [everywhere(optimized, Where.SPE), everywhere(optimized, Where.DB)]
    plans.append(placed(optimized, [random.random() < 0.5 for _ in range(count)]))
    instants = [START + timedelta(seconds=i / 4) for i in range(-1, 80)]
    expected = [row for at in instants for row in arrivals(recording.connection, sql, windows, at)]
    for number, plan in enumerate(plans):
        outcome = deploy(spark, recording, optimized, plan, tmp_path / str(number))
        found = [row for rows in outcome.rows.values() for row in rows]
        assert same(found, expected), f"plan {number} of {sql}: {len(found)} rows, expected {len(expected)}"


@pytest.mark.parametrize("engine", list(Where))
@pytest.mark.parametrize("word", ["ISTREAM", "DSTREAM"])
def test_changes_between_ticks(
    word: str, engine: Where, spark: SparkSession, recording: Recording, tmp_path: Path
) -> None:
    sql = SLIDING.replace("SELECT", f"SELECT {word}")
    optimized = optimize(sql, recording.catalog)
    outcome = deploy(spark, recording, optimized, everywhere(optimized, engine), tmp_path)
    before: Counter[oracle.Row] = Counter()
    for tick in recording.ticks(SLIDING):
        now = Counter(recording.expected(SLIDING, tick))
        wanted = now - before if word == "ISTREAM" else before - now
        assert same(outcome.rows.get(tick, []), list(wanted.elements())), f"at {tick}"
        before = now


@pytest.mark.parametrize("engine", list(Where))
def test_late_tuples_are_dropped_and_counted(engine: Where, spark: SparkSession, tmp_path: Path) -> None:
    """A tuple behind the last tick that fired is in no result; one behind the watermark only is in all of its."""
    recording = Recording.make(tmp_path / "recording", shuffled=False)
    fired = END - timedelta(seconds=DELAY)  # a whole slide
    watermark = END - timedelta(seconds=DELAY - 1)
    recording.arrive("s", watermark + timedelta(seconds=DELAY))
    recording.arrive("s", fired - timedelta(seconds=1), seen=False)
    recording.arrive("s", fired + timedelta(seconds=0.5))
    recording.arrive("s", END + timedelta(seconds=9))
    optimized = optimize(SLIDING, recording.catalog)
    outcome = deploy(spark, recording, optimized, everywhere(optimized, engine), tmp_path)
    assert outcome.reports[-1].late == 1
    ticks = [START + timedelta(seconds=s) for s in range(2, 39, 2)]
    assert recording.expected(SLIDING, fired + timedelta(seconds=2)), "the tuple that is not late shows"
    for tick in ticks:
        assert same(outcome.rows.get(tick, []), recording.expected(SLIDING, tick)), f"at {tick}"


def test_a_gap_fires_its_ticks_without_work(spark: SparkSession, tmp_path: Path) -> None:
    """A year between two tuples is 15 million ticks, of which a handful has tuples in its window."""
    recording = Recording.make(tmp_path / "recording", shuffled=False)
    recording.arrive("s", START + timedelta(days=365), START + timedelta(days=365, seconds=DELAY + 6))
    optimized = optimize(SLIDING, recording.catalog)
    outcome = deploy(spark, recording, optimized, everywhere(optimized, Where.DB), tmp_path)
    assert sum(report.ticks for report in outcome.reports) < 50
    for tick in (START + timedelta(days=365, seconds=s) for s in (2, 4, 6)):
        assert same(outcome.rows.get(tick, []), recording.expected(SLIDING, tick)), f"at {tick}"


# -- ticks and watermarks, without an engine --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return parse_catalog(CATALOG)


def test_ticks_are_the_union_of_boundaries(catalog: Catalog) -> None:
    joined = "s [RANGE 4 SECONDS SLIDE 2 SECONDS] AS a JOIN r [RANGE 9 SECONDS SLIDE 3 SECONDS] AS b ON a.k = b.k"
    sql = f"SELECT count(*) AS n FROM {joined}"
    windows = Windows.of(read_query(sql, catalog)[0])
    ticks = windows.ticks([(0, 7_000_000)], {})
    assert [t.at for t in ticks] == [instant(s * 1_000_000) for s in (2, 3, 4, 6)]
    assert ticks[1].boundaries == {"a": instant(2_000_000), "b": instant(3_000_000)}


def test_the_smallest_watermark_counts() -> None:
    marks = Watermarks({"a": 1, "b": 5}, {})
    assert marks.at({"a": 100}, {"a"}) is None, "b has not begun"
    assert marks.at({"a": 100, "b": 50}, {"a", "b"}) == 45


def test_a_silent_stream_is_reported_and_left_out_after_its_timeout() -> None:
    now = [0.0]
    marks = Watermarks({"a": 0, "b": 0}, {"b": 30.0}, lambda: now[0])
    assert marks.at({"a": 100, "b": 50}, {"a", "b"}) == 50
    now[0] = 20.0
    assert marks.at({"a": 200, "b": 50}, {"a"}) == 50
    assert marks.silent() == ["b"]
    now[0] = 31.0
    assert marks.at({"a": 300, "b": 50}, {"a"}) == 300
    assert marks.at({"a": 300, "b": 60}, {"b"}) == 60, "it counts again when it speaks"
