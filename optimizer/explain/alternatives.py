"""The plans that were not taken: all-Spark, all-database, and the best rejected placement and join order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from costmodel.cost import PlanCost
from optimizer.algebra import (
    Aggregate,
    Join,
    Node,
    Project,
    RelationToStream,
    Select,
    StoredTable,
    Window,
    operators,
    post_order,
)
from optimizer.engines import SPARK, Engine
from optimizer.hints import forced
from optimizer.join_order.phase_one import View, second_order
from optimizer.maximum import MaxRate, max_rate
from optimizer.optimize import Optimized, search_placement
from optimizer.physical import operator_ids, placement_problem
from optimizer.placement.problem import evaluate
from optimizer.placement.runner_up import second_best


@dataclass(frozen=True, slots=True)
class Alternative:
    """A plan beside the chosen one. `cost` is missing where an engine cannot run it, and `note` says why.

    `max_rate` is worked out only where it was asked why not.
    """

    name: str
    cost: PlanCost | None
    max_rate: MaxRate | None
    in_spark: tuple[str, ...]
    in_database: tuple[str, ...]
    note: str = ""


def pure_plans(optimized: Optimized, limits: bool) -> list[Alternative]:
    """Every operator in one engine: what one would run without a federated optimizer."""
    tree = optimized.plan.tree
    count = len(optimized.problem.sites)
    return [
        _pure("all in spark", optimized, tree, (False,) * count, SPARK, limits),
        _pure(f"all in {optimized.database.name}", optimized, tree, (True,) * count, optimized.database, limits),
    ]


def _pure(
    name: str, optimized: Optimized, tree: RelationToStream, in_db: tuple[bool, ...], engine: Engine, limits: bool
) -> Alternative:
    for node, site in zip(operators(tree), optimized.problem.sites, strict=True):
        if (site.spe if engine is SPARK else site.db) == inf:
            needs = f"{engine.name} has no {engine.lacks(node)}, which {operator_ids(tree)[id(node)]} needs"
            return Alternative(name, None, None, (), (), f"not possible: {needs}")
    return _alternative(name, optimized, tree, in_db, limits)


def rejected_plans(optimized: Optimized) -> list[Alternative]:
    """The second-best placement of the chosen logical plan, and the best placement of the second-best join order."""
    found = []
    options, tree = optimized.options, optimized.plan.tree
    problem = forced(optimized.problem, tree, options.hints, optimized.database)
    runner_up = second_best(problem, search_placement(problem, options))
    if runner_up is not None:
        found.append(_alternative("second-best placement", optimized, tree, runner_up.in_db))
    if options.hints.phase_one and options.hints.join_order is None:
        other = _second_join_order(optimized)
        if other is not None:
            found.append(other)
    return found


def _second_join_order(optimized: Optimized) -> Alternative | None:
    view = View(optimized.search.view)
    tree, options, costing = optimized.plan.tree, optimized.options, optimized.costing
    best: tuple[PlanCost, RelationToStream, tuple[bool, ...]] | None = None
    for node in second_order(tree, costing, view, options.pair_budget):
        other = RelationToStream(node, tree.emission, tree.items)
        problem = placement_problem(other, costing, options.unit_rule)
        placement = search_placement(problem, options)
        if best is None or placement.cost < best[0]:
            best = (placement.cost, other, placement.in_db)
    if best is None:
        return None
    return _alternative("second-best join order", optimized, best[1], best[2])


def _alternative(
    name: str, optimized: Optimized, tree: RelationToStream, in_db: Sequence[bool], limits: bool = True
) -> Alternative:
    units = optimized.options.unit_rule
    same = tree is optimized.plan.tree
    problem = optimized.problem if same else placement_problem(tree, optimized.costing, units)
    ids = operator_ids(tree)
    names = [ids[id(node)] for node in operators(tree)]
    limit = max_rate(tree, in_db, optimized.costing, units) if limits else None
    note = "" if same else join_shape(tree)
    return Alternative(
        name,
        evaluate(problem, in_db),
        limit,
        tuple(n for n, db in zip(names, in_db, strict=True) if not db),
        tuple(n for n, db in zip(names, in_db, strict=True) if db),
        note,
    )


def join_shape(tree: RelationToStream) -> str:
    """The order of a plan's topmost joins in one line."""

    def shape(node: Node) -> str:
        match node:
            case Join():
                return f"({shape(node.left)} ⋈ {shape(node.right)})"
            case Aggregate() | Window() | StoredTable():
                return node.alias
            case Select() | Project():
                return shape(node.input)

    top = next((node for node in reversed(list(post_order(tree))) if isinstance(node, Join)), None)
    return shape(top) if top is not None else ""
