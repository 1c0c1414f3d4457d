"""The order of plans, tick rates and operator costs, against definitions and hand-computed figures."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import exp, isclose
from pathlib import Path
from random import Random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.cost import PlanCost, of_units
from costmodel.fit import Measurement, fit, residuals
from costmodel.flow import Drive, Flow, Source, tick_rate
from costmodel.operators import AggregateForm, Engines
from costmodel.parameters import factors, parameters
from costmodel.profile import (
    PROFILE_VERSION,
    CalibrationProfile,
    ProfileError,
    default_profile,
    load_profile,
    parse_profile,
)
from migration.measurements import part_of
from optimizer.costing import Costing
from optimizer.optimize import Options, optimize
from optimizer.physical import placement_problem
from optimizer.placement.problem import Units, evaluate
from optimizer.sql.ddl import parse_catalog

EXAMPLES = Path(__file__).parents[1] / "examples" / "smartplug"
CATALOG, CQ1 = (EXAMPLES / "catalog.sql").read_text(), (EXAMPLES / "cq1.sql").read_text()

COSTS = st.builds(PlanCost, st.floats(0, 3), st.floats(0, 10))


def better_by_definition_1(p: PlanCost, q: PlanCost) -> bool:
    """Paper 001, Definition 1, condition by condition."""
    return (
        (p.bottleneck <= 1 < q.bottleneck)
        or (p.bottleneck <= 1 and q.bottleneck <= 1 and p.utilization <= q.utilization)
        or (1 < p.bottleneck <= q.bottleneck)
    )


@given(COSTS, COSTS)
def test_the_order_is_definition_1(p: PlanCost, q: PlanCost) -> None:
    if p < q:
        assert better_by_definition_1(p, q)
    assert (p < q) + (q < p) + (p == q) == 1


@given(COSTS, COSTS, COSTS)
def test_the_order_is_transitive(p: PlanCost, q: PlanCost, r: PlanCost) -> None:
    if p <= q <= r:
        assert p <= r


def test_ties_of_infeasible_plans_go_by_utilization() -> None:
    assert PlanCost(2.0, 5.0) < PlanCost(2.0, 6.0)


def test_units_that_add_up_to_a_second_are_feasible() -> None:
    assert of_units([sum([0.1] * 10)]).feasible
    assert PlanCost(sum([0.7, 0.1, 0.2]), 1).feasible
    assert not PlanCost(1.001, 1).feasible


@given(st.lists(st.integers(1, 12), min_size=1, max_size=4))
def test_ticks_are_the_union_of_boundaries(slides: list[int]) -> None:
    period = 12 * 11 * 7 * 5 * 3 * 2
    counted = sum(any(t % s == 0 for s in slides) for t in range(period * 3, period * 4))
    assert isclose(tick_rate([s * 1_000_000 for s in slides]), counted / period)


def engines(ticks: float = 1.0, drive: Drive = Drive.SLIDE, database: str = "duckdb") -> Engines:
    profile = default_profile()
    return Engines(profile, profile.databases[database], drive, ticks)


def test_an_aggregate_from_panes_reads_what_is_new_and_the_panes() -> None:
    model = engines()
    db = model.db
    many = Flow(10_000.0, 3_000_000.0, 32.0, True, Source.EXACT)
    groups = Flow(2125.0, 2125.0, 32.0, False, Source.EXACT)
    each = db.aggregate + db.functions["max"]
    paned = model.db_aggregate(many, groups, ("max",), 300.0)
    assert paned.form is AggregateForm.PANE
    assert isclose(paned.u, db.execution + 10_000 * each + 300 * 2125 * db.pane_group + 2125 * db.group)
    whole = model.db_aggregate(many, groups, ("max",), None)  # which cannot be made from panes
    assert whole.form is None
    assert isclose(whole.u, 3_000_000 * each + 2125 * db.group)
    few = Flow(1_000.0, 300_000.0, 32.0, True, Source.EXACT)  # less than a tuple a second in each group
    assert model.db_aggregate(few, groups, ("max",), 300.0).form is None


def test_ticks_of_a_batch_share_a_join_with_an_aggregate_from_panes() -> None:
    """CQ1 at 1 tick/s and a batch every 2 s: its tuples look for their groups in every second tick only."""
    catalog = parse_catalog(CATALOG).with_rates({"plugs": 20_000.0})
    found = optimize(CQ1, catalog)
    db, groups = found.costing.engines.db, 2125
    join = next(o for o in found.plan.operators if o.id == "join1")
    window, out = 300 * 10_000, found.costing.flow(join.node).size
    assert isclose(join.u, 0.5 * (window + groups) * db.join_in + out * db.join_out)
    each = optimize(CQ1, catalog, replace(Options(), profile=replace(default_profile(), batch_interval=1.0)))
    alone = next(o for o in each.plan.operators if o.id == "join1")
    assert isclose(alone.u, (window + groups) * db.join_in + out * db.join_out)


def test_a_sliding_aggregate_takes_the_cheaper_form() -> None:
    spe = default_profile().spe
    many = Flow(5_000.0, 1_500_000.0, 32.0, True, Source.EXACT)
    groups = Flow(2125.0, 2125.0, 32.0, False, Source.EXACT)
    model = engines()
    by_panes = replace(model, form=AggregateForm.PANE).spe_aggregate(many, groups, ("avg",), 300.0)
    expanded = replace(model, form=AggregateForm.EXPAND).spe_aggregate(many, groups, ("avg",), 300.0)
    chosen = model.spe_aggregate(many, groups, ("avg",), 300.0)
    assert chosen == min(by_panes, expanded, key=lambda cost: cost.u)
    fixed = model.batches * spe.partial
    rows = 5_000 * (spe.pane_row + spe.functions["avg"])
    met = 2125 * (1 - exp(-5_000 / 2125))  # of all groups, by the tuples of a pane
    merged = 300 * met * (spe.pane_group + spe.merge["avg"])
    assert isclose(by_panes.u, fixed + model.batches * spe.combine + rows + merged)
    copies = 300 * 5_000 * (spe.expand + spe.functions["avg"])
    kept = 300 * (302 * 2125) * model.batches**2  # of every batch that a window holds, at each evaluation
    assert isclose(expanded.u, fixed + model.batches * spe.stage + copies + kept * spe.expand_group)
    over_relation = model.spe_aggregate(groups, groups, ("max",), None)
    assert over_relation.form is AggregateForm.RELATION
    assert isclose(over_relation.u, model.batches * spe.stage + 2125 * spe.aggregate)


def test_ticks_of_one_batch_share_a_job() -> None:
    often, seldom = engines(ticks=10.0), engines(ticks=0.01)
    assert often.evaluations == often.batches
    assert seldom.evaluations == 0.01
    assert engines(drive=Drive.TUPLE).evaluations == often.batches


def test_a_join_of_two_large_relations_moves_both() -> None:
    large, small = (Flow(100.0, size, 8.0, True, Source.EXACT) for size in (1e6, 500.0))
    model, spe = engines(), default_profile().spe
    nothing = Flow(0.0, 0.0, 16.0, False, Source.EXACT)
    fixed = model.evaluations * spe.join
    assert isclose(model.spe_join(large, large, nothing), fixed + model.executions * 2e6 * spe.join_in)
    assert isclose(model.spe_join(small, large, nothing), fixed + model.executions * 1_000_500 * spe.probe)
    outer = model.spe_join(small, large, nothing, outer=True)
    assert isclose(outer, fixed + model.executions * 1_000_500 * spe.join_in)


@pytest.mark.parametrize("drive", list(Drive))
def test_a_join_goes_through_both_relations_at_each_execution(drive: Drive) -> None:
    left, right = (Flow(100.0, 1_000.0, 8.0, True, Source.EXACT), Flow(50.0, 500.0, 8.0, True, Source.EXACT))
    out = Flow(10.0, 100.0, 16.0, False, Source.EXACT)
    model, spe, db = engines(drive=drive), default_profile().spe, default_profile().databases["duckdb"]
    emitted = 100 if drive is Drive.SLIDE else 10
    arriving = model.executions * 1_500
    fixed = model.evaluations * spe.join
    assert isclose(model.spe_join(left, right, out), fixed + arriving * spe.probe + emitted * spe.join_out)
    assert isclose(model.db_join(left, right, out), arriving * db.join_in + emitted * db.join_out)


def test_every_cost_is_linear_in_the_profile() -> None:
    """What a calibration rests on: the factors of all numbers give the cost back."""
    profile = default_profile()
    found = optimize(CQ1, CATALOG, Options(database="postgres", rates={"plugs": 5_000.0}))
    for in_db in product((False, True), repeat=len(found.plan.operators)):

        def cost(p: CalibrationProfile, in_db: tuple[bool, ...] = in_db) -> float:
            costing = Costing.of(found.plan.tree, found.catalog, p, found.database, AggregateForm.PANE)
            return evaluate(placement_problem(found.plan.tree, costing, Units.LOOP), in_db).utilization

        numbers = parameters(profile)
        told = factors(cost, profile, numbers)
        assert isclose(sum(numbers[name] * factor for name, factor in told.items()), cost(profile), rel_tol=1e-9)
        assert {part_of(name) for name in told} <= {"run", "ticks", "arrival", "fetch", "ship"}


def test_a_profile_is_found_again_from_what_it_predicts() -> None:
    """Times made from known numbers are fitted back to them, and noise of 10% does little harm."""
    random = Random(3)
    truth = {"a": 0.2, "b": 3e-7, "c": 1e-9}
    told = []
    for i in range(40):
        factor = {"a": 1.0, "b": random.uniform(1e3, 1e6), "c": random.uniform(1e4, 1e8)}
        seconds = sum(truth[n] * f for n, f in factor.items()) * random.uniform(0.9, 1.1)
        told.append(Measurement("m", str(i), seconds, factor))
    found = fit(told, {"a": 1.0, "b": 1e-6, "c": 1e-8})
    assert all(0.8 < found[name] / truth[name] < 1.25 for name in truth)
    assert median(r.q_error for r in residuals(told, found)) < 1.1
    assert fit([], truth) == {}


def test_no_number_is_fitted_below_zero() -> None:
    told = [Measurement("m", "1", 1.0, {"a": 1.0, "b": 1.0}), Measurement("m", "2", 0.5, {"a": 1.0, "b": 3.0})]
    assert all(value >= 0 for value in fit(told * 20, {"a": 1.0, "b": 1.0}).values())


def test_the_shipped_profile_is_of_this_version_and_says_what_it_rests_on() -> None:
    profile = default_profile()
    assert profile.version == PROFILE_VERSION
    assert Units(profile.units) is Units.LOOP
    assert set(profile.basis) == set(parameters(profile))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "Invalid JSON"),
        ("{}", "Field required"),
        ('{"version": "x"}', "version"),
    ],
)
def test_profiles_that_cannot_be_read(text: str, says: str) -> None:
    with pytest.raises(ProfileError, match=says):
        parse_profile(text, "mine.json")


def test_a_missing_profile_is_named(tmp_path: object) -> None:
    with pytest.raises(ProfileError, match=r"nowhere\.json: cannot be read"):
        load_profile(Path(str(tmp_path)) / "nowhere.json")
