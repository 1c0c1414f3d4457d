"""The rate at which a plan stops being feasible: all streams scaled together until the busiest unit is full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, log

from optimizer.algebra import RelationToStream, Window, leaves
from optimizer.catalog import Catalog
from optimizer.costing import Costing
from optimizer.physical import placement_problem
from optimizer.placement.problem import Units, evaluate

_LARGEST, _SMALLEST = 1e12, 1e-3  # tuples per second
_PRECISION = 1.001


@dataclass(frozen=True, slots=True)
class MaxRate:
    """Tuples per second over all streams, and for each; None where no rate makes the plan infeasible, or all do."""

    total: float | None
    streams: Mapping[str, float]
    note: str = ""


def max_rate(
    tree: RelationToStream, in_db: Sequence[bool], catalog: Catalog, costing: Costing, units: Units
) -> MaxRate:
    names = sorted({leaf.stream for leaf in leaves(tree) if isinstance(leaf, Window)})
    now = {name: costing.estimator.rate(name).value for name in names}
    total = sum(now.values())

    def bottleneck(factor: float) -> float:
        scaled = catalog.with_rates({name: rate * factor for name, rate in now.items()})
        there = Costing.of(tree, scaled, costing.engines.profile, costing.database)
        cost = evaluate(placement_problem(tree, there, units), in_db).bottleneck
        return cost if isfinite(cost) else inf

    low = high = 1.0
    at_low = at_high = bottleneck(1.0)
    if at_low <= 1.0:
        while at_high <= 1.0:
            low, at_low = high, at_high
            high *= 8
            if high * total > _LARGEST:
                return MaxRate(None, {}, "feasible at any rate")
            at_high = bottleneck(high)
    else:
        while at_low > 1.0:
            high, at_high = low, at_low
            low /= 8
            if low * total < _SMALLEST:
                return MaxRate(None, {}, "infeasible at any rate")
            at_low = bottleneck(low)
    # False position, every other step a bisection so that neither end stays for long.
    halve = False
    while high / low > _PRECISION:
        share = 0.5 if halve or not isfinite(at_high) else log(1.0 / at_low) / log(at_high / at_low)
        middle = low * (high / low) ** min(max(share, 0.02), 0.98)
        at_middle = bottleneck(middle)
        if at_middle <= 1.0:
            low, at_low = middle, at_middle
        else:
            high, at_high = middle, at_middle
        halve = not halve
    return MaxRate(total * low, {name: rate * low for name, rate in now.items()})
