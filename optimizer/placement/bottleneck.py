"""The smallest bottleneck any placement has where every operator is a unit: the second of the exact search's programs.

Whether all units can stay within B is one pass over the tree: the smallest open DB-op per operator, subject to
everything closed below being within B, is all there is to know. The smallest such B lies between two numbers that a
pass gives for free: the largest u it has accepted (with that as B it would go the same way) and the smallest u it has
rejected (so would it with any B below). Halving between them ends on a u that some plan really has, not near it.
"""

from __future__ import annotations

from math import inf

from optimizer.placement.cheapest import Prices
from optimizer.placement.limits import exceeds


def smallest_bottleneck(p: Prices, low: float, high: float) -> float:
    """The smallest bottleneck from `low` up; no unit needs more than `high`.

    >>> smallest_bottleneck(Prices([()], spe=[3.0], db=[1.5], send=[0.0], close=[0.5]), low=1.0, high=9.0)
    2.0
    """
    fits, largest, rejected = _fits(p, low)
    if fits:
        return low
    low = rejected
    while exceeds(high, low):
        middle = (low + high) / 2
        fits, largest, rejected = _fits(p, middle)
        if fits:
            high = max(low, largest)
        else:
            low = min(rejected, high)
    return high


def _fits(p: Prices, limit: float) -> tuple[bool, float, float]:
    """Can every unit stay within the limit? With the largest u that has been accepted and the smallest rejected."""
    largest, rejected = 0.0, inf
    spe_fits: list[bool] = []  # a plan rooted at the operator's SPE-op fits
    ends: list[bool] = []  # any plan fits
    smallest_open: list[float] = []
    for i, inputs in enumerate(p.inputs):
        u = p.spe[i]
        spe, total = True, p.db[i]
        for c in inputs:
            spe = spe and ends[c]
            sent = p.send[c] if spe_fits[c] else inf
            total += sent if sent < smallest_open[c] else smallest_open[c]
        if not exceeds(u, limit):
            largest = max(largest, u)
        else:
            rejected = min(rejected, u)
            spe = False
        db_op = total + p.close[i]
        if not exceeds(db_op, limit):
            largest = max(largest, db_op)
            ends.append(True)
        else:
            rejected = min(rejected, db_op)
            ends.append(spe)
        spe_fits.append(spe)
        smallest_open.append(total)
    return ends[-1], largest, rejected
