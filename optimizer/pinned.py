"""Plans that a person decides on: a plan kept in a file, or every operator in one engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from optimizer.algebra import RelationToStream, operators
from optimizer.engines import SPARK
from optimizer.errors import HintError
from optimizer.explain.document import PlanDocument
from optimizer.join_order.eager_aggregation import forms
from optimizer.join_order.phase_one import View, order_joins
from optimizer.optimize import Optimized
from optimizer.physical import PhysicalPlan, Where, operator_ids, physical_plan, placement_problem


def everywhere(optimized: Optimized, where: Where) -> PhysicalPlan:
    """The same logical plan with every operator in one engine, but for those that it cannot run."""
    tree, costing = optimized.plan.tree, optimized.costing
    wanted = where is Where.DB
    in_db = [
        wanted if (costing.database if wanted else SPARK).lacks(node) is None else not wanted
        for node in operators(tree)
    ]
    return physical_plan(tree, costing, optimized.problem, in_db)


def placed(optimized: Optimized, in_db: list[bool]) -> PhysicalPlan:
    """The same logical plan under a placement of one's own, operators in post-order."""
    return physical_plan(optimized.plan.tree, optimized.costing, optimized.problem, in_db)


def pinned(document: PlanDocument, optimized: Optimized) -> PhysicalPlan:
    """The plan of a file, for the query and catalog at hand; its costs are today's."""
    if document.database != optimized.options.database:
        raise HintError(f"the kept plan is for {document.database}, not {optimized.options.database}: add --db")
    where = {o.id: o.engine == "db" for o in document.operators}
    plan = found_again(document.id, where, document.search.join_orders, optimized)
    if plan is None:
        raise HintError(
            f"the kept plan {document.id} is not a plan of this query over this catalog; "
            "explain the query again and keep the new plan"
        )
    return plan


def found_again(
    plan_id: str, in_db: Mapping[str, bool], join_orders: Sequence[str], optimized: Optimized
) -> PhysicalPlan | None:
    """The plan with this id, of the query and catalog at hand; `in_db` has all its operators, by id."""
    costing = optimized.costing
    for tree in _logical_plans(join_orders, optimized):
        ids = operator_ids(tree)
        names = [ids[id(node)] for node in operators(tree)]
        if set(names) == set(in_db):
            problem = placement_problem(tree, costing, optimized.options.unit_rule)
            plan = physical_plan(tree, costing, problem, [in_db[name] for name in names])
            if plan.id == plan_id:
                return plan
    return None


def _logical_plans(join_orders: Sequence[str], optimized: Optimized) -> Iterator[RelationToStream]:
    """Every form of the query in the orders that phase one would give it, and in those given."""
    yield optimized.plan.tree
    yield optimized.written
    options = optimized.options
    for form in forms(optimized.written, optimized.costing.estimator, optimized.catalog):
        for order in (None, *join_orders):
            for view in View:
                try:
                    yield order_joins(form, optimized.costing, view, options.pair_budget, order).plan
                except HintError:
                    continue  # an order of another form of the query
