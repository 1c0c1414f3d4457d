"""The second best placement: what to show next to the best one, and by how much it is worse.

Any other placement differs from the best in some operator. So the second best is the best of those that are found when
each operator in turn is kept out of the engine it is placed in. What such a placement costs at least is known for all
operators from one pass over the tree, which orders the turns and ends them early, as a rule after a few.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from optimizer.placement.cheapest import inside, outside, prices_of
from optimizer.placement.exact import place
from optimizer.placement.limits import exceeds, start_limit
from optimizer.placement.problem import Placement, PlacementProblem

TURNS = 60  # as many searches, and the answer is not proven if there is more to look at


def second_best(
    problem: PlacementProblem, best: Placement, feasibility_check: bool = True, turns: int = TURNS
) -> Placement | None:
    """The best placement but `best`, which must come from a search of the same kind; None if there is no other.

    >>> from optimizer.placement.problem import Site
    >>> chain = PlacementProblem((Site((), 0.2, 0.1, 0.1, 0.1), Site((0,), 0.9, 0.1, 0.1, 0.1)), fixed=0.1)
    >>> second_best(chain, place(chain)).in_db
    (False, True)
    """
    limit = max(start_limit(problem, feasibility_check), best.cost.bottleneck)
    bounds = sorted((bound, i) for i, bound in enumerate(_least_utilization_otherwise(problem, best)) if bound < inf)
    second: Placement | None = None
    proven = best.proven
    for turn, (bound, i) in enumerate(bounds):
        # A plan as feasible as the best can only be beaten by a smaller Cu.
        if second and not exceeds(second.cost.bottleneck, limit) and second.cost.utilization <= bound:
            break
        if turn == turns:
            proven = False
            break
        found = place(_without(problem, i, best.in_db[i]), feasibility_check)
        proven = proven and found.proven
        if second is None or _better(found, second, limit):
            second = found
    return replace(second, proven=proven) if second else None


def _better(one: Placement, other: Placement, limit: float) -> bool:
    """The order of `PlanCost`, but bottlenecks that differ by rounding are the same."""
    limit = max(limit, min(one.cost.bottleneck, other.cost.bottleneck))
    if exceeds(one.cost.bottleneck, limit) or exceeds(other.cost.bottleneck, limit):
        return one.cost.bottleneck < other.cost.bottleneck
    return one.cost.utilization < other.cost.utilization


def _least_utilization_otherwise(problem: PlacementProblem, best: Placement) -> list[float]:
    """Per operator, the smallest Cu of any plan that has it in the other engine."""
    p = prices_of(problem)
    below = inside(p)
    rest = outside(p, below)
    return [
        problem.loop + (below.spe[i] + rest.spe[i] if here else below.db[i] + rest.db[i])
        for i, here in enumerate(best.in_db)
    ]


def _without(problem: PlacementProblem, i: int, db: bool) -> PlacementProblem:
    """The problem with one engine forbidden to one operator."""
    sites = list(problem.sites)
    sites[i] = replace(sites[i], db=inf) if db else replace(sites[i], spe=inf)
    return replace(problem, sites=tuple(sites))
