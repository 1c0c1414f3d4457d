"""Where the best plan changes with a stream's rate: intervals and the plan that wins each (paper 001, Figure 5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

from optimizer.algebra import Window
from optimizer.errors import HintError
from optimizer.optimize import Optimized, replanned

SAMPLES = 25
_PRECISION = 1.0005
MAX_INTERVALS = 20


@dataclass(frozen=True, slots=True)
class Interval:
    """From one rate to the next, one plan wins; `optimized` is that plan at the lower end."""

    low: float
    high: float
    feasible: bool
    optimized: Optimized


def sweep(optimized: Optimized, stream: str, low: float, high: float) -> list[Interval]:
    """Rates are sampled evenly in ratio, each change is bisected; what wins only between two samples is missed."""
    if stream not in optimized.catalog.streams:
        known = ", ".join(optimized.catalog.streams)
        raise HintError(f"the sweep is over {stream}, which is no stream of the catalog (it has: {known})")
    if not any(isinstance(leaf.node, Window) and leaf.node.stream == stream for leaf in optimized.plan.leaves):
        raise HintError(f"the sweep is over {stream}, which the query does not read")
    if not 0 < low < high <= 1e12:
        raise HintError(f"a sweep goes from a smaller to a larger positive rate, found {low:g}..{high:g}")

    def at(rate: float) -> Optimized:
        return replanned(optimized, {stream: rate})

    rates = [low * (high / low) ** (i / (SAMPLES - 1)) for i in range(SAMPLES)]
    rates[-1] = high
    first = at(low)
    found = [Interval(low, low, first.plan.cost.feasible, first)]
    for rate in rates[1:]:
        _extend(found, found[-1].high, rate, at(rate), at)
    return found


def _same(a: Optimized, b: Optimized) -> bool:
    return a.plan.signature() == b.plan.signature() and a.plan.cost.feasible == b.plan.cost.feasible


def _extend(found: list[Interval], low: float, high: float, there: Optimized, at: Callable[[float], Optimized]) -> None:
    """Brings the intervals up to `high`, where the plan is `there`."""
    last = found[-1]
    while not _same(last.optimized, there) and len(found) < MAX_INTERVALS:
        inside, outside, next_plan = low, high, there
        while outside / inside > _PRECISION:
            middle = sqrt(inside * outside)
            plan = at(middle)
            if _same(last.optimized, plan):
                inside = middle
            else:
                outside, next_plan = middle, plan
        found[-1] = Interval(last.low, outside, last.feasible, last.optimized)
        last = Interval(outside, outside, next_plan.plan.cost.feasible, next_plan)
        found.append(last)
        low = outside
    found[-1] = Interval(last.low, high, last.feasible, last.optimized)
