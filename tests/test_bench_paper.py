"""The benches of paper 001: trials over windows that are filled once, curves, figures of merit, pictures, the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from time import monotonic

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from connectors.spark.sliding import Form
from migration import prefill
from migration.deployment import Deployment
from migration.metrics import BatchReport
from optimizer.errors import PenstockError
from optimizer.optimize import Optimized
from optimizer.physical import PhysicalPlan, Where
from optimizer.pinned import everywhere, placed
from service.bench import (
    accuracy,
    crossover,
    decision,
    figure5,
    figure6,
    paper,
    pictures,
    quick,
    table2,
    verdicts,
    window_slide,
)
from service.bench.curve import COARSE, GRID, Basis, Point, Reading, bracket, maximum, next_rate, throughput, u_at
from service.bench.fills import Fills
from service.bench.kept import Kept, keep, known
from service.bench.lab import Job, Lab, OutOfTime
from service.bench.live import START, Workload, deployed
from service.bench.paper import Run, ratio
from service.bench.paper_report import render
from service.bench.plans import Kind, Query, candidate, in_spark, planned_at, predicted
from service.bench.trial import How, Limits, Trial, measure_u
from service.bench.verdicts import AtRate, Case, Maximum, Measured
from service.cli import app
from tests.postgres_server import postgres_url

RATE = 500.0
QUICKLY = Limits(
    batch=1.0, measured=2, most=3, slow=60.0, give_up=60.0, starting=120.0
)  # other work may run beside a test


def _short(name: str) -> Query:
    """An example with windows of seconds instead of minutes."""
    sql = Query.example(name).sql
    return Query(name, sql.replace("5 MINUTES", "20 SECONDS").replace("1 MINUTE", "5 SECONDS"))


def _selections_in_spark(optimized: Optimized) -> PhysicalPlan:
    return placed(optimized, [o.kind != "select" for o in optimized.plan.operators])


@pytest.fixture(scope="module")
def fills(spark: SparkSession) -> Iterator[Fills]:
    found = Fills(spark, postgres_url())
    yield found
    found.close()


# -- trials -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("database", ["duckdb", "postgres"])
def test_a_trial_has_its_batches_and_ticks(fills: Fills, database: str) -> None:
    query = _short("cq4")
    found = measure_u(fills, query.at(RATE), query.optimized(RATE, database).plan, How.PANE, QUICKLY)
    assert 0.0 < found.u < 60.0
    assert not found.censored
    assert found.filled
    assert len(found.batches) == 2
    assert found.ticks == 2
    assert found.u * QUICKLY.batch == pytest.approx(sum(found.batches) / 2)
    assert 0.0 < sum(found.shares.values()) <= found.u * 1.01


def test_a_trial_that_ends_with_its_first_batch_that_counts_has_a_time(fills: Fills) -> None:
    query = _short("cq5")
    plan = query.optimized(RATE, "duckdb").plan
    found = measure_u(fills, query.at(RATE), plan, How.PANE, replace(QUICKLY, measured=1, slow=0.0))
    assert len(found.batches) == 1
    assert found.u > 0.0


@pytest.mark.slow
def test_a_native_trial_has_empty_windows(fills: Fills) -> None:
    query = _short("cq4")
    plan = everywhere(query.optimized(RATE, "duckdb"), Where.SPE)
    found = measure_u(fills, query.at(RATE), plan, How.NATIVE, QUICKLY)
    assert found.u > 0.0
    assert not found.filled
    assert len(found.batches) == 2


@pytest.mark.slow
def test_a_batch_that_takes_too_long_is_given_up(fills: Fills) -> None:
    query = _short("cq1")
    hopeless = replace(QUICKLY, give_up=0.05, starting=0.0)
    many_jobs = everywhere(query.optimized(RATE, "duckdb"), Where.SPE)  # so that one is there to be cancelled
    found = measure_u(fills, query.at(RATE), many_jobs, How.PANE, hopeless)
    assert found.censored
    assert found.u >= 0.05
    # and what runs next is not touched by it
    again = measure_u(fills, query.at(RATE), query.optimized(RATE, "duckdb").plan, How.PANE, QUICKLY)
    assert not again.censored


# -- windows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "database", "where"),
    [
        ("cq1", "duckdb", None),
        pytest.param("cq1", "duckdb", Where.SPE, marks=pytest.mark.slow),
        pytest.param("cq4", "duckdb", Where.SPE, marks=pytest.mark.slow),
        pytest.param("cq4", "postgres", Where.DB, marks=pytest.mark.slow),
    ],
)
def test_copied_windows_are_those_of_a_fresh_fill(fills: Fills, name: str, database: str, where: Where | None) -> None:
    query = _short(name)
    optimized = query.optimized(RATE, database)
    plan = everywhere(optimized, where) if where else _selections_in_spark(optimized)
    workload = replace(query.at(RATE), pace="full", batch_seconds=1.0, limit=3.0)
    fresh = _fresh(fills, workload, plan)
    copies = [_copied(fills, workload, plan) for _ in range(2)]  # the second is of what the first was made from
    assert len(fresh) == 2
    assert all(fresh.values())
    assert copies == [fresh, fresh]


Rows = dict[datetime, list[tuple[object, ...]]]


def _fresh(fills: Fills, workload: Workload, plan: PhysicalPlan) -> Rows:
    reports: list[BatchReport] = []
    url = fills.url if plan.database == "postgres" else None
    with deployed(fills.spark, workload, plan, reports, 20.0, url=url) as deployment:
        deployment.settings = replace(deployment.settings, trigger=None)
        deployment.start()
        deployment.wait()
        return _rows(deployment.settings.state.parent / "out")


def _copied(fills: Fills, workload: Workload, plan: PhysicalPlan) -> Rows:
    with fills.deployed(workload, plan, Form.PANE, lambda report: None) as deployment:
        deployment.start()
        deployment.wait()
        return _rows(deployment.settings.state.parent / "out")


def _rows(directory: Path) -> Rows:
    """By tick, in order; averages to what the order of their summands leaves of them."""
    found: Rows = {}
    for path in sorted(directory.glob("*.parquet")):
        for row in zip(*(c.to_pylist() for c in pq.read_table(path).columns), strict=True):
            rounded = tuple(round(v, 6) if isinstance(v, float) else v for v in row[1:])
            found.setdefault(row[0], []).append(rounded)
    return {tick: sorted(rows, key=str) for tick, rows in found.items()}


@pytest.mark.parametrize("database", ["duckdb", "postgres"])
def test_a_window_in_a_database_is_its_last_seconds_again_and_again(
    fills: Fills, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefill, "PART", 1_000)
    query = _short("cq5")
    plan = _selections_in_spark(query.optimized(RATE, database))
    url = fills.url if database == "postgres" else None
    with deployed(fills.spark, query.at(RATE), plan, [], 20.0, url=url) as deployment:
        assert isinstance(deployment, Deployment)
        ((name, _),) = deployment.batches.stores.items()
        sql = f"SELECT ts, value FROM {name} ORDER BY ts"
        schema = pa.schema([("ts", pa.timestamp("us")), ("value", pa.float64())])
        found = deployment.database.query(sql, {}, schema).to_pylist()
    assert len(found) == 20 * RATE / 2
    assert found[0]["ts"] == START - timedelta(seconds=20) + timedelta(seconds=1 / RATE)
    apart = {later["ts"] - one["ts"] for one, later in pairwise(found)}
    assert apart == {timedelta(seconds=2 / RATE)}
    values = [row["value"] for row in found]
    assert values[:500] == values[500:1000] == values[-500:]
    assert len(set(values[:500])) > 400


def test_partial_results_in_spark_are_those_of_the_last_seconds_again_and_again(
    fills: Fills, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefill, "PART", 1_000)
    query = _short("cq5")
    plan = everywhere(query.optimized(RATE, "duckdb"), Where.SPE)
    with deployed(fills.spark, query.at(RATE), plan, [], 20.0) as deployment:
        assert isinstance(deployment, Deployment)
        ((name, schema),) = deployment.evaluator.state_schemas.items()
        kept = deployment.evaluator.state.read(name, schema)
        assert kept is not None
        rows: dict[datetime, list[str]] = {}
        for row in kept.collect():
            rows.setdefault(row["_bucket"], []).append(str([v for k, v in row.asDict().items() if k != "_bucket"]))
    length = timedelta(seconds=3)  # an eighth of 20 seconds, in whole slides
    assert sorted(rows) == [START - 8 * length + timedelta(seconds=i) for i in range(24)]
    assert all(sorted(rows[at]) == sorted(rows[at - length]) for at in rows if at - length in rows)
    assert len({str(sorted(own)) for own in rows.values()}) == 3


def test_windows_are_made_once_for_queries_that_keep_the_same(fills: Fills) -> None:
    one = Fills(fills.spark)
    try:
        for name in ("cq1", "cq5"):
            query = _short(name)
            plan = _selections_in_spark(query.optimized(RATE, "duckdb"))
            with one.deployed(query.at(RATE), plan, Form.PANE, lambda report: None):
                pass
        assert (one.made, one.reused) == (1, 1)
        other = _short("cq5").at(2 * RATE)
        assert one.missing(other, plan, Form.PANE) == 2 * RATE * 20
    finally:
        one.close()


def test_what_is_kept_is_bounded(fills: Fills) -> None:
    one = Fills(fills.spark, most_bytes=1)
    query = _short("cq5")
    plan = _selections_in_spark(query.optimized(RATE, "duckdb"))
    try:
        for rate in (RATE, 2 * RATE):
            with one.deployed(query.at(rate), plan, Form.PANE, lambda report: None):
                pass
        assert one.missing(query.at(2 * RATE), plan, Form.PANE) == 0
        assert one.missing(query.at(RATE), plan, Form.PANE) > 0
    finally:
        one.close()


@pytest.mark.parametrize("kind", [Kind.DB, Kind.PANE])
def test_operators_are_measured_over_full_windows(fills: Fills, kind: Kind) -> None:
    query = _short("cq5")
    lab = Lab(fills, QUICKLY, monotonic() + 600)
    one = candidate(query.optimized(RATE, "duckdb"), kind)
    analysis = accuracy.analyzed(lab, query, one, "duckdb", RATE)
    assert [leaf.filled for leaf in analysis.leaves] == [1.0]
    size = analysis.leaves[0].size
    assert size.estimated == pytest.approx(20 * RATE)
    assert size.measured == pytest.approx(20 * RATE, rel=0.05)
    # What operators, MIGs and the loop itself took is what the run took.
    parts = [o.u.measured for o in analysis.operators if o.mig is None] + [m.u.measured for m in analysis.migs]
    whole = next(unit.u.measured for unit in analysis.units)
    assert sum(parts) + analysis.loop.measured == pytest.approx(whole, rel=0.01)


def test_a_plan_that_should_fail_is_tried_where_it_begins_to() -> None:
    query = Query.example("cq1")
    at = query.optimized(140_000.0, "duckdb")
    assert decision.failing_from(query, "duckdb", candidate(at, Kind.OPTIMAL), 140_000.0) is None
    spe = candidate(at, Kind.PANE)
    lower = decision.failing_from(query, "duckdb", spe, 140_000.0)
    assert lower is not None
    below = max(r for r in decision.COARSE if r < lower)
    u = [predicted(spe.plan, query.optimized(r, "duckdb")).cost.bottleneck for r in (below, lower)]
    assert u[0] <= decision.FAILING < u[1]


@pytest.mark.parametrize("kind", [Kind.OPTIMAL, Kind.PANE, Kind.DB])
def test_a_plan_costs_the_same_whoever_made_it(kind: Kind) -> None:
    query = Query.example("cq1")
    one, other = (query.optimized(100_000.0, "duckdb") for _ in range(2))
    plan = candidate(one, kind).plan
    assert predicted(plan, other).cost.bottleneck == pytest.approx(plan.cost.bottleneck)


def test_an_experiment_that_does_not_exist_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["bench", "paper", "--only", "figure7", "--output", str(tmp_path)])
    assert done.exit_code == 2
    assert "there is no experiment figure7; choose from table2, figure5" in done.output
    assert "Traceback" not in done.output


def test_every_experiment_has_a_command_of_its_own() -> None:
    listed = CliRunner().invoke(app, ["bench", "--help"]).output
    for name in paper.EXPERIMENTS:
        assert f" {name} " in listed
        assert CliRunner().invoke(app, ["bench", name, "--help"]).exit_code == 0


def test_operators_that_do_nothing_say_nothing_of_the_model() -> None:
    """A selection at 0.0001 against 0 has an error of 1 by definition; half of all operators are like that."""

    def one(estimated: float, measured: float, error: float) -> accuracy.OperatorErrors:
        return accuracy.OperatorErrors(
            "cq1", "duckdb", 5e3, Kind.DB, "x", "spark", 1.0, 1.0, estimated, measured, error
        )

    found = accuracy.summary([one(1e-4, 0.0, 1.0), one(2e-4, 3e-4, 1.0), one(0.2, 0.1, 2.0), one(0.0, 0.004, 4.0)], ())
    assert found.working == 2
    assert found.u is not None
    assert (found.u.median, found.u.worst) == (3.0, 4.0)


def test_a_plan_is_deployed_as_it_is_planned_at_the_rate_of_the_trial() -> None:
    """Few tuples per pane are not worth panes in DuckDB, many are: one placement, one id, two ways to run it."""
    query = Query.example("cq1")
    slow = candidate(query.optimized(1_000.0, "duckdb"), Kind.OPTIMAL)
    fast = planned_at(query, slow, 100_000.0)
    assert (fast.id, in_spark(fast.plan)) == (slow.id, in_spark(slow.plan))
    assert [{o.id: o.form for o in c.plan.operators}["agg1"] for c in (slow, fast)] == [None, "pane"]
    assert "pane_agg1" in fast.plan.migs[0].sql
    assert "pane_agg1" not in slow.plan.migs[0].sql


def test_trials_are_kept_for_a_later_run(tmp_path: Path) -> None:
    path = tmp_path / "some" / "trials.jsonl"
    assert known(path, 2.0) == {}
    one = Trial(1000.0, 0.5, False, True, (1.0, 1.0), 4, {"spark": 0.1}, 7, 3.5)
    again = replace(one, u=0.6, batches=(1.2, 1.2, 1.2))
    for batch, trial in ((2.0, one), (2.0, again), (1.0, replace(one, rate=5.0))):
        keep(path, Kept("SELECT 1", "plan pane", batch, trial))
    found = known(path, 2.0)
    assert list(found) == [("SELECT 1", "plan pane", 1000.0)]
    (both,) = found.values()
    assert both.batches == (1.0, 1.0, 1.2, 1.2, 1.2)
    assert (both.u, both.ticks) == (0.6, 8)
    assert both.shares["spark"] == pytest.approx(0.1)
    path.write_text(path.read_text() + "{}\n")
    with pytest.raises(PenstockError, match="line 4"):
        known(path, 2.0)


# -- curves -----------------------------------------------------------------------------------------------------------


def test_the_maximum_is_between_two_measured_rates() -> None:
    points = [Point(1_000, 0.2), Point(10_000, 0.8), Point(14_000, 1.12)]
    found = maximum(points)
    assert found is not None
    assert found.basis is Basis.INTERPOLATED
    assert found.value == pytest.approx(12_500, rel=0.01)  # u is proportional to the rate there
    u = u_at(points, found.value)
    assert u is not None
    assert u.value == pytest.approx(1.0, rel=1e-4)


def test_bounds_stay_bounds() -> None:
    assert maximum([Point(1_000, 3.0, censored=True)]) == Reading(1_000, Basis.AT_MOST)
    given_up = maximum([Point(1_000, 0.5), Point(2_000, 3.0, censored=True)])
    assert given_up is not None
    assert given_up.basis is Basis.AT_MOST
    assert throughput([Point(1_000, 0.5)], 2_000) is None  # it may keep up there, or not
    assert throughput([Point(1_000, 0.5)], 500) == Reading(500, Basis.INTERPOLATED)
    assert throughput([Point(1_000, 2.0)], 1_000) == Reading(500, Basis.MEASURED)
    assert throughput([Point(1_000, 4.0, censored=True)], 1_000) == Reading(250, Basis.AT_MOST)


@pytest.mark.parametrize(("fixed", "per_tuple"), [(0.2, 1e-5), (0.05, 2e-4), (0.6, 4e-6), (0.1, 7e-4)])
def test_the_search_ends_next_to_the_true_maximum(fixed: float, per_tuple: float) -> None:
    points = [Point(5_000.0, fixed + 5_000 * per_tuple)]
    while (rate := next_rate(points, 100.0, 400_000.0)) is not None:
        assert rate not in [p.rate for p in points]
        points.append(Point(rate, fixed + rate * per_tuple, censored=fixed + rate * per_tuple > 3))
    found = maximum(points)
    assert found is not None
    assert found.basis is Basis.INTERPOLATED
    assert found.value == pytest.approx((1 - fixed) / per_tuple, rel=0.1)
    assert len(points) <= 8


def test_a_search_in_coarse_steps_has_fewer_of_them() -> None:
    def ends_after(steps: Sequence[float]) -> list[Point]:
        points = [Point(400.0, (400 / 700) ** 2)]
        while (rate := next_rate(points, 100.0, 400_000.0, steps)) is not None:
            points.append(Point(rate, (rate / 700) ** 2))
        return points

    fine, coarse = ends_after(GRID), ends_after(COARSE)
    assert len(coarse) < len(fine)
    assert max(b / a for a, b in pairwise(COARSE)) <= 2.5
    found = maximum(coarse)
    assert found is not None
    assert found.value == pytest.approx(700, rel=0.1)


def test_the_search_ends_at_its_limits() -> None:
    assert next_rate([Point(400_000.0, 0.5)], 100.0, 400_000.0) is None
    assert next_rate([Point(100.0, 1.5)], 100.0, 400_000.0) is None
    assert max(b / a for a, b in pairwise(GRID)) < 1.44
    assert bracket([Point(1_000, 1.1), Point(2_000, 0.9), Point(4_000, 1.5)]) == (Point(2_000, 0.9), Point(4_000, 1.5))


# -- the lab ----------------------------------------------------------------------------------------------------------


def test_a_trial_is_run_once_and_only_in_time(fills: Fills) -> None:
    query = _short("cq5")
    one = candidate(query.optimized(RATE, "duckdb"), Kind.OPTIMAL)
    lab = Lab(fills, QUICKLY, monotonic() + 600)
    assert lab.trial(query, one, RATE) is lab.trial(query, one, RATE)
    with lab.within(0.0), pytest.raises(OutOfTime):
        lab.trial(query, one, 2 * RATE)
    assert lab.points(query, one) == [Point(RATE, lab.trial(query, one, RATE).u)]


@pytest.mark.parametrize(("u", "rates"), [(0.5, [10_000.0]), (1.5, [2_500.0, 10_000.0])])
def test_a_plan_that_another_follows_is_searched_only_if_it_fails_before(
    u: float, rates: list[float], fills: Fills
) -> None:
    query = Query.example("cq5")
    one = candidate(query.optimized(RATE, "postgres"), Kind.OPTIMAL)
    trials = {(query.sql, one.id, r): Trial(r, u * r / 1e4, False, True, (1.0,), 2, {}, 0, 1.0) for r in rates}
    lab = Lab(fills, QUICKLY, monotonic(), trials=trials)  # no time for a trial that is not there
    if u <= 1.0:
        figure5._to_its_end(lab, query, one, 10_000.0)
    else:
        with pytest.raises(OutOfTime):
            figure5._to_its_end(lab, query, one, 10_000.0)


def test_plans_in_turns_are_taken_together(fills: Fills) -> None:
    query = _short("cq5")
    both = [candidate(query.optimized(RATE, "duckdb"), kind) for kind in (Kind.OPTIMAL, Kind.DB)]
    lab = Lab(fills, QUICKLY, monotonic() + 600)
    before = lab.trial(query, both[0], RATE)
    found = lab.in_turns(query, both, RATE, rounds=1)
    assert [len(t.batches) for t in found] == [2 * QUICKLY.measured, QUICKLY.measured]
    assert found[0].batches[: len(before.batches)] == before.batches
    assert lab.points(query, both[0]) == [Point(RATE, found[0].u)]


def test_a_plan_that_was_given_up_is_not_tried_again(fills: Fills) -> None:
    query = _short("cq5")
    one = candidate(query.optimized(RATE, "duckdb"), Kind.OPTIMAL)
    lab = Lab(fills, QUICKLY, monotonic())  # no time for a trial
    lab.trials[query.sql, one.id, RATE] = given_up = Trial(RATE, 3.0, True, True, (), 0, {}, 0, 1.0)
    assert lab.in_turns(query, [one], RATE, rounds=2) == [given_up]


def test_jobs_without_time_are_named_and_errors_kept(fills: Fills) -> None:
    done: list[int] = []

    def late() -> None:
        raise OutOfTime

    def broken() -> None:
        raise PenstockError("no such thing")

    lab = Lab(fills, QUICKLY, monotonic())
    jobs = [Job("late", late), Job("broken", broken), Job("fine", lambda: done.append(1))]
    assert lab.run("some", jobs) == ("late",)
    assert [(f.what, f.why) for f in lab.failures] == [("some: broken", "no such thing")]
    assert done == [1]


# -- figures of merit -------------------------------------------------------------------------------------------------


def _measured(
    name: str, predicted: float, u: float | None, basis: Basis = Basis.MEASURED, picked: bool = False
) -> Measured:
    return Measured(name, (name,), "pane", predicted, u, basis, picked)


ROWS = (
    _measured("a", 0.5, 0.6, picked=True),
    _measured("b", 0.9, 0.4),
    _measured("c", 0.9, 1.04),  # a miss, and a close one
    _measured("d", 2.0, 3.0, Basis.AT_LEAST),
    _measured("e", 1.5, 0.8),  # a miss
    _measured("f", 1.5, None),
)
MAXIMA = (
    Maximum("a", ("a",), Reading(1_000.0, Basis.INTERPOLATED), True),
    Maximum("b", ("b",), Reading(1_500.0, Basis.INTERPOLATED), False),
    Maximum("d", ("d",), Reading(9_000.0, Basis.AT_MOST), False),
)


def _decision() -> verdicts.Decision:
    at = verdicts.at_rate(1_000.0, ROWS)
    case = Case("cq1", "duckdb", True, (at,), verdicts.throughput_regret(MAXIMA), MAXIMA)
    return verdicts.summary([case], ("something",))


def test_regret_and_verdicts() -> None:
    found = _decision()
    at = found.cases[0].rates[0]
    assert at.regret == pytest.approx(1.5)
    assert at.best == ("b",)
    assert found.cases[0].throughput_regret == pytest.approx(1.5)  # a bound from above is no maximum
    assert (found.measured, found.right, found.decided, found.undecided) == (5, 3, 5, 1)
    assert len(found.misses) == 2
    assert "(undecided)" in found.misses[0]


def test_a_bound_below_one_decides_nothing() -> None:
    assert _measured("x", 0.5, 0.7, Basis.AT_LEAST).right is None
    assert verdicts.at_rate(1.0, [_measured("x", 0.5, None)]) == AtRate(
        1.0, (_measured("x", 0.5, None),), None, None, None
    )


def test_a_plan_that_keeps_up_with_more_keeps_up() -> None:
    above = _measured("x", 0.5, 0.7, Basis.AT_MOST, picked=True)
    assert above.right is True
    assert _measured("x", 1.5, 0.7, Basis.AT_MOST).right is False
    assert _measured("x", 1.5, 1.7, Basis.AT_MOST).right is None
    at = verdicts.at_rate(1.0, [above, _measured("y", 0.5, 0.6)])
    assert (at.regret, at.best) == (None, ("y",))  # a bound has no regret


def test_the_pick_is_set_against_the_better_pure_plan() -> None:
    pure = [replace(_measured(n, 0.5, u), pure=True) for n, u in (("a", 0.8), ("b", 0.5))]
    found = verdicts.at_rate(1.0, [_measured("p", 0.5, 0.6, picked=True), _measured("c", 0.5, 0.3), *pure])
    assert found.pure_regret == pytest.approx(1.2)
    assert found.regret == pytest.approx(2.0)


def test_one_trial_serves_for_both_rates_but_for_contenders_and_pure_plans() -> None:
    query = Query.example("cq3")
    low, high = (decision.placements(query.optimized(rate, "duckdb"), whole=True) for rate in (2_000.0, 20_000.0))
    first = decision.at_once(low, high)
    costs = {c.id: c.plan.cost.bottleneck for c in high}
    assert first
    assert all(costs[name] <= decision.SURE for name in first)
    assert not first & {c.id for c in low[:3]}
    assert min(low, key=lambda c: c.plan.cost.bottleneck).id not in first


def test_all_in_spark_is_one_plan_beside_any_database() -> None:
    duckdb, postgres = (Query.example("cq1").optimized(5_000.0, d) for d in ("duckdb", "postgres"))
    assert candidate(duckdb, Kind.PANE).id == candidate(postgres, Kind.PANE).id
    assert candidate(duckdb, Kind.PANE).id != candidate(duckdb, Kind.EXPAND).id
    assert candidate(duckdb, Kind.DB).id != candidate(postgres, Kind.DB).id


def test_placements_begin_with_the_pick_and_samples_repeat() -> None:
    optimized = Query.example("cq1").optimized(5_000.0, "duckdb")
    every = decision.placements(optimized, whole=True)
    assert every[0].plan.id == optimized.plan.id
    assert len(every) == len({c.plan.id for c in every}) == 2 ** len(optimized.plan.operators)
    six = Query.example("cq6").optimized(5_000.0, "duckdb")
    some = decision.placements(six, whole=False)
    assert [c.id for c in some] == [c.id for c in decision.placements(six, whole=False)]
    assert len(some) == 8
    for where in Where:
        assert everywhere(six, where).id in {c.plan.id for c in some}


def test_ratios_of_bounds() -> None:
    exact, low, high = (Reading(100.0, b) for b in (Basis.INTERPOLATED, Basis.AT_LEAST, Basis.AT_MOST))
    assert ratio(exact, high) == Reading(1.0, Basis.AT_LEAST)
    assert ratio(exact, low) == Reading(1.0, Basis.AT_MOST)
    assert ratio(low, high) == Reading(1.0, Basis.AT_LEAST)
    assert ratio(low, low) is None
    assert ratio(exact, None) is None


def test_quick_figures_are_medians_over_all_batches() -> None:
    def trial(*batches: float, censored: bool = False) -> Trial:
        return Trial(1e3, max(batches) / 2, censored, True, batches, 2, {}, 0, 1.0)

    assert quick.together([trial(1.0, 1.2), trial(9.0, 1.1), trial(1.0)], 2.0) == Reading(0.55, Basis.MEASURED)
    assert quick.together([trial(1.0), trial(12.0, censored=True)], 2.0) == Reading(6.0, Basis.AT_LEAST)
    assert quick.together([], 2.0) is None


def test_the_optimal_maximum_is_that_of_the_plan_picked_there() -> None:
    def picked(since: float, until: float | None, top: float) -> figure5.Picked:
        points = (Point(top / 2, 0.5), Point(top * 2, 2.0))
        return figure5.Picked("p", "pane", (), since, until, maximum(points), points)

    assert figure5.optimal([picked(1e3, 1e4, 8e3), picked(1e4, None, 5e3)]) == Reading(8e3, Basis.INTERPOLATED)
    assert figure5.optimal([picked(1e3, 1e4, 9e4), picked(1e4, None, 2e4)]) == Reading(2e4, Basis.INTERPOLATED)
    assert figure5.optimal([picked(1e3, 1e4, 9e4)]) == Reading(1e4, Basis.INTERPOLATED)
    fails = (Point(2e4, 1.5),)
    after = figure5.Picked("q", "pane", (), 1e4, None, maximum(fails), fails)
    assert figure5.optimal([picked(1e3, 1e4, 8e3), after]) == Reading(8e3, Basis.INTERPOLATED), "it never kept up"


def test_a_crossing_is_where_the_second_plan_becomes_the_cheaper_one() -> None:
    flat = [Point(rate, 0.5) for rate in (1e3, 2e3, 4e3, 8e3)]
    assert crossover.crossing([Point(p.rate, p.rate / 1e4) for p in flat], flat, 4e3) == pytest.approx(5e3)
    assert crossover.crossing(flat, [Point(p.rate, p.rate / 1e4) for p in flat], 4e3) is None, "it goes the other way"
    twice = [Point(p.rate, u) for p, u in zip(flat, (0.4, 0.6, 0.4, 0.6), strict=True)]
    assert crossover.crossing(twice, flat, 1e3) == pytest.approx(1.464e3, rel=0.01)
    assert crossover.crossing(twice, flat, 9e3) == pytest.approx(5.86e3, rel=0.01)
    bounds = [Point(1e3, 0.4), Point(2e3, 0.45, censored=True), Point(4e3, 3.0, censored=True)]
    assert crossover.crossing(bounds, flat, 2e3) == pytest.approx(1.16e3, rel=0.01), "a bound below says nothing"


# -- pictures and the page --------------------------------------------------------------------------------------------


def _results(directory: Path) -> list[Path]:
    points = (Point(5_000.0, 0.5), Point(10_000.0, 1.25))
    top = maximum(points)
    picked = figure5.Picked("p1", "pane", ("select.p", "select.q"), 1_000.0, None, top, points)
    steps = tuple(
        figure5.Step(rate, "p1", rate / 1e4, u_at(points, rate), throughput(points, rate)) for rate in (5e3, 7e3, 1e4)
    )
    pure = (
        figure5.Baseline(Kind.DB, Reading(4_000.0, Basis.AT_MOST), points),
        figure5.Baseline(Kind.NATIVE, None, ()),
    )
    panels = tuple(figure5.Panel("cq1", d, (picked,), steps, top, pure) for d in ("duckdb", "postgres"))
    five = figure5.Figure5(panels, ("cq6 postgres",))
    equal = figure6.Step(1e3, ("select.p",), ("select.p",), None, None)
    unequal = figure6.Step(2e4, ("select.p",), (), Reading(2e4, Basis.MEASURED), Reading(1e4, Basis.MEASURED))
    six = figure6.Figure6(
        (
            figure6.Panel("cq1", "duckdb", "loop", (equal,)),
            figure6.Panel("cq3", "duckdb", "operator", (equal, unequal)),
        ),
        (),
    )
    slides = window_slide.WindowSlide(
        2_000.0,
        (
            window_slide.Row("duckdb", Kind.DB, 1, (), 0.2, False, True),
            window_slide.Row("duckdb", Kind.DB, 300, (), 0.3, False, True),
            window_slide.Row("duckdb", Kind.EXPAND, 1, (), 0.3, False, True),
            window_slide.Row("duckdb", Kind.EXPAND, 300, (), 3.3, True, False),
        ),
        (),
    )
    change = crossover.Crossover("cq5", "postgres", ("select.p",), ("agg1", "select.p"), 2e4, 1.5e4, points, points)
    unmeasured = replace(change, query="cq6", measured=None, points_before=(), points_after=())
    changes = crossover.Crossovers((change, unmeasured), ())
    errors = accuracy.summary(
        [accuracy.OperatorErrors("cq1", "duckdb", 5e3, Kind.DB, "agg1", "duckdb", 1.0, 1.1, 0.01, 0.03, 3.0)], ()
    )
    run = Run("2026-01-01T00:00:00", 50.0, 60.0, 2, "x", {"duckdb": "2"}, 2.0, 2, 3.0, 4e5, {}, 99, 41.0, ())
    row = quick.Row("cq1", "duckdb", 1e4, Reading(0.25, Basis.MEASURED), Reading(5.0, Basis.AT_LEAST), None)
    looked = quick.Quick(run, (row,), ())
    times = table2.Report(1, (table2.Row("2-way", 6, 64, 11, True, 1.0, 0.1, 0.02),))
    results = {"paper": run, "figure5": five, "figure6": six, "window-slide": slides, "decision": _decision()}
    for name, found in (results | {"crossover": changes, "accuracy": errors, "quick": looked, "table2": times}).items():
        paper.write(directory, name, found)
    drawn = pictures.figure5(five, directory) + pictures.figure6(six, directory)
    drawn += pictures.window_slide(slides, directory) + pictures.decision(_decision(), directory)
    return drawn + pictures.table2(times, directory) + pictures.crossover(changes, directory)


def test_pictures_are_written_and_small(tmp_path: Path) -> None:
    drawn = _results(tmp_path)
    assert sorted({p.stem for p in drawn}) == [
        "crossover",
        "decision",
        "figure5-duckdb",
        "figure5-postgres",
        "figure6",
        "table2",
        "window-slide",
    ]
    for path in drawn:
        assert 2_000 < path.stat().st_size < 200_000
    assert "maximum throughput, tuples/s" in (tmp_path / "figure5-duckdb.svg").read_text()


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    _results(tmp_path)
    assert paper.read(tmp_path, "decision", verdicts.Decision) == _decision()
    assert paper.read(tmp_path, "nothing", verdicts.Decision) is None
    (tmp_path / "figure6.json").write_text('{"panels": 1}')
    with pytest.raises(PenstockError, match="not a result of this version"):
        paper.read(tmp_path, "figure6", figure6.Figure6)


def test_the_page_has_every_experiment_and_its_picture(tmp_path: Path) -> None:
    results = tmp_path / "benchmarks" / "results"
    _results(results)
    page = render(results, tmp_path / "docs")
    for words in (
        "| CQ1 | 8,447 |",  # maximum of the picks
        "≤ 4,000",
        "cq6 postgres",
        "| CQ1 | duckdb | loop | all | equal |",
        "| duckdb | expand | 0.30 | ≥ 3.30 |",
        "| CQ1 | duckdb | 10,000 | 0.250 | ≥ 5.000 | - | ≥ 20.00 | - |",
        "3 of 5 right (60.0%)",
        "| CQ5 | postgres | select.p | agg1, select.p | 20,000 | 15,000 | -25% |",
        "../benchmarks/results/figure5-postgres.svg",
    ):
        assert words in page
    assert render(tmp_path, tmp_path).startswith("# The experiments of paper 001")  # nothing measured yet


def test_an_unknown_experiment_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="no experiment figure7"):
        paper.run_all(tmp_path, only=("figure7",))


def test_a_trial_can_be_made_up(fills: Fills) -> None:
    """The search uses what the lab knows, and measures nothing that is known."""
    query = _short("cq5")
    one = candidate(query.optimized(RATE, "duckdb"), Kind.OPTIMAL)
    lab = Lab(fills, QUICKLY, monotonic())  # no time for a trial
    for rate, u in ((5_000.0, 0.9), (7_000.0, 1.2)):
        lab.trials[query.sql, one.id, rate] = Trial(rate, u, False, True, (u,), 1, {}, 0, 1.0)
    assert lab.search(query, one) == [Point(5_000.0, 0.9), Point(7_000.0, 1.2)]
