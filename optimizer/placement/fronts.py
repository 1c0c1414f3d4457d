"""The smallest sum of costs with no unit over a limit: the third of the exact search's programs.

A plan of a subtree matters to the rest by three numbers only: how full its open DB-op is, how full the unit is that
all SPE-ops share (0 where they share none), and what it costs. Whatever comes above grows with all three, so a plan
that another one equals or beats in each of them is dropped; what is left per operator is a front.

Choosing what to merge into a DB-op is a knapsack, so a front may grow long. Two things keep it short: a plan that
cannot beat a known one is dropped (`Bound`), and once a budget is spent fronts are thinned out, after which nothing is
proven any more. Costs are whole numbers, so that sums are exact and plans that differ by rounding only are equal.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from optimizer.placement.cheapest import Best, Prices, inside, outside

FULL = 10**14  # a unit at its limit, as a whole number
LEAN = 32  # the length of a front that has been thinned out, where no unit is shared

Entry = tuple[float, float, float, int]  # open DB-op, shared unit, cost, the database's operators as bits


@dataclass(frozen=True, slots=True)
class Limits:
    """What a DB-op may take, and all SPE-ops together where they share a unit."""

    db_op: float
    shared: float = inf


@dataclass(frozen=True, slots=True)
class Bound:
    """What a plan costs at least, given a part of it.

    A Lagrangian relaxation: the rest of the plan has no limits, but each SPE-op pays `multiplier` times its u on top,
    which comes back for as much as the shared unit may take. `rest` is what lies outside each operator's subtree.
    """

    rest: Best
    multiplier: float = 0.0


class Found(NamedTuple):
    cost: float  # infinite where nothing was found
    in_db: int
    proven: bool


def whole(p: Prices, limit: float) -> Prices:
    """The prices as whole numbers, `limit` being `FULL`."""

    def column(us: Sequence[float]) -> list[float]:
        return [u if u == inf else round(u / limit * FULL) for u in us]

    return Prices(p.inputs, column(p.spe), column(p.db), column(p.send), column(p.close))


def with_multiplier(p: Prices, multiplier: float) -> Prices:
    return Prices(p.inputs, [u * (1 + multiplier) for u in p.spe], p.db, p.send, p.close)


def bound_of(p: Prices, multiplier: float = 0.0) -> Bound:
    relaxed = with_multiplier(p, multiplier)
    return Bound(outside(relaxed, inside(relaxed)), multiplier)


def cheapest_within(
    p: Prices, limits: Limits, bound: Bound, budget: int, upper: float = inf, free_db: bool = False
) -> Found:
    """The cheapest plan within the limits that costs less than `upper`, if there is one.

    The budget is the number of pairs of partial plans to look at before fronts are thinned out. `free_db` leaves
    DB-ops out of the cost (not out of the limits), so that the work of the SPE-ops is minimized.
    """
    n = len(p.inputs)
    weight = 0 if free_db else 1
    shares = limits.shared < inf
    multiplier = bound.multiplier
    # The multiplier is paid by the whole plan and comes back for what the shared unit may take.
    room = upper + multiplier * limits.shared if shares else upper
    lean = 4 * LEAN if shares else LEAN
    ending = _smallest_ending(p)
    proven = True

    def combine(a: list[Entry], b: list[Entry], db_op: float, rest: float) -> list[Entry]:
        """The front of what can stand side by side within the limits and below the bound."""
        nonlocal budget, proven
        if len(a) * len(b) > budget and max(len(a), len(b)) > lean:
            a, b, proven = _thin(a, lean, multiplier), _thin(b, lean, multiplier), False
        budget -= len(a) * len(b)
        pairs = [
            (o, s, v, m1 | m2)
            for o1, s1, v1, m1 in a
            for o2, s2, v2, m2 in b
            if (o := o1 + o2) <= db_op
            and (s := s1 + s2) <= limits.shared
            and (v := v1 + v2) + multiplier * s < room - rest
        ]
        return front(pairs) if len(pairs) > 1 else pairs

    spe_rooted: list[list[Entry]] = [[]] * n
    db_rooted: list[list[Entry]] = [[]] * n
    closed: list[list[Entry]] = [[]] * n
    for i, inputs in enumerate(p.inputs):
        u, db, end = p.spe[i], p.db[i], p.close[i]
        below: list[Entry] = [(0, u if shares else 0, u, 0)] if u < inf else []
        merged: list[Entry] = [(db, 0, weight * db, 1 << i)] if db < inf else []
        for c in inputs:
            send = p.send[c]
            tops = [(send, s, v + weight * send, m) for _, s, v, m in spe_rooted[c]] + db_rooted[c]
            below = combine(below, closed[c], 0, bound.rest.spe[i])
            merged = combine(merged, tops, limits.db_op - ending[i], bound.rest.db[i])
            spe_rooted[c] = db_rooted[c] = closed[c] = []  # used up
        ended: list[Entry] = [(0, s, v + weight * end, m) for o, s, v, m in merged if o + end <= limits.db_op]
        spe_rooted[i], db_rooted[i], closed[i] = below, merged, front(below + ended)
    plans = [(v, m) for _, s, v, m in closed[-1] if s <= limits.shared and v < upper]
    cost, in_db = min(plans, default=(inf, 0))
    return Found(cost, in_db, proven)


def cheapest_in_two_tries(
    p: Prices, limits: Limits, bound: Bound, budget: int, upper: float = inf, free_db: bool = False
) -> Found:
    """As `cheapest_within`, but first with lean fronts: often that is exact already, and else a plan to prune with."""
    quick = cheapest_within(p, limits, bound, 0, upper, free_db)
    if quick.proven:
        return quick
    better = cheapest_within(p, limits, bound, budget, min(upper, quick.cost), free_db)
    return better if better.cost < inf else Found(quick.cost, quick.in_db, better.proven)


def front(entries: list[Entry]) -> list[Entry]:
    """The entries that no other one equals or beats in all of the three numbers.

    >>> front([(2, 0, 5, 0), (1, 0, 7, 1), (2, 0, 6, 2), (1, 1, 7, 3)])
    [(1, 0, 7, 1), (2, 0, 5, 0)]
    """
    kept: list[Entry] = []
    shared: list[float] = []  # the steps of what has been kept: shared unit up, cost down
    cost: list[float] = []
    for entry in sorted(entries):
        _, s, v, _ = entry
        at = bisect_right(shared, s)
        if at and cost[at - 1] <= v:
            continue
        end = at
        while end < len(cost) and cost[end] >= v:
            end += 1
        shared[at:end], cost[at:end] = [s], [v]
        kept.append(entry)
    return kept


def _thin(entries: list[Entry], lean: int, multiplier: float) -> list[Entry]:
    """Half of what is left are the most promising plans, half spread evenly from the emptiest open DB-op to the
    fullest; the emptiest is among them, so that plans within the limits do not get lost where no unit is shared."""
    if len(entries) <= lean:
        return entries
    half = lean // 2
    step = (len(entries) - 1) / (half - 1)
    spread = {entries[round(k * step)] for k in range(half)}
    promising = sorted(entries, key=lambda e: e[2] + multiplier * e[1])[:half]
    return sorted(spread.union(promising))


def _smallest_ending(p: Prices) -> list[float]:
    """What an open DB-op at each operator needs at least until it ends, there or further up."""
    ending = list(p.close)
    for i in range(len(p.inputs) - 1, -1, -1):
        for c in p.inputs[i]:
            ending[c] = min(ending[c], p.db[i] + ending[i])
    return ending
