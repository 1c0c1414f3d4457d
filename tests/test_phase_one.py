"""Phase one against every bushy tree, on random join graphs and on whole queries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from math import isclose, prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.cost import PlanCost
from costmodel.flow import Drive, Flow, Source
from costmodel.operators import Engines
from costmodel.profile import default_profile
from optimizer.errors import HintError
from optimizer.hints import Hints
from optimizer.join_order import dpccp
from optimizer.join_order.dpccp import JoinTree, PairBudgetExceeded
from optimizer.join_order.graph import Condition, JoinGraph, KeyClass
from optimizer.join_order.mjoin import Shape
from optimizer.optimize import Options, optimize

TICKS = 1.0


@dataclass(frozen=True)
class Case:
    sizes: tuple[float, ...]
    rates: tuple[float, ...]
    edges: dict[tuple[int, int], float]
    inputs: tuple[PlanCost, ...]
    drive: Drive

    @property
    def graph(self) -> JoinGraph:
        flows = tuple(Flow(r, s, 8.0, True, Source.EXACT) for r, s in zip(self.rates, self.sizes, strict=True))
        conditions = tuple(Condition(1 << i | 1 << j, share) for (i, j), share in self.edges.items())
        return JoinGraph(flows, (), conditions, self.drive, TICKS)


def edges_of(shape: Shape, n: int, draw: st.DrawFn) -> set[tuple[int, int]]:
    match shape:
        case Shape.LINEAR:
            return {(i, i + 1) for i in range(n - 1)}
        case Shape.STAR:
            return {(0, i) for i in range(1, n)}
        case Shape.COMPLETE:
            return set(combinations(range(n), 2))
        case _:
            tree = {(draw(st.integers(0, i - 1)), i) for i in range(1, n)}
            extra = draw(st.sets(st.sampled_from(sorted(combinations(range(n), 2))), max_size=3))
            return tree | (extra if shape is Shape.CYCLIC else set())


@st.composite
def cases(draw: st.DrawFn) -> Case:
    n = draw(st.integers(2, 6))
    edges = edges_of(draw(st.sampled_from(list(Shape))), n, draw)
    # Up to sizes at which single joins take more than a second per second: feasible and infeasible mixed.
    size = st.floats(1, 3e6) if draw(st.booleans()) else st.floats(1, 3e4)
    share = st.sampled_from([1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.5])
    u = st.sampled_from([0.0, 0.2, 0.9, 1.5, 4.0])
    inputs = []
    for _ in range(n):
        bottleneck = draw(u)
        inputs.append(PlanCost(bottleneck, bottleneck + draw(u)))
    return Case(
        tuple(draw(size) for _ in range(n)),
        tuple(draw(st.floats(1, 1e5)) for _ in range(n)),
        {edge: draw(share) for edge in edges},
        tuple(inputs),
        draw(st.sampled_from(list(Drive))),
    )


@dataclass(frozen=True)
class Tried:
    """A bushy tree worked out by hand: its relations, rate, size and units."""

    members: frozenset[int]
    rate: float
    size: float
    bottleneck: float
    utilization: float


def every_tree(case: Case, members: frozenset[int]) -> Iterator[Tried]:
    """All bushy trees without cross products, straight from equations (2), (4), (5) and (6)."""
    if len(members) == 1:
        (i,) = members
        yield Tried(members, case.rates[i], case.sizes[i], case.inputs[i].bottleneck, case.inputs[i].utilization)
        return
    first, *others = sorted(members)
    profile = default_profile()
    spe = profile.spe
    for count in range(len(others)):
        for chosen in combinations(others, count):
            left = frozenset((first, *chosen))
            right = members - left
            crossing = [f for (i, j), f in case.edges.items() if len({i, j} & left) == len({i, j} & right) == 1]
            if not crossing:
                continue
            share = prod(crossing)
            for a in every_tree(case, left):
                for b in every_tree(case, right):
                    size = a.size * b.size * share
                    batches = 1 / profile.batch_interval
                    each = spe.probe if min(a.size, b.size) <= 50_000 else spe.join_in
                    if case.drive is Drive.TUPLE:
                        rate = (a.rate * b.size + b.rate * a.size) * share
                        u = batches * (spe.join + (a.size + b.size) * each) + rate * spe.join_out
                    else:
                        rate = TICKS * size
                        u = min(TICKS, batches) * spe.join + TICKS * (a.size + b.size) * each
                        u += rate * spe.join_out
                    bottleneck = max(a.bottleneck, b.bottleneck, u)
                    yield Tried(members, rate, size, bottleneck, a.utilization + b.utilization + u)


def search(case: Case, keep: int = 1) -> dpccp.Ordered:
    graph = case.graph
    profile = default_profile()
    engines = Engines(profile, profile.databases["duckdb"], case.drive, TICKS)

    def join_cost(left: int, right: int) -> float:
        return engines.spe_join(graph.flow(left), graph.flow(right), graph.flow(left | right))

    return dpccp.order(graph.all, case.inputs, join_cost, dpccp.pairs(graph.neighbours, 10_000), keep)


def definition_1(bottleneck: float, utilization: float) -> tuple[float, float]:
    return (max(bottleneck, 1.0), utilization)


@settings(max_examples=500, deadline=None)
@given(cases())
def test_equals_every_bushy_tree(case: Case) -> None:
    tried = [definition_1(t.bottleneck, t.utilization) for t in every_tree(case, frozenset(range(len(case.sizes))))]
    lowest = min(b for b, _ in tried)
    # Sums in another order differ in the last digits, so ties of the bottleneck are taken with a tolerance.
    best = min(u for b, u in tried if isclose(b, lowest, rel_tol=1e-12))
    found = search(case).cost
    assert isclose(max(found.bottleneck, 1.0), lowest, rel_tol=1e-9)
    assert isclose(found.utilization, best, rel_tol=1e-9)


@settings(max_examples=100, deadline=None)
@given(cases())
def test_second_best_is_second(case: Case) -> None:
    trees = every_tree(case, frozenset(range(len(case.sizes))))
    rounded = ((float(f"{t.bottleneck:.12g}"), t.utilization) for t in trees)  # so that ties of the bottleneck are ties
    tried = sorted(definition_1(bottleneck, utilization) for bottleneck, utilization in rounded)
    second = search(case, keep=2).second
    if len(tried) == 1:
        assert second is None
    else:
        assert second is not None
        # The second of two trees of equal cost costs the same, up to rounding.
        assert isclose(max(second[1].bottleneck, 1.0), tried[1][0], rel_tol=1e-6)
        assert isclose(second[1].utilization, tried[1][1], rel_tol=1e-6)


@pytest.mark.parametrize(
    ("shape", "counts"),
    [
        # Ono and Lohman's closed forms for 2, 3, 4, 5 and 8 relations.
        (Shape.LINEAR, {n: (n**3 - n) // 6 for n in (2, 3, 4, 5, 8)}),
        (Shape.STAR, {n: (n - 1) * 2 ** (n - 2) for n in (2, 3, 4, 5, 8)}),
        (Shape.COMPLETE, {n: (3**n - 2 ** (n + 1) + 1) // 2 for n in (2, 3, 4, 5, 8)}),
    ],
)
def test_counts_of_connected_pairs(shape: Shape, counts: dict[int, int]) -> None:
    for n, count in counts.items():
        edges = edges_of(shape, n, lambda strategy: None)  # type: ignore[arg-type, return-value]
        around = tuple(sum(1 << b if a == i else 1 << a for a, b in edges if i in (a, b)) for i in range(n))
        assert len(dpccp.pairs(around, 100_000)) == count
        assert len(set(dpccp.pairs(around, 100_000))) == count


def test_pair_budget() -> None:
    clique = tuple(0b11111111 & ~(1 << i) for i in range(8))
    assert len(dpccp.pairs(clique, 3025)) == 3025
    with pytest.raises(PairBudgetExceeded):
        dpccp.pairs(clique, 3024)


def test_a_set_has_one_size_however_it_is_joined() -> None:
    """A composite key that four relations share divides by all but its smallest count of values."""
    flows = tuple(Flow(1.0, size, 8.0, False, Source.EXACT) for size in (100.0, 200.0, 400.0, 50.0))
    graph = JoinGraph(flows, (KeyClass((10.0, 20.0, 5.0, 0.0)),), (Condition(0b1100, 0.5),), Drive.SLIDE, 2.0)
    assert isclose(graph.flow(0b0011).size, 100 * 200 / 20)
    assert isclose(graph.flow(0b0111).size, 100 * 200 * 400 / (20 * 10))
    assert isclose(graph.flow(0b1111).size, 100 * 200 * 400 * 50 / (20 * 10) * 0.5)
    assert isclose(graph.flow(0b1111).rate, 2.0 * graph.flow(0b1111).size)


# -- whole queries ----------------------------------------------------------------------------------------------------

CATALOG = """
CREATE STREAM f (ts TIMESTAMP, a INT, b INT, c INT, v DOUBLE, WATERMARK FOR ts AS ts) WITH (rate = 2000);
CREATE STREAM g (ts TIMESTAMP, a INT, d INT, WATERMARK FOR ts AS ts) WITH (rate = 300);
CREATE TABLE tb (b INT PRIMARY KEY, r INT) WITH (rows = 5000);
CREATE TABLE tc (c INT PRIMARY KEY, s INT) WITH (rows = 200000);
CREATE STATISTICS ON f (a) WITH (distinct = 1000);
CREATE STATISTICS ON f (b) WITH (distinct = 5000);
CREATE STATISTICS ON f (c) WITH (distinct = 200000);
CREATE STATISTICS ON g (a) WITH (distinct = 50);
CREATE STATISTICS ON tb (r) WITH (distinct = 100);
CREATE STATISTICS ON tc (s) WITH (distinct = 10);
"""
QUERY = """
SELECT RSTREAM f.v, g.d, tb.r, tc.s
FROM f [RANGE 10 SECONDS SLIDE 1 SECOND], g [RANGE 30 SECONDS SLIDE 1 SECOND], tb, tc
WHERE f.a = g.a AND f.b = tb.b AND f.c = tc.c AND tb.r = 7 AND tc.s = 3
"""


def orders(names: tuple[str, ...]) -> Iterator[str]:
    """All bushy orders without a cross product; f is joined with each of the others."""
    if len(names) == 1:
        yield names[0]
    for count in range(1, len(names)):
        for left in combinations(names, count):
            right = tuple(n for n in names if n not in left)
            if names[0] in left and "f" in left and len(right) == 1:
                yield from (f"({a} {right[0]})" for a in orders(left))


def test_no_forced_order_beats_the_one_found() -> None:
    best = optimize(QUERY, CATALOG)
    forced = {o: optimize(QUERY, CATALOG, Options(hints=Hints(join_order=o))) for o in orders(("f", "g", "tb", "tc"))}
    assert len(forced) == 6
    assert len({round(p.plan.cost.utilization, 9) for p in forced.values()}) > 3
    for text, plan in forced.items():
        assert best.plan.cost <= plan.plan.cost or isclose(
            best.plan.cost.utilization, plan.plan.cost.utilization, rel_tol=1e-9
        ), text


def test_past_the_budget_q_aware_orders_and_says_so() -> None:
    small = optimize(QUERY, CATALOG, Options(pair_budget=3))
    assert "Q-Aware, past the budget of 3 pairs" in small.search.regions[0].algorithm
    assert small.plan.cost >= optimize(QUERY, CATALOG).plan.cost


def test_phase_one_off_keeps_the_order_as_written() -> None:
    plan = optimize(QUERY, CATALOG, Options(hints=Hints(phase_one=False)))
    assert plan.search.view == "as written"
    assert plan.plan.tree == plan.written


@pytest.mark.parametrize(
    ("order", "says"),
    [
        ("(f g)", "does not fit the query, whose joins are:"),
        ("((f g) (tb tc)", "leaves a parenthesis open"),
        ("((f g) (tb tc)))", "closes more parentheses"),
        ("((f g) (tb tc) f)", "names f twice"),
    ],
)
def test_join_orders_that_cannot_hold(order: str, says: str) -> None:
    with pytest.raises(HintError, match=r".*") as error:
        optimize(QUERY, CATALOG, Options(hints=Hints(join_order=order)))
    assert says in str(error.value)


def test_trees_render_as_they_are_read() -> None:
    tree = JoinTree(0b111, JoinTree(0b101, JoinTree(0b001), JoinTree(0b100)), JoinTree(0b010))
    assert tree.render(("a", "b", "c")) == "((a ⋈ c) ⋈ b)"
