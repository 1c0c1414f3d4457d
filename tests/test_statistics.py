"""Estimates from samples against the truth, the statistics file, and what plans make of intervals."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from math import inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from connectors import sample_estimates as estimates
from connectors.sample_estimates import Side
from costmodel.flow import Source
from costmodel.spread import wilson
from optimizer.catalog import MAX_RATE, Catalog
from optimizer.histogram import Histogram
from optimizer.interests import interests
from optimizer.optimize import Options, optimize
from optimizer.sql.ddl import parse_catalog
from optimizer.statistics import (
    ColumnStatistics,
    HistogramStatistics,
    Measured,
    PredicateStatistics,
    RelationStatistics,
    Statistics,
    StatisticsError,
    declared_columns,
    read_statistics,
    statistics_path,
    with_statistics,
    write_statistics,
)
from service.catalogs import read_catalog

TEXT = """
CREATE STREAM a (ts TIMESTAMP, k INT, j INT, v DOUBLE, WATERMARK FOR ts AS ts) WITH (rate = 100);
CREATE TABLE t (k INT PRIMARY KEY, label INT) WITH (rows = 50);
CREATE STATISTICS ON a (k) WITH (distinct = 20);
CREATE STATISTICS ON a (v) WITH (min = 0, max = 100, nulls = 0.5);
CREATE STATISTICS ON a WHERE j = 1 WITH (selectivity = 0.4);
CREATE STATISTICS ON a WHERE j = 2 WITH (selectivity = 0.3);
"""
CATALOG = parse_catalog(TEXT)
WINDOW = "[RANGE 10 SECONDS SLIDE 2 SECONDS]"


# -- intervals cover the truth ----------------------------------------------------------------------------------------


def covered(truth: float, draw: Callable[[np.random.Generator], Measured | None], times: int = 300) -> float:
    """The share of seeded samples whose interval has the truth in it."""
    hits = 0
    for seed in range(times):
        found = draw(np.random.default_rng(seed))
        assert found is not None
        low = found.value if found.low is None else found.low
        high = found.value if found.high is None else found.high
        assert low <= found.value <= high
        hits += low <= truth <= high
    return hits / times


@given(truth=st.floats(0.03, 0.97), sample=st.integers(60, 5000), seed=st.integers(0, 10**6))
def test_wilson_covers_the_truth(truth: float, sample: int, seed: int) -> None:
    hits = np.random.default_rng(seed).binomial(sample, truth, 1000)
    inside = [(spread := wilson(int(h), sample)).low <= truth <= spread.high for h in hits]
    assert 0.9 <= np.mean(inside) <= 0.99


def test_wilson_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    inside = []
    for truth in np.linspace(0.02, 0.98, 49):
        for hits in rng.binomial(400, truth, 400):
            spread = wilson(int(hits), 400)
            inside.append(spread.low <= truth <= spread.high)
    assert np.mean(inside) == pytest.approx(0.95, abs=0.01)


@given(hits=st.integers(0, 50), more=st.integers(0, 50))
def test_wilson_stays_a_share(hits: int, more: int) -> None:
    spread = wilson(hits, hits + more)
    assert 0.0 <= spread.low <= spread.high <= 1.0
    if hits + more:
        assert spread.low <= hits / (hits + more) <= spread.high


def frequencies(values: NDArray[np.int64]) -> Counter[int]:
    return Counter(np.unique(values, return_counts=True)[1].tolist())


@pytest.mark.parametrize(("values", "sample"), [(100, 200), (500, 600), (2000, 3000), (2000, 12_000), (20, 400)])
def test_distinct_values_of_a_stream(values: int, sample: int) -> None:
    share = covered(values, lambda rng: estimates.distinct(frequencies(rng.integers(0, values, sample))))
    assert share >= 0.9


@pytest.mark.parametrize(("values", "rows", "sample"), [(500, 5000, 1000), (500, 2000, 1500), (3000, 6000, 2000)])
def test_distinct_values_of_a_table(values: int, rows: int, sample: int) -> None:
    table = np.arange(rows) % values
    share = covered(
        values, lambda rng: estimates.distinct(frequencies(rng.choice(table, sample, replace=False)), population=rows)
    )
    assert share >= 0.9


@given(st.lists(st.integers(0, 30), min_size=1, max_size=200))
def test_distinct_values_of_all_rows_are_exact(values: list[int]) -> None:
    found = estimates.distinct(Counter(Counter(values).values()), population=len(values))
    assert (found.value, found.low, found.high) == (len(set(values)), None, None)


@given(st.dictionaries(st.integers(1, 40), st.integers(1, 1000), min_size=1), st.none() | st.integers(0, 10**6))
def test_distinct_values_are_at_least_those_seen_and_at_most_the_rows(seen: dict[int, int], more: int | None) -> None:
    sample = sum(times * values for times, values in seen.items())
    found = estimates.distinct(seen, None if more is None else sample + more)
    assert sum(seen.values()) <= found.value
    if more is not None:
        assert found.value <= sample + more
    if found.low is not None and found.high is not None:
        assert found.low <= found.value <= found.high


def test_values_that_never_come_twice_have_no_upper_bound() -> None:
    assert covered(10**9, lambda rng: estimates.distinct(frequencies(rng.integers(0, 10**9, 5000)))) >= 0.9
    found = estimates.distinct({1: 5000})
    assert found.low is not None
    assert found.high is not None
    assert (found.low > 10**6, found.high) == (True, MAX_RATE)


def test_a_rate_of_random_arrivals() -> None:
    def arrivals(rng: np.random.Generator) -> Measured | None:
        return estimates.rate((rng.exponential(1 / 200, 6000).cumsum() * 1e6).astype(np.int64))

    assert covered(200, arrivals) >= 0.9


def test_a_rate_of_less_than_a_second() -> None:
    found = estimates.rate(np.arange(0, 500_000, 100))  # half a second, a tuple every 100 µs
    assert found is not None
    assert found.value == pytest.approx(10_000, rel=0.01)


def test_a_few_wrong_clocks_do_not_change_a_rate() -> None:
    times = np.concatenate([np.arange(0, 20_000_000, 1000), [10**14, -(10**14)]])
    found = estimates.rate(times)
    assert found is not None
    assert found.value == pytest.approx(1000, rel=0.01)


@pytest.mark.parametrize("times", [[], [5], [7, 7, 7]])
def test_no_rate_without_time(times: list[int]) -> None:
    assert estimates.rate(np.array(times, dtype=np.int64)) is None


def test_pairs_of_two_samples() -> None:
    def draw(rng: np.random.Generator) -> Measured | None:
        left, right = rng.integers(0, 40, 500), rng.integers(0, 40, 300)
        here, there = np.bincount(left, minlength=40).astype(float), np.bincount(right, minlength=40).astype(float)
        return estimates.pairs(
            float(here @ there),
            Side(500, False, float(here @ there**2)),
            Side(300, False, float(there @ here**2)),
        )

    assert covered(1 / 40, draw) >= 0.9


def test_pairs_of_one_stream_with_skewed_keys() -> None:
    weights = 1 / np.arange(1, 21)
    weights /= weights.sum()

    def draw(rng: np.random.Generator) -> Measured | None:
        return estimates.self_pairs(frequencies(rng.choice(20, 400, p=weights)), whole=False)

    assert covered(float((weights**2).sum()), draw) >= 0.9


# -- histograms -------------------------------------------------------------------------------------------------------

OPERATORS: dict[str, Callable[[NDArray[np.float64], float], NDArray[np.bool_]]] = {
    ">": lambda v, b: v > b,
    ">=": lambda v, b: v >= b,
    "<": lambda v, b: v < b,
    "<=": lambda v, b: v <= b,
}
VALUES = st.lists(st.integers(-20, 20) | st.floats(-1e6, 1e6), min_size=1, max_size=300)


def equi_depth(values: NDArray[np.float64], buckets: int) -> tuple[float, ...]:
    return tuple(np.quantile(values, np.linspace(0, 1, buckets + 1), method="inverted_cdf").tolist())


@given(values=VALUES, bound=st.integers(-21, 21) | st.floats(-1e6, 1e6), operator=st.sampled_from(sorted(OPERATORS)))
def test_a_histogram_is_off_by_less_than_a_bucket(values: list[float], bound: float, operator: str) -> None:
    sample, buckets = np.array(values, dtype=float), 20
    histogram = Histogram(equi_depth(sample, buckets), len(sample), whole=True)
    truth = float(OPERATORS[operator](sample, bound).mean())
    found, spread = histogram.share(bound, ">" in operator, "=" in operator)
    slack = 1 / len(sample) + 1e-9  # borders are values: their ranks are whole numbers
    assert abs(found - truth) <= 1 / buckets + slack
    assert spread.low - slack <= truth <= spread.high + slack
    assert spread.low <= found <= spread.high


def test_a_histogram_of_a_sample_covers_the_truth() -> None:
    inside = 0
    for seed in range(300):
        sample = np.random.default_rng(seed).normal(0, 1, 500)
        _, spread = Histogram(equi_depth(sample, 50), 500).share(1.0, upwards=True, inclusive=False)
        inside += spread.low <= 0.158655 <= spread.high
    assert inside / 300 >= 0.95


# -- the file ---------------------------------------------------------------------------------------------------------


def measured(value: float, low: float | None = None, high: float | None = None) -> Measured:
    return Measured(value=value, low=low, high=high, sample=1000)


def statistics(catalog: Catalog = CATALOG, **changes: object) -> Statistics:
    a = RelationStatistics(
        name="a",
        kind="stream",
        declared=declared_columns(catalog.streams["a"]),
        sample=1000,
        rate=measured(120, 110, 130),
        columns=(
            ColumnStatistics(columns=("k",), distinct=measured(25, 24, 27)),
            ColumnStatistics(columns=("k", "j"), distinct=measured(70, 60, 90)),
            ColumnStatistics(
                columns=("v",),
                minimum=0,
                maximum=100,
                nulls=measured(0.0, 0.0, 0.004),
                histogram=HistogramStatistics(borders=(0, 10, 20, 100), sample=1000, whole=False),
            ),
        ),
        predicates=(
            PredicateStatistics(relations=("a",), predicate='"a"."j" = 1', share=measured(0.2, 0.18, 0.22)),
            PredicateStatistics(relations=("a", "t"), predicate='"a"."k" = "t"."k"', share=measured(0.02, 0.01, 0.03)),
        ),
    )
    return Statistics(made="2026-01-01T00:00:00+00:00", catalog="", relations=(a.model_copy(update=changes),))


MERGED = with_statistics(CATALOG, statistics(), "x.stats.json")


def estimate(sql: str, what: str, catalog: Catalog = MERGED, **rates: float) -> tuple[float, str]:
    found = {e.what: e for e in optimize(sql, catalog, Options(rates=rates)).estimates}
    return round(found[what].value, 6), found[what].source.label


COUNT = f"SELECT k, count(*) AS n FROM a {WINDOW} AS p WHERE "


def test_measured_figures_beat_the_catalog_and_overrides_beat_both() -> None:
    assert estimate(COUNT + "j = 1 GROUP BY k", "rate of a", CATALOG) == (100, "catalog")
    assert estimate(COUNT + "j = 1 GROUP BY k", "rate of a") == (120, "analyzed")
    assert estimate(COUNT + "j = 1 GROUP BY k", "rate of a", a=77) == (77, "override")
    assert estimate(COUNT + "j = 1 GROUP BY k", "p.j = 1") == (0.2, "analyzed")
    assert estimate(COUNT + "j = 1 GROUP BY k", "distinct k of a") == (25, "analyzed")


def test_what_was_not_measured_stays_as_the_catalog_has_it() -> None:
    assert estimate(COUNT + "j = 2 GROUP BY k", "p.j = 2") == (0.3, "catalog")
    assert MERGED.tables == CATALOG.tables


def test_histograms_replace_the_line_between_smallest_and_largest() -> None:
    assert estimate(COUNT + "v > 20 GROUP BY k", "p.v > 20", CATALOG) == (0.4, "catalog")  # 0.8 of those not NULL
    assert estimate(COUNT + "v > 20 GROUP BY k", "p.v > 20") == (0.333333, "analyzed")


def test_both_ends_of_a_range_count_nulls_once() -> None:
    (flow,) = (
        o for o in optimize(COUNT + "v > 20 AND v < 60 GROUP BY k", CATALOG).plan.operators if o.kind == "select"
    )
    assert flow.rate_out == pytest.approx(100 * 0.5 * 0.4)


def test_join_selectivities_are_used_and_named() -> None:
    sql = f"SELECT count(*) AS n FROM a {WINDOW} AS p JOIN t ON p.k = t.k"
    assert estimate(sql, "a.k = t.k") == (0.02, "analyzed")


@pytest.mark.parametrize(
    ("function", "value", "share"), [("avg(v)", "p.v", 0.5), ("avg(j)", "p.v", 1 / 3), ("max(v)", "p.v", 1 / 3)]
)
def test_half_of_the_values_are_above_their_mean(function: str, value: str, share: float) -> None:
    inner = f"SELECT k, {function} AS x FROM a {WINDOW} AS q GROUP BY k"
    sql = f"SELECT count(*) AS n FROM a {WINDOW} AS p JOIN ({inner}) AS m ON p.k = m.k WHERE {value} > m.x"
    (found,) = (e.value for e in optimize(sql, CATALOG).estimates if "p.v" in e.what)
    assert found == pytest.approx(share)


def test_one_figure_has_one_name_under_any_alias() -> None:
    sql = f"SELECT count(*) AS n FROM a {WINDOW} AS p JOIN a {WINDOW} AS q ON p.k = q.k WHERE p.j = 1 AND q.j = 1"
    found = {e.what: e.name for e in optimize(sql, MERGED).estimates}
    assert found["p.j = 1"] == found["q.j = 1"] == "j = 1 of a"


def test_a_measured_rate_does_not_change_what_a_generator_makes() -> None:
    assert MERGED.streams["a"].offered == 100
    assert MERGED.with_rates({"a": 5.0}).streams["a"].offered == 5


def test_the_file_is_found_beside_its_catalog(tmp_path: Path) -> None:
    catalog = tmp_path / "shop.sql"
    catalog.write_text(TEXT)
    write_statistics(statistics_path(catalog), statistics())
    assert read_statistics(tmp_path / "shop.stats.json") == statistics()
    rate = read_catalog(catalog).streams["a"].rate
    assert rate is not None
    assert (rate.value, rate.source) == (120, Source.ANALYZED)
    assert read_catalog(catalog, statistics=False).streams["a"].rate == CATALOG.streams["a"].rate


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("k INT, j INT", "k INT, j BIGINT"), "k INT, j INT"),
        (("v DOUBLE,", "v DOUBLE, w DOUBLE,"), "w DOUBLE"),
        (("STREAM a (", "STREAM b ("), "no stream a"),
    ],
)
def test_a_stale_file_is_refused(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    catalog = tmp_path / "shop.sql"
    catalog.write_text(TEXT.split("CREATE STATISTICS")[0].replace(*change))
    write_statistics(statistics_path(catalog), statistics())
    with pytest.raises(StatisticsError) as refusal:
        read_catalog(catalog)
    for part in ("shop.stats.json is stale", words, "penstock analyze", "--no-statistics"):
        assert part in str(refusal.value)
    assert read_catalog(catalog, statistics=False)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"version": 2}', "\x00"])
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.stats.json"
    path.write_text(text)
    with pytest.raises(StatisticsError, match=r"x\.stats\.json"):
        read_statistics(path)


def test_a_number_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.stats.json"
    document = json.loads(statistics().model_dump_json())
    document["relations"][0]["rate"]["value"] = inf
    path.write_text(json.dumps(document))
    with pytest.raises(StatisticsError, match="rate"):
        read_statistics(path)


# -- what queries want to know ----------------------------------------------------------------------------------------


def test_keys_are_followed_through_aggregates_to_their_stream() -> None:
    sql = f"""
        SELECT p.k, count(*) AS n FROM a {WINDOW} AS p
        JOIN (
            SELECT q.k AS key, q.j AS other, max(q.v) AS top FROM a {WINDOW} AS q WHERE q.v > 5 GROUP BY q.k, q.j
        ) AS m ON p.k = m.key AND p.j = m.other JOIN t ON p.k = t.k
        WHERE p.j = 1 AND p.v > 0.5 * m.top GROUP BY p.k
    """
    found = interests(CATALOG, [sql])
    assert ("a", frozenset({"k", "j"})) in found.groups
    assert {(s.relation, s.predicate.sql()) for s in found.selections} >= {("a", '"a"."v" > 5'), ("a", '"a"."j" = 1')}
    assert found.compared == {("a", "v")}
    assert {(j.left, j.right) for j in found.joins} == {("a", "t")}


def test_without_queries_every_column_is_of_interest() -> None:
    found = interests(CATALOG, [])
    assert found.compared is None
    assert found.groups_of("a") == [("j",), ("k",), ("v",)]
    assert found.groups_of("t") == [("k",), ("label",)]
