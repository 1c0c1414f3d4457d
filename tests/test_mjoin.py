"""Ordering of mjoin pipelines: the algorithms against all legal permutations, priced here from first principles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from itertools import combinations, permutations
from random import Random
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from optimizer.join_order import dmjoin, f_greedy, fab, q_aware, tree_opt
from optimizer.join_order.mjoin import Charge, Shape, StreamGraph, cpu_cost, pipeline_cost, shape
from service.bench import qaware

ALGORITHMS = (dmjoin, f_greedy, tree_opt, fab, q_aware)
ACYCLIC = (Shape.LINEAR, Shape.STAR, Shape.ACYCLIC)

Edge = tuple[int, int]


@st.composite
def graphs(draw: st.DrawFn, kinds: tuple[Shape, ...] = tuple(Shape), max_n: int = 6) -> StreamGraph:
    """Graphs drawn as one of `kinds`; small ones may be simpler than that, as a tree of three streams is linear."""
    n = draw(st.integers(1, max_n))
    kind = draw(st.sampled_from(kinds))
    rates = draw(st.lists(st.floats(0.1, 100), min_size=n, max_size=n))
    names = draw(st.permutations(range(n)))
    edges = [(names[i], names[j]) for i, j in draw(edge_lists(kind, n))]
    sigmas = draw(st.lists(st.floats(1e-4, 1), min_size=len(edges), max_size=len(edges)))
    joins = dict(zip(edges, sigmas, strict=True))
    return StreamGraph.of(tuple(rates), joins, draw(st.floats(0.05, 10)), draw(st.sampled_from(Charge)))


@st.composite
def edge_lists(draw: st.DrawFn, kind: Shape, n: int) -> list[Edge]:
    if kind is Shape.LINEAR:
        return [(i - 1, i) for i in range(1, n)]
    if kind is Shape.STAR:
        return [(0, i) for i in range(1, n)]
    if kind is Shape.COMPLETE:
        return list(combinations(range(n), 2))
    tree = [(draw(st.integers(0, i - 1)), i) for i in range(1, n)]
    others = [edge for edge in combinations(range(n), 2) if edge not in tree]
    extra = draw(st.sets(st.sampled_from(others))) if kind is Shape.CYCLIC and others else set()
    return tree + sorted(extra)


def joins_on(graph: StreamGraph, i: int, j: int) -> bool:
    return (min(i, j), max(i, j)) in graph.edges


def is_legal(graph: StreamGraph, start: int, pipeline: tuple[int, ...]) -> bool:
    """Every other stream once, each sharing an edge with the start or a stream before it."""
    if sorted((start, *pipeline)) != list(range(len(graph.rates))):
        return False
    before = [(start, *pipeline[:k]) for k in range(len(pipeline))]
    return all(any(joins_on(graph, s, b) for b in joined) for s, joined in zip(pipeline, before, strict=True))


def probing(graph: StreamGraph, start: int, pipeline: tuple[int, ...]) -> float:
    """The sum of equation (2) as it is printed: a product of rates, windows and selectivities for each probe."""
    total = 0.0
    for i in range(1, len(pipeline) + 1):
        term = graph.rates[start] * graph.window**i
        for stream in pipeline[:i]:
            term *= graph.rates[stream]
        selective = pipeline[: i - 1] if graph.charge is Charge.PAIRS else pipeline[:i]
        for a, b in combinations((start, *selective), 2):
            if joins_on(graph, a, b):
                term *= graph.selectivity[a][b]
        total += term
    return total


def cheapest(graph: StreamGraph, start: int) -> float:
    others = [stream for stream in range(len(graph.rates)) if stream != start]
    return min(probing(graph, start, p) for p in permutations(others) if is_legal(graph, start, p))


def costs(graph: StreamGraph, algorithm: ModuleType) -> Iterator[float]:
    for start, pipeline in enumerate(algorithm.order(graph)):
        yield probing(graph, start, pipeline)


def test_cost_by_hand() -> None:
    # A triangle, W = 2. From stream 0: (1, 2) compares 2·(3·2) = 12 pairs; 12·0.5 = 6 tuples go on; 6·(5·2) = 60 pairs.
    graph = replace(
        StreamGraph.of((2.0, 3.0, 5.0), {(0, 1): 0.5, (0, 2): 0.1, (1, 2): 0.2}, window=2.0),
        c_insert=1.0,
        c_delete=2.0,
        c_join=10.0,
    )
    assert pipeline_cost(graph, 0, (1, 2)) == pytest.approx(2 * (1 + 2) + 10 * (12 + 60))
    # The same by matches: 6 and 60·0.1·0.2 = 1.2, for stream 2 meets both selectivities.
    by_matches = replace(graph, charge=Charge.MATCHES)
    assert pipeline_cost(by_matches, 0, (1, 2)) == pytest.approx(2 * (1 + 2) + 10 * (6 + 1.2))
    # From stream 1: (0, 2) compares 3·4 = 12, then 6·10 = 60. From stream 2: (0, 1) compares 5·4 = 20, then 2·6 = 12.
    assert cpu_cost(graph, ((1, 2), (0, 2), (0, 1))) == pytest.approx(10 * 3 + 10 * (72 + 72 + 32))


@given(graphs())
def test_cost_is_equation_2(graph: StreamGraph) -> None:
    graph = replace(graph, c_insert=3.0, c_delete=4.0, c_join=5.0)
    for start, pipeline in enumerate(f_greedy.order(graph)):
        expected = 7.0 * graph.rates[start] + 5.0 * probing(graph, start, pipeline)
        assert pipeline_cost(graph, start, pipeline) == pytest.approx(expected)


@settings(max_examples=200, deadline=None)
@given(graphs())
def test_dmjoin_equals_brute_force(graph: StreamGraph) -> None:
    for start, cost in enumerate(costs(graph, dmjoin)):
        assert cost == pytest.approx(cheapest(graph, start), rel=1e-9)


@settings(max_examples=400, deadline=None)
@given(graphs(ACYCLIC, max_n=9))
def test_tree_opt_is_optimal_on_acyclic_graphs(graph: StreamGraph) -> None:
    assert list(costs(graph, tree_opt)) == pytest.approx(list(costs(graph, dmjoin)), rel=1e-9)


@settings(max_examples=400, deadline=None)
@given(graphs(max_n=9))
def test_every_pipeline_is_legal_and_none_beats_dmjoin(graph: StreamGraph) -> None:
    optimum = list(costs(graph, dmjoin))
    for algorithm in ALGORITHMS:
        assert all(is_legal(graph, start, p) for start, p in enumerate(algorithm.order(graph)))
        assert all(c >= o * (1 - 1e-9) for c, o in zip(costs(graph, algorithm), optimum, strict=True))


@given(graphs(max_n=7))
def test_one_pipeline_is_the_one_in_order(graph: StreamGraph) -> None:
    for algorithm in ALGORITHMS:
        assert algorithm.order(graph) == tuple(algorithm.pipeline(graph, start) for start in range(graph.n))


@given(graphs(max_n=8))
def test_fab_is_no_worse_than_its_parts(graph: StreamGraph) -> None:
    for start, pipeline in enumerate(fab.order(graph)):
        backward = fab.global_impact_pipeline(graph, start, Charge.MATCHES)
        parts = [probing(graph, start, p) for p in (f_greedy.pipeline(graph, start), backward)]
        assert probing(graph, start, pipeline) <= min(parts) * (1 + 1e-9)


@given(graphs(kinds=(Shape.COMPLETE,), max_n=7))
def test_global_impact_is_the_product_over_the_remaining_streams(graph: StreamGraph) -> None:
    def impact(streams: set[int]) -> float:
        product = 1.0
        for stream in streams:
            product *= graph.rates[stream]
        for a, b in combinations(streams, 2):
            product *= graph.selectivity[a][b]
        return product

    left = set(range(graph.n))
    for last in reversed(fab.global_impact_pipeline(graph, 0, Charge.MATCHES)):
        assert impact(left - {last}) <= min(impact(left - {s}) for s in left - {0}) * (1 + 1e-9)
        left.remove(last)


def test_q_aware_follows_the_shape() -> None:
    # Graphs on which the two algorithms differ, so that the wrong one would show.
    rates = (40.0, 30.0, 20.0, 10.0)
    square = StreamGraph.of(rates, {(0, 1): 0.9, (1, 2): 0.01, (2, 3): 0.9, (0, 3): 0.5})
    assert q_aware.order(square) == fab.order(square) != tree_opt.order(square)
    tree = StreamGraph.of((50.0, 50.0, 50.0, 1.0, 10.0), {(0, 1): 0.5, (0, 2): 0.6, (0, 3): 0.9, (3, 4): 0.7})
    assert q_aware.order(tree) == tree_opt.order(tree) != fab.order(tree)


def test_f_greedy_is_not_optimal() -> None:
    # Stream 3 is the smaller first step, but 1 opens the way to 2, which leaves next to nothing to probe with.
    graph = StreamGraph.of((1.0, 9.0, 9.0, 8.0), {(0, 1): 1.0, (1, 2): 0.001, (0, 3): 1.0})
    assert f_greedy.pipeline(graph, 0) == (3, 1, 2)
    assert tree_opt.pipeline(graph, 0) == dmjoin.pipeline(graph, 0) == (1, 2, 3)


@pytest.mark.parametrize(
    ("n", "edges", "expected"),
    [
        (1, [], Shape.LINEAR),
        (2, [(0, 1)], Shape.LINEAR),
        (3, [(0, 1), (0, 2)], Shape.LINEAR),
        (3, [(0, 1), (0, 2), (1, 2)], Shape.COMPLETE),
        (4, [(2, 0), (0, 3), (3, 1)], Shape.LINEAR),
        (4, [(2, 0), (2, 1), (2, 3)], Shape.STAR),
        (5, [(0, 1), (0, 2), (0, 3), (3, 4)], Shape.ACYCLIC),
        (4, [(0, 1), (1, 2), (2, 3), (0, 3)], Shape.CYCLIC),
        (4, list(combinations(range(4), 2)), Shape.COMPLETE),
    ],
)
def test_shape(n: int, edges: list[Edge], expected: Shape) -> None:
    assert shape(StreamGraph.of((1.0,) * n, dict.fromkeys(edges, 0.5))) is expected


def test_an_edge_of_selectivity_one_is_an_edge() -> None:
    assert shape(StreamGraph.of((1.0,) * 3, {(0, 1): 1.0, (1, 2): 1.0, (0, 2): 1.0})) is Shape.COMPLETE


def test_unconnected_parts_are_linked_at_their_slowest_streams() -> None:
    graph = StreamGraph.of((9.0, 4.0, 7.0, 3.0, 5.0), {(0, 1): 0.5, (2, 3): 0.5})
    assert graph.edges == ((0, 1), (1, 3), (2, 3), (3, 4))
    assert graph.selectivity[1][3] == 1.0
    with pytest.raises(ValueError, match="not connected"):
        replace(graph, edges=((0, 1), (2, 3)))


@pytest.mark.parametrize(
    ("rates", "joins", "message"),
    [
        ((1.0, 0.0), {(0, 1): 0.5}, "rates"),
        ((1.0, 1.0), {(0, 1): 0.0}, "selectivities"),
        ((1.0, 1.0), {(0, 1): 1.5}, "selectivities"),
        ((1.0, 1.0), {(1, 1): 0.5}, "itself"),
    ],
)
def test_refuses(rates: tuple[float, ...], joins: dict[Edge, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StreamGraph.of(rates, joins)


def test_dmjoin_refuses_what_it_cannot_hold() -> None:
    n = dmjoin.MAX_STREAMS + 1
    with pytest.raises(ValueError, match="q_aware"):
        dmjoin.order(StreamGraph.of((1.0,) * n, {(0, i): 0.5 for i in range(1, n)}))


@pytest.mark.parametrize("charge", Charge)
def test_twenty_fast_streams_do_not_overflow(charge: Charge) -> None:
    rates = tuple(100.0 - i for i in range(20))
    tree = {((i - 1) // 2, i): 1.0 - i / 40 for i in range(1, 20)}
    graph = StreamGraph.of(rates, tree, window=3600.0, charge=charge)
    assert cpu_cost(graph, tree_opt.order(graph)) == pytest.approx(cpu_cost(graph, dmjoin.order(graph)), rel=1e-9)
    assert cpu_cost(graph, fab.order(graph)) < float("inf")


@pytest.mark.parametrize("expected", Shape)
def test_bench_graphs_have_their_shape(expected: Shape) -> None:
    graph = qaware.random_graph(Random(1), 7, expected, Charge.MATCHES)
    assert (shape(graph), graph.n, graph.charge) == (expected, 7, Charge.MATCHES)


def test_bench_measures_against_the_optimum() -> None:
    report = qaware.run(settings=8, max_n=5, seed=1)
    assert [(cell.n, cell.settings) for cell in report.cells] == [(n, 8) for n in (3, 4, 5) for _ in range(10)]
    tree = [claim for claim in report.claims if claim.text.startswith("TreeOpt")]
    assert [(claim.charge, claim.met, claim.optimal) for claim in tree] == [(c, True, 1.0) for c in reversed(Charge)]
    greedy = [claim for claim in report.claims if "stars" in claim.text]
    assert [(claim.charge, claim.met) for claim in greedy] == [(Charge.MATCHES, True), (Charge.PAIRS, False)]
    assert json.loads(qaware.to_json(report))["dmjoin_to"] == 5


def test_bench_without_budget_only_times() -> None:
    report = qaware.run(settings=2, max_n=4, budget_seconds=0.0)
    assert (report.dmjoin_to, report.claims) == (2, ())
    assert all(score.worst is None and score.plan_ms > 0 for cell in report.cells for score in cell.scores)
    assert "carried to N = 2" in _text(report)


def _text(report: qaware.Report) -> str:
    console = Console(width=140, record=True, file=StringIO())
    console.print(qaware.render(report))
    return console.export_text()
