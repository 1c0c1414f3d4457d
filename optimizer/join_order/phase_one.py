"""Phase one: the best logical plan (paper 001, section 6).

Every join region is ordered by `dpccp`, innermost regions first; past the pair budget Q-Aware's pipelines (paper 000)
give left-deep trees instead, and the plan says so. Aggregates are pushed below joins and pulled above them where that
is legal (`eager_aggregation`); each such form of the query is ordered and the best is kept. Phase one knows no
placement: it runs once under the stream engine's unit costs, as in the paper, and once under the database's, because
an order that is good in one engine may be poor in the other. Phase two decides between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import exp, inf

from costmodel.cost import NOTHING, PlanCost, of_units
from optimizer.algebra import (
    Join,
    JoinKind,
    Node,
    Relational,
    RelationToStream,
    Scalar,
    Select,
    StoredTable,
    Window,
    inputs,
    operators,
    with_inputs,
)
from optimizer.costing import Costing
from optimizer.errors import HintError
from optimizer.estimate import Estimator
from optimizer.join_order import dpccp, q_aware
from optimizer.join_order.dpccp import JoinTree, Ordered, PairBudgetExceeded
from optimizer.join_order.forced import forced_tree
from optimizer.join_order.graph import JoinGraph
from optimizer.join_order.mjoin import StreamGraph
from optimizer.join_order.region import Region, make_region
from optimizer.rewrite.push_selections import region

PAIR_BUDGET = 10_000
_WIDE = 30  # relations past which only the pipeline of the smallest one is tried


class View(StrEnum):
    """Whose unit costs phase one looks through."""

    SPE = "spe"
    DB = "db"


@dataclass(frozen=True, slots=True)
class RegionReport:
    """How one region was ordered."""

    order: str
    algorithm: str
    pairs: int


@dataclass(frozen=True)
class LogicalPlan:
    """A logical plan, its cost when every operator is a unit of one engine, and how its regions were ordered."""

    plan: RelationToStream
    cost: PlanCost
    regions: tuple[RegionReport, ...]


class Shared:
    """What orderings of one query have in common: regions over the same relations, and the operators of a join tree.

    With the same operators, all that is estimated of them once is known to the next ordering.
    """

    def __init__(self) -> None:
        self._regions: dict[tuple[int, ...], Region] = {}
        self._trees: dict[tuple[int, JoinTree], Node] = {}

    def region(self, relations: tuple[Node, ...], conjuncts: Sequence[Scalar], estimator: Estimator) -> Region:
        key = tuple(id(relation) for relation in relations)
        if key not in self._regions:
            self._regions[key] = make_region(relations, conjuncts, estimator)
        return self._regions[key]

    def built(self, here: Region, tree: JoinTree) -> Node:
        key = (id(here), tree)
        if key not in self._trees:
            self._trees[key] = here.build(tree)
        return self._trees[key]


class _Orderer:
    def __init__(
        self, costing: Costing, view: View, budget: int, forced: str | None, second: bool, shared: Shared | None = None
    ) -> None:
        self.costing = costing
        self.shared = shared if shared is not None else Shared()
        self.view = view
        self.budget = budget
        self.forced = forced
        self.second = second
        self.reports: list[RegionReport] = []
        self.runners_up: list[tuple[Node, Node]] = []

    def u(self, node: Relational) -> float:
        """Infinite costs would hide all differences; phase two knows which engine cannot run an operator."""
        cost = self.costing.cost(node)
        mine, other = (cost.spe, cost.db) if self.view is View.SPE else (cost.db, cost.spe)
        return mine if mine < inf else other

    def visit(self, node: Node) -> tuple[Node, PlanCost]:
        if isinstance(node, Window | StoredTable):
            return node, NOTHING
        if isinstance(node, Join) and node.kind is JoinKind.INNER:
            return self.order(node)
        if isinstance(node, Select) and isinstance(node.input, Join) and node.input.kind is JoinKind.INNER:
            return self.order(node)  # its conjuncts belong to the region
        visited = [self.visit(below) for below in inputs(node)]
        new = with_inputs(node, tuple(below for below, _ in visited))
        assert not isinstance(new, Window | StoredTable)
        return new, _with_unit(_sum(cost for _, cost in visited), self.u(new))

    def order(self, node: Node) -> tuple[Node, PlanCost]:
        found, conjuncts = region(node)
        visited = [self.visit(relation) for relation in found]
        here = self.shared.region(tuple(relation for relation, _ in visited), conjuncts, self.costing.estimator)
        costs = tuple(cost for _, cost in visited)
        ordered, algorithm = self.search(here, costs)
        names = tuple(relation_name(relation) for relation in here.relations)
        self.reports.append(RegionReport(ordered.tree.render(names), algorithm, ordered.pairs))
        built = self.shared.built(here, ordered.tree)
        if ordered.second:
            self.runners_up.append((built, here.build(ordered.second[0])))
        return built, ordered.cost

    def search(self, here: Region, costs: tuple[PlanCost, ...]) -> tuple[Ordered, str]:
        engines, graph = self.costing.engines, here.graph
        price = engines.spe_join if self.view is View.SPE else engines.db_join

        def join_cost(left: int, right: int) -> float:
            return price(graph.flow(left), graph.flow(right), graph.flow(left | right))

        if self.forced is not None:
            names = tuple(relation_name(relation) for relation in here.relations)
            tree = forced_tree(self.forced, names)
            if tree is not None:
                return Ordered(tree, tree_cost(tree, costs, join_cost), 0), "a hint"
        try:
            enumerated = dpccp.pairs(graph.neighbours, self.budget)
        except PairBudgetExceeded:
            return self.fall_back(graph, costs, join_cost), f"Q-Aware, past the budget of {self.budget} pairs"
        ordered = dpccp.order(graph.all, costs, join_cost, enumerated, keep=2 if self.second else 1)
        return ordered, "DP over connected pairs"

    def fall_back(
        self, graph: JoinGraph, costs: tuple[PlanCost, ...], join_cost: Callable[[int, int], float]
    ) -> Ordered:
        streams = stream_graph(graph)
        starts: Sequence[int] = range(len(graph.flows))
        if len(starts) > _WIDE:
            starts = [min(starts, key=lambda i: graph.flows[i].size)]
        trees = [left_deep((start, *q_aware.pipeline(streams, start))) for start in starts]
        rated = [(tree_cost(tree, costs, join_cost), i) for i, tree in enumerate(trees)]
        best, i = min(rated)
        return Ordered(trees[i], best, 0)


def _sum(costs: Iterable[PlanCost]) -> PlanCost:
    bottleneck = utilization = 0.0
    for cost in costs:
        bottleneck, utilization = max(bottleneck, cost.bottleneck), utilization + cost.utilization
    return PlanCost(bottleneck, utilization)


def _with_unit(cost: PlanCost, u: float) -> PlanCost:
    return PlanCost(max(cost.bottleneck, u), cost.utilization + u)


def stream_graph(graph: JoinGraph) -> StreamGraph:
    """The region as paper 000 sees it: a state of W tuples per relation, selectivities between pairs."""
    n = len(graph.flows)
    joins = {
        (i, j): max(min(exp(graph.log_selectivity(1 << i | 1 << j)), 1.0), 1e-12)
        for i in range(n)
        for j in range(i + 1, n)
        if graph.neighbours[i] >> j & 1
    }
    return StreamGraph.of(tuple(max(flow.size, 1e-9) for flow in graph.flows), joins)


def left_deep(relations: Sequence[int]) -> JoinTree:
    tree = JoinTree(1 << relations[0])
    for i in relations[1:]:
        tree = JoinTree(tree.mask | 1 << i, tree, JoinTree(1 << i))
    return tree


def tree_cost(tree: JoinTree, costs: tuple[PlanCost, ...], join_cost: Callable[[int, int], float]) -> PlanCost:
    total = _sum(costs)
    stack = [tree]
    while stack:
        top = stack.pop()
        if top.left is not None and top.right is not None:
            total = _with_unit(total, join_cost(top.left.mask, top.right.mask))
            stack += [top.left, top.right]
    return total


def relation_name(node: Node) -> str:
    """The alias a relation goes by in a join order."""
    while isinstance(node, Select):
        node = node.input
    if isinstance(node, Join):
        return f"({relation_name(node.left)} left {relation_name(node.right)})"
    return node.alias


def order_joins(
    plan: RelationToStream,
    costing: Costing,
    view: View,
    budget: int = PAIR_BUDGET,
    forced: str | None = None,
    shared: Shared | None = None,
) -> LogicalPlan:
    """The best join order of every region of one form of a query."""
    orderer = _Orderer(costing, view, budget, forced, second=False, shared=shared)
    node, cost = orderer.visit(plan.input)
    if forced is not None and not any(r.algorithm == "a hint" for r in orderer.reports):
        found = "; ".join(r.order for r in orderer.reports) or "no join"
        raise HintError(f"the join order {forced} does not fit the query, whose joins are: {found}")
    return LogicalPlan(replace(plan, input=node), cost, tuple(orderer.reports))


def as_written(plan: RelationToStream, costing: Costing) -> LogicalPlan:
    """Phase one switched off: every operator where the query put it."""
    cost = of_units(min(c.spe, c.db) for c in map(costing.cost, operators(plan)))
    return LogicalPlan(plan, cost, ())


def second_order(plan: RelationToStream, costing: Costing, view: View, budget: int = PAIR_BUDGET) -> list[Node]:
    """The plan's input with one region at a time in its second-best order."""
    orderer = _Orderer(costing, view, budget, None, second=True)
    node, _ = orderer.visit(plan.input)
    return [_exchange(node, best, other) for best, other in orderer.runners_up]


def _exchange(node: Node, old: Node, new: Node) -> Node:
    if node is old:
        return new
    return with_inputs(node, tuple(_exchange(below, old, new) for below in inputs(node)))
