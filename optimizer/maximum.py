"""The rate at which a plan stops being feasible: all streams scaled together until the busiest unit is full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, log

from costmodel.cost import FULL
from costmodel.flow import LARGEST
from optimizer.algebra import RelationToStream, Window, leaves
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


def max_rate(tree: RelationToStream, in_db: Sequence[bool], costing: Costing, units: Units) -> MaxRate:
    names = sorted({leaf.stream for leaf in leaves(tree) if isinstance(leaf, Window)})
    now = {name: costing.estimator.rate(name).value for name in names}
    total = sum(now.values())

    def bottleneck(factor: float) -> float:
        cost = evaluate(placement_problem(tree, costing.at(factor), units), in_db).bottleneck
        return cost if isfinite(cost) else inf

    low = high = 1.0
    at_low = at_high = bottleneck(1.0)
    if at_low <= FULL:
        while at_high <= FULL:
            low, at_low = high, at_high
            # Loads grow at least linearly once the streams dominate, so twice the head room is mostly past the end.
            high *= min(max(2.0 / max(at_high, 0.01), 2.0), 100.0)
            if high * total > _LARGEST:
                return MaxRate(None, {}, "feasible at any rate")
            at_high = bottleneck(high)
    else:
        while at_low > FULL:
            high, at_high = low, at_low
            low /= min(max(2.0 * at_low, 4.0), 1000.0)
            if low * total < _SMALLEST:
                return MaxRate(None, {}, "infeasible at any rate")
            at_low = bottleneck(low)
    # False position on log(rate), log(load), which are nearly linear; an end that stays twice counts half (Illinois).
    below, above = log(at_low), log(min(at_high, LARGEST))
    stayed = 0
    while high / low > _PRECISION:
        share = min(max(-below / (above - below), 0.001), 0.999)
        middle = low * (high / low) ** share
        at_middle = bottleneck(middle)
        if at_middle <= FULL:
            low, below = middle, min(log(at_middle), 0.0)
            above *= 0.5 if stayed < 0 else 1.0
            stayed = -1
        else:
            high, above = middle, log(min(at_middle, LARGEST))
            below *= 0.5 if stayed > 0 else 1.0
            stayed = 1
        if below == 0.0:
            break
    return MaxRate(total * low, {name: rate * low for name, rate in now.items()})
