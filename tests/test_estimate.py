"""Rates, sizes and selectivities against numbers worked out by hand."""

from __future__ import annotations

import pytest

from costmodel.flow import Flow, Source
from optimizer.algebra import Aggregate, Join, Node, Select, Window, post_order
from optimizer.estimate import Estimator
from optimizer.optimize import read_query
from optimizer.sql.ddl import parse_catalog

CATALOG = """
CREATE STREAM a (ts TIMESTAMP, k INT, j INT, v DOUBLE, WATERMARK FOR ts AS ts) WITH (rate = 100);
CREATE STREAM b (ts TIMESTAMP, k INT, w DOUBLE, WATERMARK FOR ts AS ts) WITH (rate = 10);
CREATE TABLE t (k INT PRIMARY KEY, label INT) WITH (rows = 50);
CREATE STATISTICS ON a (k) WITH (distinct = 20);
CREATE STATISTICS ON a (j) WITH (distinct = 5);
CREATE STATISTICS ON a (v) WITH (min = 0, max = 100);
CREATE STATISTICS ON a WHERE j = 1 WITH (selectivity = 0.4);
CREATE STATISTICS ON b (k) WITH (distinct = 40);
"""
W = "[RANGE 10 SECONDS SLIDE 2 SECONDS]"


def flows(sql: str, kind: type[Node], more: str = "") -> list[Flow]:
    catalog = parse_catalog(CATALOG + more)
    plan, _ = read_query(sql, catalog)
    estimator = Estimator.of(plan, catalog)
    return [estimator.flow(n) for n in post_order(plan.input) if isinstance(n, kind)]


def test_windows() -> None:
    (flow,) = flows(f"SELECT sum(v) AS x FROM a {W}", Window)
    assert (flow.rate, flow.size, flow.width) == (100, 1000, 16)  # 100/s for 10 s; ts and v
    (flow,) = flows("SELECT sum(v) AS x FROM a [ROWS 70 SLIDE 10]", Window)
    assert (flow.rate, flow.size) == (100, 70)


@pytest.mark.parametrize(
    ("predicate", "share", "source"),
    [
        ("j = 1", 0.4, Source.CATALOG),  # declared
        ("k = 7", 1 / 20, Source.CATALOG),  # one of twenty values
        ("k <> 7", 19 / 20, Source.CATALOG),
        ("v > 75", 0.25, Source.CATALOG),  # linear between 0 and 100
        ("v BETWEEN 20 AND 50", 0.3, Source.CATALOG),
        ("v > 10 AND v > 20 AND v <= 50", 0.3, Source.CATALOG),
        ("v > 60 AND v < 40", 0.0, Source.CATALOG),
        ("k IN (1, 2, 3)", 3 / 20, Source.CATALOG),
        ("v > 75 AND k = 7", 0.25 / 20, Source.CATALOG),
        ("(v > 75 OR k = 7)", 0.25 + 0.05 - 0.0125, Source.CATALOG),
    ],
)
def test_selections(predicate: str, share: float, source: Source) -> None:
    (flow,) = flows(f"SELECT count(*) AS n FROM a {W} WHERE {predicate}", Select)
    assert flow.rate == pytest.approx(100 * share)
    assert flow.size == pytest.approx(1000 * share)
    assert flow.source is source


def test_slide_driven_join() -> None:
    (flow,) = flows(f"SELECT count(*) AS n FROM a {W} AS a JOIN b {W} AS b ON a.k = b.k", Join)
    assert flow.size == pytest.approx(1000 * 100 / 40)  # 1/max of the distinct keys
    assert flow.rate == pytest.approx(flow.size / 2)  # a tick every two seconds


def test_tuple_driven_join() -> None:
    (flow,) = flows("SELECT a.v, b.w FROM a [RANGE 10 SECONDS] AS a JOIN b [RANGE 20 SECONDS] AS b ON a.k = b.k", Join)
    assert flow.rate == pytest.approx((100 * 200 + 10 * 1000) / 40)


def test_join_with_a_table_keeps_every_match() -> None:
    (flow,) = flows(f"SELECT count(*) AS n FROM a {W} AS a JOIN t ON a.k = t.k", Join)
    assert flow.size == pytest.approx(1000 * 50 / 50)


def test_left_join_keeps_every_left_tuple() -> None:
    (flow,) = flows(f"SELECT count(*) AS n FROM a {W} AS a LEFT JOIN b {W} AS b ON a.k = b.k AND b.w = 1", Join)
    assert flow.size >= 1000


def test_groups() -> None:
    (flow,) = flows(f"SELECT k, j, count(*) AS n FROM a {W} GROUP BY k, j", Aggregate)
    assert (flow.size, flow.rate) == (100, 50)  # 20 x 5 groups, every two seconds
    (flow,) = flows("SELECT k, j, count(*) AS n FROM a [ROWS 30 SLIDE 10] GROUP BY k, j", Aggregate)
    assert (flow.size, flow.rate) == (30, 300)  # never more groups than tuples; a tick every ten tuples
    (flow,) = flows(f"SELECT count(*) AS n FROM a {W}", Aggregate)
    assert (flow.size, flow.rate) == (1, 0.5)


def test_a_joint_figure_is_preferred() -> None:
    joint = "CREATE STATISTICS ON a (k, j) WITH (distinct = 60);"
    (flow,) = flows(f"SELECT k, j, count(*) AS n FROM a {W} GROUP BY k, j", Aggregate, joint)
    assert flow.size == 60


def test_ticks_of_different_slides() -> None:
    a, b = "a [RANGE 9 SECONDS SLIDE 3 SECONDS] AS a", "b [RANGE 8 SECONDS SLIDE 2 SECONDS] AS b"
    (flow,) = flows(f"SELECT count(*) AS n FROM {a} JOIN {b} ON a.k = b.k", Aggregate)
    assert flow.rate == pytest.approx(1 / 3 + 1 / 2 - 1 / 6)


@pytest.mark.parametrize(
    ("function", "predicate", "declared", "share"),
    [
        ("MAX(v)", "a.v > 0.9 * m.x", "v > 0.9 * MAX(v)", 0.2),  # the declared one
        ("MAX(v)", "a.v > 0.9 * m.x", "0.9 * MAX(v) < v", 0.2),
        ("MAX(v)", "a.v > 0.8 * m.x", "v > 0.9 * MAX(v)", 1 / 3),  # another one: a guess
        ("MIN(v)", "a.v > 0.9 * m.x", "v > 0.9 * MAX(v)", 1 / 3),
        ("AVG(v)", "a.v > m.x", "v > 0.9 * MAX(v)", 0.5),  # half of the values are above their mean
        ("AVG(v)", "a.v > m.x", "v > AVG(v)", 0.2),
    ],
)
def test_a_value_beside_an_aggregate_of_its_group(function: str, predicate: str, declared: str, share: float) -> None:
    sql = (
        f"SELECT a.k, count(*) AS n FROM a {W} JOIN (SELECT k, {function} AS x FROM a {W} AS q GROUP BY k) AS m "
        f"ON a.k = m.k WHERE {predicate} GROUP BY a.k"
    )
    (flow,) = flows(sql, Join, f"CREATE STATISTICS ON a WHERE {declared} WITH (selectivity = 0.2);")
    assert flow.size == pytest.approx(1000 * share)  # every tuple of the window meets the one of its group
    assert flow.source is (Source.CATALOG if share == 0.2 else Source.DEFAULT)
