"""Values beside an aggregate of their group: what `penstock analyze` finds in a sample, and what is true of windows.

Every group has a level of its own, and its values lie evenly between 0.7 and 1.3 times that. So of a long window 0.13
of 0.6 are above 0.9 times the largest, and half above the mean, whatever the group.
"""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pyarrow as pa
import pytest

from connectors.sample_figures import Sample, SampledFigures
from optimizer.estimate import Estimator
from optimizer.interests import interests
from optimizer.optimize import read_query
from optimizer.sql.ddl import parse_catalog
from optimizer.statistics import PredicateStatistics

CATALOG = parse_catalog(
    "CREATE STREAM s (ts TIMESTAMP, k INT, kind INT, v DOUBLE, WATERMARK FOR ts AS ts) WITH (rate = 10);"
)
ABOVE_MAXIMUM = 0.13 / 0.6


def query(function: str, predicate: str, inner: str = "q.kind = 1", keys: str = "p.k = m.k") -> str:
    return (
        f"SELECT p.k, count(*) AS n FROM s [RANGE 5 MINUTES SLIDE 1 SECOND] AS p JOIN (SELECT q.k, {function} AS x "
        f"FROM s [RANGE 5 MINUTES SLIDE 1 SECOND] AS q WHERE {inner} GROUP BY q.k) AS m ON {keys} "
        f"WHERE p.kind = 1 AND {predicate} GROUP BY p.k"
    )


def sample(groups: int, each: int) -> Sample:
    """Tuples of the other kind have values that would be the largest."""
    random = np.random.default_rng(7)
    k = np.tile(np.arange(groups), each)
    kind = random.integers(0, 2, len(k))
    v = np.where(kind == 1, (1 + k) * random.uniform(0.7, 1.3, len(k)), 1e6)
    times = pa.array([datetime(2026, 1, 1)] * len(k), pa.timestamp("us"))
    columns = {"ts": times, "k": pa.array(k, pa.int32()), "kind": pa.array(kind, pa.int32()), "v": pa.array(v)}
    return Sample(CATALOG.streams["s"], pa.table(columns))


def comparisons(sql: str, of: Sample) -> list[PredicateStatistics]:
    figures = SampledFigures([of], interests(CATALOG, [sql]))
    try:
        (found,) = figures.statistics()
    finally:
        figures.close()
    return [p for p in found.predicates if "(" in p.predicate]


@pytest.mark.parametrize(
    ("function", "predicate", "truth"),
    [
        ("MAX(q.v)", "p.v > 0.9 * m.x", ABOVE_MAXIMUM),
        ("MAX(q.v)", "m.x * 0.9 < p.v", ABOVE_MAXIMUM),
        ("MIN(q.v)", "p.v < 1.1 * m.x", 0.07 / 0.6),
        ("AVG(q.v)", "p.v > m.x", 0.5),
    ],
)
def test_a_sample_tells_what_is_true_of_windows(function: str, predicate: str, truth: float) -> None:
    (found,) = comparisons(query(function, predicate), sample(300, 60))
    assert found.share.value == pytest.approx(truth, rel=0.1)
    assert found.share.sample > 8_000
    assert "kind" not in found.predicate


def test_what_was_found_is_used_by_the_next_plan() -> None:
    sql = query("MAX(q.v)", "p.v > 0.9 * m.x")
    (found,) = comparisons(sql, sample(300, 60))
    declared = parse_catalog(
        "CREATE STREAM s (ts TIMESTAMP, k INT, kind INT, v DOUBLE, WATERMARK FOR ts AS ts) WITH (rate = 10);"
        f"CREATE STATISTICS ON s WHERE {found.predicate} WITH (selectivity = {found.share.value});"
    )
    plan, _ = read_query(sql, declared)
    estimator = Estimator.of(plan, declared)
    assert isinstance(estimator.flow(plan.input).size, float)
    assert found.share.value in {note.value for note in estimator.notes.values()}


@pytest.mark.parametrize(
    ("sql", "of"),
    [
        (query("MAX(q.v)", "p.v > 0.9 * m.x"), sample(1000, 5)),  # too few of each group
        (query("MAX(q.v)", "p.v > 0.9 * m.x", inner="q.kind = 0"), sample(300, 60)),  # of other tuples
        (query("MAX(q.v)", "p.v > 0.9 * m.x", keys="p.kind = m.k"), sample(300, 60)),  # of another group
        (query("MAX(q.v)", "p.v > 0.9 * m.x + p.k / 0", keys="p.k = m.k + 1"), sample(300, 60)),
    ],
)
def test_nothing_is_said_where_the_sample_does_not_tell(sql: str, of: Sample) -> None:
    assert comparisons(sql, of) == []
