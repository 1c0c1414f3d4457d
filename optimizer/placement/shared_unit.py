"""What the exact search needs on top where all SPE-ops share one unit (`Units.ENGINE`; paper 001 has no such case).

The shared unit is a limit across the whole plan, as in a knapsack. The smallest bottleneck still follows from a search
in one dimension: the less a DB-op may take, the more work is left to the SPE-ops. The smallest Cu is weakly NP-hard;
a price on the SPE-ops' work (a Lagrange multiplier) in place of the limit gives a good plan, often provably the best,
and prunes the search of fronts that has to follow where it does not.
"""

from __future__ import annotations

from math import inf

from optimizer.placement.cheapest import Prices, inside, outside
from optimizer.placement.fronts import (
    FULL,
    Bound,
    Found,
    Limits,
    bound_of,
    cheapest_in_two_tries,
    cheapest_within,
    whole,
    with_multiplier,
)
from optimizer.placement.limits import TOLERANCE, bits_of, exceeds, int_of
from optimizer.placement.problem import Placement, PlacementProblem, evaluate

PRICES_TRIED = 12


def smallest_shared_bottleneck(
    problem: PlacementProblem, p: Prices, low: float, known: Placement, budget: int
) -> Placement:
    """A placement with the smallest bottleneck from `low` up; `known` is any placement to start from."""
    best, proven = known, True
    limit, halving = low, True
    while exceeds(high := best.cost.bottleneck, low):
        found = _least_spe_work(p, limit, high - problem.loop, budget)
        proven = proven and found.proven
        if found.cost == inf:  # whatever is better than the best has a larger DB-op
            low, limit, halving = limit, (limit + high) / 2, True
            continue
        in_db = bits_of(found.in_db, len(p.inputs))
        best = Placement(in_db, evaluate(problem, in_db), examined=0)
        work = problem.loop + found.cost
        low = max(low, min(limit, work))  # DB-ops within the limit leave at least this work to the SPE-ops
        # The smallest bottleneck is often met soon: look right below it, but not twice in a row.
        halving = work > limit or not halving
        limit = (low + best.cost.bottleneck) / 2
        if not halving:
            limit = max(limit, best.cost.bottleneck * (1 - 2 * TOLERANCE))
    return Placement(best.in_db, best.cost, examined=0, proven=proven)


def _least_spe_work(p: Prices, limit: float, upper: float, budget: int) -> Found:
    """The least work of the SPE-ops with every DB-op within the limit, if it is below `upper`."""
    q = whole(p, limit)
    nothing = [0.0] * len(p.inputs)
    spe_only = Prices(p.inputs, q.spe, [inf if u == inf else 0.0 for u in p.db], nothing, nothing)
    bound = Bound(outside(spe_only, inside(spe_only)))
    limits = Limits(db_op=FULL + 2 * len(p.inputs))  # what rounding to whole numbers may add
    found = cheapest_in_two_tries(q, limits, bound, budget, upper / limit * FULL, free_db=True)
    return Found(found.cost * limit / FULL, found.in_db, found.proven)


def cheapest_shared(p: Prices, limits: Limits, known: Placement, budget: int) -> Found:
    """The cheapest plan within all limits; `known` is one to start from."""
    free = cheapest_in_two_tries(p, Limits(limits.db_op), bound_of(p), budget)
    if _spe_work(p, free.in_db) <= limits.shared:
        return free  # the limit on the shared unit does not matter
    quick = cheapest_within(p, limits, bound_of(p), budget=0)
    if quick.proven:
        return quick
    start = quick if quick.cost < inf else _as_found(p, int_of(known.in_db))
    priced, multiplier = _price(p, limits, free, start)
    if priced.proven:
        return priced
    better = cheapest_within(p, limits, bound_of(p, multiplier), budget, upper=priced.cost)
    return better if better.cost < inf else priced._replace(proven=better.proven)


def _price(p: Prices, limits: Limits, over: Found, within: Found) -> tuple[Found, float]:
    """A cheap plan within all limits and the multiplier that leads to it.

    With a higher price on the SPE-ops' work a plan has less of it and costs more. The price to try next is the one at
    which the best plans on either side of the limit come to the same; if no other plan beats them at that price, it is
    the one with the tightest bound, and the plan within the limit is the best if it reaches that bound.
    """
    multiplier = 0.0
    over_work, within_work = _spe_work(p, over.in_db), _spe_work(p, within.in_db)
    for _ in range(PRICES_TRIED):
        multiplier = max(0.0, (within.cost - over.cost) / (over_work - within_work))
        priced = with_multiplier(p, multiplier)
        found = cheapest_within(priced, Limits(limits.db_op), bound_of(priced), budget=0)
        work = _spe_work(p, found.in_db)
        plan = Found(found.cost - multiplier * work, found.in_db, proven=False)
        reaches = within.cost * (1 - TOLERANCE) <= found.cost - multiplier * limits.shared
        if found.proven and reaches:
            return within._replace(proven=True), multiplier
        if found.cost >= (over.cost + multiplier * over_work) * (1 - TOLERANCE):
            break
        if work > limits.shared:
            over, over_work = plan, work
        elif plan.cost < within.cost:
            within, within_work = plan, work
        else:
            break
    return within._replace(proven=False), multiplier


def _spe_work(p: Prices, in_db: int) -> float:
    return sum(u for i, u in enumerate(p.spe) if not in_db >> i & 1)


def _as_found(p: Prices, in_db: int) -> Found:
    """A placement with its sum at these prices."""
    cost = 0.0
    for i, inputs in enumerate(p.inputs):
        here = in_db >> i & 1
        cost += p.db[i] if here else p.spe[i]
        for c in inputs:
            if in_db >> c & 1 != here:
                cost += p.send[c] if here else p.close[c]
    if in_db >> (len(p.inputs) - 1) & 1:
        cost += p.close[-1]
    return Found(cost, in_db, proven=False)
