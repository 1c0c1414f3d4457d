"""The second best placement: what to show next to the best one, and by how much it is worse.

Any other placement differs from the best in some operator. So the second best is the best of those that are found when
each operator in turn is kept out of the engine it is placed in. What such a placement costs at least is known for all
operators from one pass over the tree, which orders the turns and ends them early, as a rule after a few. A large plan
gets a few turns only, next to the placements that differ from the best in a single operator.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from optimizer.placement.cheapest import inside, outside, prices_of
from optimizer.placement.exact import place
from optimizer.placement.limits import exceeds, start_limit
from optimizer.placement.problem import Placement, PlacementProblem, evaluate

SMALL = 60  # operators, up to which every turn is taken that has to be
TURNS = 10  # in a large plan


def second_best(problem: PlacementProblem, best: Placement, feasibility_check: bool = True) -> Placement | None:
    """The best placement but `best`, which must come from a search of the same kind; None if there is no other.

    >>> from optimizer.placement.problem import Site
    >>> chain = PlacementProblem((Site((), 0.2, 0.1, 0.1, 0.1), Site((0,), 0.9, 0.1, 0.1, 0.1)), fixed=0.1)
    >>> second_best(chain, place(chain)).in_db
    (False, True)
    """
    limit = max(start_limit(problem, feasibility_check), best.cost.bottleneck)
    bounds = sorted((bound, i) for i, bound in enumerate(_least_utilization_otherwise(problem, best)) if bound < inf)
    small = len(problem.sites) <= SMALL
    second = None if small else _best_neighbour(problem, best, [i for _, i in bounds], limit)
    proven = best.proven
    for turn, (bound, i) in enumerate(bounds):
        # A plan as feasible as the best can only be beaten by a smaller Cu.
        if second and not exceeds(second.cost.bottleneck, limit) and second.cost.utilization <= bound:
            break
        if not small and (turn == TURNS or not proven):
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


def _best_neighbour(problem: PlacementProblem, best: Placement, operators: list[int], limit: float) -> Placement | None:
    """The best placement that has one of the operators in the other engine and all else as it is."""
    second: Placement | None = None
    for i in operators:
        in_db = (*best.in_db[:i], not best.in_db[i], *best.in_db[i + 1 :])
        other = Placement(in_db, evaluate(problem, in_db), examined=0)
        if second is None or _better(other, second, limit):
            second = other
    return second


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
