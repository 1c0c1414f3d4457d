"""The default search: the best placement by dynamic programs over the tree, without enumerating plans.

It relies on what `PlacementProblem` says of a DB-op: its u is a sum over its operators, plus transfers at its borders,
plus a fixed part. Then three programs, each needed only if the one before has not settled the matter, find the best
plan in the order of Definition 1 of paper 001 (ties of infeasible plans by Cu):

1. the smallest Cu with no limit on any unit (`cheapest`): the answer if its plan is feasible;
2. the smallest bottleneck (`bottleneck`, or `shared_unit`): at most 1, or else what no plan gets below;
3. the smallest Cu with every unit within the larger of 1 and that (`fronts`).

Where everything is one unit (`Units.LOOP`) Cb is Cu, and the first program is the whole search. The third is exact
too unless a front had to be thinned out, which the placement then says (`proven`).
"""

from __future__ import annotations

from math import inf

from optimizer.placement.bottleneck import smallest_bottleneck
from optimizer.placement.cheapest import Prices, cheapest, inside, prices_of
from optimizer.placement.fronts import FULL, Limits, bound_of, cheapest_in_two_tries, whole
from optimizer.placement.limits import TOLERANCE, bits_of, exceeds, start_limit
from optimizer.placement.problem import Placement, PlacementProblem, Units, evaluate
from optimizer.placement.shared_unit import cheapest_shared, smallest_shared_bottleneck

# How many pairs of partial plans a pass may look at before it gives up on a proof: about half a second. With a shared
# unit there are several passes, and more of them rarely led to a better plan.
BUDGET = 1_000_000
BUDGET_SHARED = 300_000


def place(problem: PlacementProblem, feasibility_check: bool = True) -> Placement:
    """The best placement in the order of `PlanCost`; without the check, the one with the smallest Cu (section 8.4).

    >>> from optimizer.placement.problem import Site
    >>> chain = PlacementProblem((Site((), 0.2, 0.1, 0.1, 0.1), Site((0,), 0.9, 0.1, 0.1, 0.1)), fixed=0.1)
    >>> place(chain)
    Placement(in_db=(True, True), cost=PlanCost(bottleneck=0.4, utilization=0.4), examined=0, proven=True)
    """
    for i, site in enumerate(problem.sites):
        if site.spe == site.db == inf:
            raise ValueError(f"operator {i} can run in neither engine")
    p = prices_of(problem)
    limit = start_limit(problem, feasibility_check)
    found = _placement(problem, cheapest(p, inside(p)))
    if not exceeds(found.cost.bottleneck, limit):
        return found
    if problem.units is Units.OPERATOR:
        limit = smallest_bottleneck(p, limit, found.cost.bottleneck)
    else:
        least = smallest_shared_bottleneck(problem, p, limit, found, BUDGET_SHARED)
        limit = max(limit, least.cost.bottleneck)
    if not exceeds(found.cost.bottleneck, limit):
        return found

    full = round(FULL * (1 + TOLERANCE))
    q = whole(p, limit)
    if problem.units is Units.OPERATOR:
        q = Prices(q.inputs, [u if u <= full else inf for u in q.spe], q.db, q.send, q.close)
        best = cheapest_in_two_tries(q, Limits(full), bound_of(q), BUDGET)
        return _placement(problem, bits_of(best.in_db, len(q.inputs)), best.proven)
    limits = Limits(full, shared=full - round(problem.loop / limit * FULL))
    best = cheapest_shared(q, limits, least, BUDGET_SHARED)
    return _placement(problem, bits_of(best.in_db, len(q.inputs)), best.proven and least.proven)


def _placement(problem: PlacementProblem, in_db: tuple[bool, ...], proven: bool = True) -> Placement:
    return Placement(in_db, evaluate(problem, in_db), examined=0, proven=proven)
