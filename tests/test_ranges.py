"""How certain a plan is: ranges of its costs, and the figures on which the choice hangs."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from math import inf

import pytest
from fastapi.testclient import TestClient

from costmodel.flow import Source
from costmodel.spread import Spread
from optimizer.catalog import Catalog, Figure
from optimizer.explain.api import explain
from optimizer.explain.ranges import Ranges, ranges
from optimizer.hints import Hints
from optimizer.optimize import Optimized, Options, optimize
from optimizer.sql.ddl import parse_catalog
from service.api import create_app

TEXT = """
CREATE STREAM plugs (ts TIMESTAMP, k INT, v DOUBLE, WATERMARK FOR ts AS ts) WITH (rate = 100000);
CREATE STATISTICS ON plugs (k) WITH (distinct = 2000);
CREATE STATISTICS ON plugs WHERE v > 3000 WITH (selectivity = 0.5);
"""
W = "[RANGE 10 SECONDS SLIDE 1 SECOND]"
SQL = f"SELECT count(*) AS n FROM plugs {W} AS p JOIN plugs {W} AS q ON p.k = q.k WHERE p.v > 3000"
FIGURE = "v > 3000 of plugs"


def known(share: float, low: float | None = None, high: float | None = None) -> Catalog:
    """The catalog with this share of the selection, measured where it has an interval."""
    catalog = parse_catalog(TEXT)
    plugs = catalog.streams["plugs"]
    spread = None if low is None or high is None else Spread(low, high, 1000)
    figure = Figure(share, Source.ANALYZED if spread else Source.CATALOG, spread)
    changed = replace(plugs, selectivities=(replace(plugs.selectivities[0], share=figure),))
    return replace(catalog, streams={"plugs": changed})


def at(share: float) -> Optimized:
    return optimize(SQL, known(share))


@pytest.fixture(scope="module")
def border() -> tuple[float, float]:
    """Two shares with different best plans, and clearly so."""
    shares = [0.001 * 1.3**i for i in range(27)]
    plans = [at(share).plan.signature() for share in shares]
    below, above = next((a, b) for (a, p), (b, q) in pairwise(zip(shares, plans, strict=True)) if p != q)
    return below / 1.5, min(above * 1.5, 0.99)


def found(share: float, low: float, high: float) -> tuple[Optimized, Ranges]:
    optimized = optimize(SQL, known(share, low, high))
    result = ranges(optimized)
    assert result is not None
    return optimized, result


def test_the_figure_on_which_the_choice_hangs_is_named(border: tuple[float, float]) -> None:
    below, above = border
    optimized, result = found(below, below * 0.99, above)
    (doubt,) = result.doubts
    assert (doubt.figure, doubt.upwards) == (FIGURE, True)
    assert below < doubt.value <= above
    assert at(doubt.value).plan.signature() == doubt.other.signature()
    before = doubt.value - (above - below) / 2**9  # the border is found to a thousandth of the interval
    force = Hints({o.id: o.where for o in optimized.plan.operators})
    kept = optimize(SQL, known(before), Options(hints=force)).plan.cost.utilization
    assert kept <= at(before).plan.cost.utilization * 1.001  # no other plan is clearly cheaper there
    assert doubt.better < doubt.kept
    moved = {o.id for o, p in zip(optimized.plan.operators, doubt.other.operators, strict=True) if o.where != p.where}
    assert moved
    assert all(any(name in words for words in doubt.moves) for name in moved)


def test_it_hangs_downwards_as_well(border: tuple[float, float]) -> None:
    below, above = border
    _, result = found(above, below, above * 1.01)
    (doubt,) = result.doubts
    assert not doubt.upwards
    assert below <= doubt.value < above


def test_a_choice_that_hangs_on_nothing_is_certain(border: tuple[float, float]) -> None:
    below, _ = border
    share = below / 10
    assert at(share * 0.98).plan.signature() == at(share).plan.signature() == at(share * 1.02).plan.signature()
    _, result = found(share, share * 0.98, share * 1.02)
    assert result.doubts == ()
    text = explain(SQL, known(share, share * 0.98, share * 1.02), ranges=True)
    assert "certain    the same plan wins at both ends of the one uncertain figure" in text
    assert "not certain" not in text


def test_the_range_of_one_figure_goes_from_end_to_end() -> None:
    optimized, result = found(0.1, 0.05, 0.3)
    force = {o.id: o.where for o in optimized.plan.operators}
    for end, cost in ((0.05, result.utilization.low), (0.3, result.utilization.high)):
        same = optimize(SQL, known(end), Options(hints=Hints(force)))
        assert same.plan.signature() == optimized.plan.signature()
        assert cost == pytest.approx(same.plan.cost.utilization)


def test_independent_errors_add_up_by_their_squares() -> None:
    _, one = found(0.1, 0.05, 0.3)
    catalog = known(0.1, 0.05, 0.3)
    rate = Figure(100_000, Source.ANALYZED, Spread(90_000, 110_000, 1000))
    faster = replace(catalog, streams={"plugs": replace(catalog.streams["plugs"], rate=rate)})
    only_rate = known(0.1)
    only_rate = replace(only_rate, streams={"plugs": replace(only_rate.streams["plugs"], rate=rate)})
    both, other = ranges(optimize(SQL, faster)), ranges(optimize(SQL, only_rate))
    assert both is not None
    assert other is not None
    now = at(0.1).plan.cost.utilization
    parts = (one.utilization.high - now, other.utilization.high - now)
    assert both.utilization.high - now == pytest.approx((parts[0] ** 2 + parts[1] ** 2) ** 0.5)
    assert both.uncertain == 2


def test_a_plan_that_may_fall_behind_is_told() -> None:
    catalog = known(0.1)
    limit = next(rate for rate in (2.0**i for i in range(10, 40)) if not _keeps_up(catalog, rate)) / 2
    rate = Figure(limit, Source.ANALYZED, Spread(limit, limit * 4, 1000))
    unsure = replace(catalog, streams={"plugs": replace(catalog.streams["plugs"], rate=rate)})
    assert "not certain: Cb may exceed 1" in explain(SQL, unsure, ranges=True)


def _keeps_up(catalog: Catalog, rate: float) -> bool:
    return optimize(SQL, catalog, Options(rates={"plugs": rate})).plan.cost.feasible


@pytest.mark.parametrize(
    "sql", [SQL, SQL.replace(W, "[ROWS 1000 SLIDE 10]"), f"SELECT v FROM plugs {W} WHERE v > 3000"]
)
def test_intervals_that_begin_at_nothing(sql: str) -> None:
    catalog = known(0.0, 0.0, 1.0)
    rate = Figure(1.0, Source.ANALYZED, Spread(1e-6, 1e9, 1000))
    unsure = replace(catalog, streams={"plugs": replace(catalog.streams["plugs"], rate=rate)})
    result = ranges(optimize(sql, unsure))
    assert result is not None
    for spread in (result.bottleneck, result.utilization):
        assert 0 <= spread.low < spread.high < inf
    json.loads(explain(sql, unsure, format="json", ranges=True))


def test_known_figures_have_no_range() -> None:
    assert ranges(at(0.5)) is None
    assert explain(SQL, TEXT, ranges=True) == explain(SQL, TEXT)


def test_an_override_is_taken_at_its_word() -> None:
    catalog = known(0.5)
    rate = Figure(100_000, Source.ANALYZED, Spread(90_000, 110_000, 1000))
    sampled = replace(catalog, streams={"plugs": replace(catalog.streams["plugs"], rate=rate)})
    assert ranges(optimize(SQL, sampled)) is not None
    assert ranges(optimize(SQL, sampled, Options(rates={"plugs": 100_000.0}))) is None


def test_a_guess_may_be_wrong_by_a_factor_of_three() -> None:
    guess = SQL.replace("p.v > 3000", "p.v > 5 + q.v")
    text = explain(guess, TEXT, ranges=True)
    assert "(0.111 … 1, a guess)" in text
    assert "a guess" not in explain(guess, TEXT)
    result = ranges(optimize(guess, TEXT))
    assert result is not None
    assert result.utilization.low < result.utilization.high


def test_one_figure_under_two_aliases_is_one_uncertainty() -> None:
    _, once = found(0.1, 0.05, 0.2)
    twice = ranges(optimize(f"{SQL} AND q.v > 3000", known(0.1, 0.05, 0.2)))
    assert twice is not None
    assert once.uncertain == twice.uncertain == 1


def test_the_document_has_it_where_it_was_asked_for(border: tuple[float, float]) -> None:
    below, above = border
    catalog = known(below, below * 0.99, above)
    document = json.loads(explain(SQL, catalog, format="json", ranges=True))
    (doubt,) = document["ranges"]["doubts"]
    assert doubt["figure"] == FIGURE
    assert f"if {FIGURE} keeps" in doubt["text"]
    (estimate,) = (e for e in document["estimates"] if e["what"] == "p.v > 3000")
    assert (estimate["low"], estimate["high"], estimate["sample"]) == (below * 0.99, above, 1000)
    assert json.loads(explain(SQL, catalog, format="json"))["ranges"] is None


def test_over_rest_only_where_asked(border: tuple[float, float]) -> None:
    below, above = border
    with TestClient(create_app({"plugs": known(below, below * 0.99, above)})) as client:
        body = {"sql": SQL, "catalog_name": "plugs"}
        assert client.post("/v1/plans", json=body).json()["plan"]["ranges"] is None
        asked = client.post("/v1/plans", json={**body, "ranges": True}).json()["plan"]
        assert asked["ranges"]["doubts"][0]["figure"] == FIGURE
