"""The searches of phase two against all 2^n placements, and the plan counts of paper 001, Table 2."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.cost import PlanCost
from optimizer.placement.decompose import cut, place_decomposed
from optimizer.placement.enumeration import enumerate_placements
from optimizer.placement.exact import place
from optimizer.placement.limits import TOLERANCE
from optimizer.placement.problem import Placement, PlacementProblem, Site, Units, evaluate, fragments
from optimizer.placement.runner_up import second_best

Search = Callable[..., Placement]
SEARCHES: list[Search] = [place, enumerate_placements]


# All 2^n placements at once: row m of every array is the placement with the bits of m.


def all_costs(problem: PlacementProblem) -> tuple[np.ndarray, np.ndarray]:
    """The bottleneck and the utilization of every placement, with a table per DB-op root instead of a tree walk."""
    n = len(problem.sites)
    masks = np.arange(1 << n)
    in_db = [(masks >> i & 1).astype(bool) for i in range(n)]
    parent = {c: i for i, site in enumerate(problem.sites) for c in site.inputs}
    spe_sum = np.zeros(1 << n)
    largest = np.full(1 << n, problem.loop)
    own = [np.zeros(1 << n) for _ in range(n)]  # what an operator adds to the DB-op it is in
    for i, site in enumerate(problem.sites):
        spe = np.where(in_db[i], 0.0, site.spe)
        spe_sum += spe
        if problem.units is Units.OPERATOR:
            largest = np.maximum(largest, spe)
        own[i][in_db[i]] += site.db
        for c in site.inputs:
            own[i][in_db[i] & ~in_db[c]] += problem.sites[c].send
    db_sum = np.zeros(1 << n)
    for i in reversed(range(n)):  # pull every operator's part up to the root of its DB-op
        members = own[i].copy()
        joined = {i: in_db[i]}
        for c in reversed(range(i)):
            if parent[c] in joined:
                joined[c] = joined[parent[c]] & in_db[c]
                members += np.where(joined[c], own[c], 0.0)
        root = in_db[i] if i == n - 1 else in_db[i] & ~in_db[parent[i]]
        u = np.where(root, members + problem.fixed + problem.sites[i].fetch, 0.0)
        db_sum += u
        largest = np.maximum(largest, u)
    total = problem.loop + spe_sum + db_sum
    if problem.units is Units.ENGINE:
        largest = np.maximum(largest, problem.loop + spe_sum)
    return (total if problem.units is Units.LOOP else largest), total


def best_of(bottleneck: np.ndarray, total: np.ndarray, feasibility_check: bool = True) -> tuple[float, float]:
    """The key of the best placement, bottlenecks that differ by rounding being the same."""
    if not feasibility_check:
        return inf, float(total.min())
    limit = max(1.0, float(bottleneck.min()))
    return limit, float(total[bottleneck <= limit * (1 + TOLERANCE)].min())


def assert_best(found: Placement, problem: PlacementProblem, expected: tuple[float, float]) -> None:
    assert found.cost == evaluate(problem, found.in_db)
    assert max(found.cost.bottleneck, 1.0) == pytest.approx(expected[0], rel=2 * TOLERANCE)
    assert found.cost.utilization == pytest.approx(expected[1], rel=2 * TOLERANCE)


# Random logical plans. Costs are from a coarse grid half of the time, so that ties and units of exactly 1 occur.


@st.composite
def problems(draw: st.DrawFn, units: Units, max_operators: int = 12) -> PlacementProblem:
    n = draw(st.sampled_from([m for m in (1, 2, 3, 4, 6, 8, 9, 10, 11, 12) if m <= max_operators]))
    waiting: list[int] = []
    inputs: list[tuple[int, ...]] = []
    for i in range(n):
        arity = draw(st.integers(0, min(3, len(waiting))))
        if len(waiting) - arity + 1 > n - i:  # enough operators must be left to join what waits
            arity = min(len(waiting), 3)
        if i == n - 1:
            arity = len(waiting)
        inputs.append(tuple(waiting[len(waiting) - arity :]))
        waiting = [*waiting[: len(waiting) - arity], i]
    scale = draw(st.sampled_from([0.1, 0.3, 1.0, 2.0]))
    coarse = st.sampled_from([0.0, 0.1, 0.2, 0.25, 0.5, 0.7, 1.0])
    cost = st.one_of(coarse, st.floats(0.0, 1.0).map(lambda u: u * scale)) if draw(st.booleans()) else coarse
    sites: list[Site] = []
    for below in inputs:
        spe, db = draw(cost), draw(cost)
        forbidden = draw(st.sampled_from(["none"] * 8 + ["spe", "db"]))
        spe, db = (inf if forbidden == "spe" else spe), (inf if forbidden == "db" else db)
        for i in below if units is Units.LOOP else ():
            # What an SPE-op pays to keep its input it is spared where that comes from the database: more, maybe, than
            # the border costs.
            kept = draw(st.sampled_from([0.0, 0.0, 0.1, 0.3]))
            spe += kept
            sites[i] = replace(sites[i], fetch=sites[i].fetch - kept)
        sites.append(Site(below, spe, db, draw(cost) / 2, draw(cost) / 2))
    loop = draw(st.sampled_from([0.0, 0.0, 0.2, 1.5]))
    return PlacementProblem(tuple(sites), draw(st.sampled_from([0.0, 0.05, 0.1])), loop, units)


def test_evaluate_by_hand() -> None:
    a = Site((), spe=0.5, db=1.0, send=0.25, fetch=4.0)
    b = Site((), spe=0.125, db=2.0, send=0.5, fetch=8.0)
    join = Site((0, 1), spe=3.0, db=0.75, send=0.0, fetch=0.0625)
    problem = PlacementProblem((a, b, join), fixed=16.0, loop=0.03125)
    # b stays outside: the DB-op of a and the join takes 16 + 0.0625 + 1 + 0.75 + 0.5.
    assert fragments(problem, (True, False, True)) == [[0, 2]]
    cost = evaluate(problem, (True, False, True))
    assert (cost.bottleneck, cost.utilization) == (18.3125, 18.3125 + 0.125 + 0.03125)
    # Two DB-ops below an SPE-op: 16 + 4 + 1 and 16 + 8 + 2.
    cost = evaluate(replace(problem, units=Units.ENGINE), (True, True, False))
    assert (cost.bottleneck, cost.utilization) == (26.0, 21.0 + 26.0 + 3.0 + 0.03125)
    assert evaluate(replace(problem, units=Units.ENGINE), (False,) * 3).bottleneck == 3.65625
    assert evaluate(replace(problem, units=Units.LOOP), (False,) * 3).bottleneck == 3.65625


@pytest.mark.parametrize("units", list(Units))
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_brute_force_agrees_with_evaluate(units: Units, data: st.DataObject) -> None:
    problem = data.draw(problems(units, max_operators=6))
    bottleneck, total = all_costs(problem)
    n = len(problem.sites)
    for m in range(1 << n):
        cost = evaluate(problem, [bool(m >> i & 1) for i in range(n)])
        assert (bottleneck[m], total[m]) == pytest.approx((cost.bottleneck, cost.utilization))


@settings(max_examples=600, deadline=None)
@given(problem=problems(Units.OPERATOR))
def test_searches_equal_brute_force(problem: PlacementProblem) -> None:
    expected = best_of(*all_costs(problem))
    for search in SEARCHES:
        found = search(problem)
        assert_best(found, problem, expected)
        assert found.proven


@pytest.mark.parametrize("units", [Units.ENGINE, Units.LOOP])
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_searches_equal_brute_force_with_shared_units(units: Units, data: st.DataObject) -> None:
    problem = data.draw(problems(units))
    expected = best_of(*all_costs(problem))
    for search in SEARCHES:
        found = search(problem)
        assert_best(found, problem, expected)
        assert found.proven


@pytest.mark.parametrize("units", list(Units))
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_without_feasibility_check_only_utilization_counts(units: Units, data: st.DataObject) -> None:
    problem = data.draw(problems(units))
    _, smallest = best_of(*all_costs(problem), feasibility_check=False)
    for search in [*SEARCHES, place_decomposed]:
        found = search(problem, feasibility_check=False)
        assert found.cost == evaluate(problem, found.in_db)
        assert found.cost.utilization == pytest.approx(smallest, rel=TOLERANCE)


@pytest.mark.parametrize("units", list(Units))
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_second_best_equals_brute_force(units: Units, data: st.DataObject) -> None:
    problem = data.draw(problems(units, max_operators=9))
    best = place(problem)
    second = second_best(problem, best)
    bottleneck, total = all_costs(problem)
    first = sum(1 << i for i, here in enumerate(best.in_db) if here)
    bottleneck[first] = total[first] = inf
    if np.isinf(total).all():
        assert second is None
    else:
        assert second is not None
        assert second.in_db != best.in_db
        assert second.proven
        assert_best(second, problem, best_of(bottleneck, total))


@pytest.mark.parametrize("units", list(Units))
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_decomposition_is_never_better_than_the_exact_search(units: Units, data: st.DataObject) -> None:
    problem = data.draw(problems(units))
    limit = data.draw(st.integers(1, 12))
    best, decomposed = place(problem).cost, place_decomposed(problem, limit)
    assert decomposed.cost == evaluate(problem, decomposed.in_db)
    best_key, key = best.key, decomposed.cost.key
    assert key[0] >= best_key[0] * (1 - 2 * TOLERANCE)
    if key[0] <= best_key[0] * (1 + 2 * TOLERANCE):
        assert key[1] >= best_key[1] * (1 - 2 * TOLERANCE)
    if len(problem.sites) <= limit:
        assert decomposed.proven
        assert key == pytest.approx(best_key, rel=2 * TOLERANCE)


@settings(max_examples=100, deadline=None)
@given(problem=problems(Units.OPERATOR), limit=st.integers(1, 12))
def test_subplans_are_connected_small_and_in_post_order(problem: PlacementProblem, limit: int) -> None:
    subplans = cut(problem, limit)
    assert sorted(o for members in subplans for o in members) == list(range(len(problem.sites)))
    seen: set[int] = set()
    for members in subplans:
        assert len(members) <= limit
        tops = [i for i in members if not any(i in problem.sites[j].inputs for j in members)]
        assert tops == [members[-1]]
        assert all(c in seen or c in members for i in members for c in problem.sites[i].inputs)
        seen.update(members)


# The shapes of Table 2: every branch is SELECT→AGG, a PROJECT stands on the root.

Tree = str | tuple["Tree", "Tree"]
FIVE: Tree = ((("a", "b"), "c"), ("d", "e"))
EIGHT: Tree = (((FIVE, "f"), "g"), "h")
COSTS = {
    "select": (0.10, 0.50, 0.30, 0.30),
    "aggregate": (0.90, 0.15, 0.05, 0.05),
    "join": (0.20, 0.10, 0.10, 0.10),
    "project": (0.10, 0.05, 0.05, 0.05),
}


def multiway_join(tree: Tree, scale: float = 1.0, spread: float = 0.0) -> PlacementProblem:
    random = np.random.default_rng(1)
    sites: list[Site] = []

    def add(kind: str, *inputs: int) -> int:
        spe, db, send, fetch = (scale * float(1 + spread * random.random()) * u for u in COSTS[kind])
        sites.append(Site(inputs, spe, db, send, fetch))
        return len(sites) - 1

    def build(part: Tree) -> int:
        if isinstance(part, str):
            return add("aggregate", add("select"))
        return add("join", build(part[0]), build(part[1]))

    add("project", build(tree))
    return PlacementProblem(tuple(sites), fixed=0.1)


def balanced(branches: int) -> Tree:
    return "x" if branches == 1 else (balanced(branches // 2), balanced(branches - branches // 2))


def left_deep(branches: int) -> Tree:
    tree: Tree = "x"
    for _ in range(branches - 1):
        tree = (tree, "x")
    return tree


@pytest.mark.parametrize(
    ("tree", "operators", "plans"), [(("a", "b"), 6, 11), (FIVE, 15, 312), (EIGHT, 24, 8411), (left_deep(5), 15, 284)]
)
def test_plans_examined(tree: Tree, operators: int, plans: int) -> None:
    problem = multiway_join(tree)
    assert len(problem.sites) == operators
    assert enumerate_placements(problem).examined == plans


def test_unary_plans_examined() -> None:
    chain = PlacementProblem(tuple(Site((i - 1,) if i else (), 0.2, 0.1, 0.1, 0.1) for i in range(20)), fixed=0.1)
    assert enumerate_placements(chain).examined == 21


@pytest.mark.parametrize("scale", [0.05, 0.2, 0.5, 1.0, 3.0])
def test_searches_agree_on_the_eight_way_join(scale: float) -> None:
    problem = multiway_join(EIGHT, scale, spread=0.2)
    exact, enumerated = place(problem), enumerate_placements(problem)
    assert_best(exact, problem, enumerated.cost.key)
    assert exact.proven
    decomposed = place_decomposed(problem)
    assert not decomposed.proven
    assert decomposed.examined < enumerated.examined
    assert decomposed.cost.key >= exact.cost.key or decomposed.cost.key == pytest.approx(exact.cost.key)


@pytest.mark.parametrize("tree", [balanced(200), left_deep(200)], ids=["balanced", "left-deep"])
@pytest.mark.parametrize("scale", [0.1, 3.0], ids=["feasible", "infeasible"])
def test_two_hundred_way_join(tree: Tree, scale: float) -> None:
    problem = multiway_join(tree, scale, spread=0.01)
    assert len(problem.sites) == 600
    found = place(problem)
    assert found.proven
    assert found.cost.feasible == (scale < 1.0)
    assert found.cost <= place_decomposed(problem).cost
    assert found.cost <= min(evaluate(problem, [False] * 600), evaluate(problem, [True] * 600))


@pytest.mark.parametrize("units", list(Units))
def test_long_chain(units: Units) -> None:
    sites = tuple(Site((i - 1,) if i else (), 0.02 + i % 3 / 50, 0.03, 0.1, 0.1) for i in range(1500))
    chain = PlacementProblem(sites, fixed=0.1, units=units)
    found = place(chain)
    assert found.cost <= min(evaluate(chain, [False] * 1500), evaluate(chain, [True] * 1500))


@pytest.mark.parametrize("search", [*SEARCHES, place_decomposed])
def test_an_operator_that_no_engine_can_run(search: Search) -> None:
    problem = PlacementProblem((Site((), 1, 1, 0, 0), Site((0,), inf, inf, 0, 0)), fixed=0.1)
    with pytest.raises(ValueError, match="operator 1 "):
        search(problem)


@pytest.mark.parametrize("search", SEARCHES)
def test_a_full_unit_is_feasible_in_any_order_of_summation(search: Search) -> None:
    """Ten times 0.1 is a little less than 1, or a little more, by how it is added up."""
    chain = PlacementProblem(tuple(Site((i - 1,) if i else (), 0.5, 0.1, 1, 0) for i in range(10)), fixed=0.0)
    assert search(chain).in_db == (True,) * 10


def test_the_pruning_principle_needs_the_second_pass() -> None:
    """Below a unit of 9, the part with the smaller bottleneck (2, not 3) has the larger utilization (4, not 3)."""
    part = (Site((), spe=2, db=1.5, send=1, fetch=1), Site((0,), spe=2, db=1.5, send=1, fetch=0))
    assert evaluate(PlacementProblem(part, fixed=0), (False, False)) == PlanCost(2, 4)
    assert evaluate(PlacementProblem(part, fixed=0), (True, True)) == PlanCost(3, 3)
    assert enumerate_placements(PlacementProblem(part, fixed=0)).in_db == (False, False)
    whole = PlacementProblem((*part, Site((1,), spe=9, db=inf, send=0, fetch=0)), fixed=0)
    assert enumerate_placements(whole).in_db == (True, True, False)


def test_runner_up_of_a_large_plan() -> None:
    problem = multiway_join(left_deep(60), 0.1, spread=0.01)
    best = place(problem)
    second = second_best(problem, best)
    assert second is not None
    assert second.in_db != best.in_db
    assert best.cost <= second.cost
