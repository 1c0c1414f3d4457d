"""u of one plan at several rates, and where it reaches 1: the plan's maximum throughput (paper 001, Figure 5).

u grows with the rate, and over a short stretch log u is nearly linear in log rate. So what lies between two measured
rates is interpolated, what lies outside is only bounded, and every figure says which of these it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import exp, log

# Rates at which plans are measured, so that windows of one rate serve many of them: steps of at most 1.43.
GRID = tuple(float(step * 10**power) for power in range(1, 6) for step in (10, 14, 20, 28, 40, 50, 70))
COARSE = tuple(r for r in GRID if f"{r:.0f}"[:2] in ("10", "20", "40"))  # where a factor of two tells enough


class Basis(StrEnum):
    """How a figure is known."""

    MEASURED = "measured"
    INTERPOLATED = "interpolated"  # between two measured rates
    AT_MOST = "at most"
    AT_LEAST = "at least"


@dataclass(frozen=True)
class Point:
    rate: float
    u: float
    censored: bool = False  # u is at least this


@dataclass(frozen=True)
class Reading:
    value: float
    basis: Basis


def u_at(points: Sequence[Point], rate: float) -> Reading | None:
    """
    >>> u_at([Point(1000, 0.5), Point(4000, 2.0)], 2000)
    Reading(value=1.0, basis=<Basis.INTERPOLATED: 'interpolated'>)
    >>> u_at([Point(1000, 0.5)], 500).basis
    <Basis.AT_MOST: 'at most'>
    """
    known = sorted(points, key=lambda p: p.rate)
    for p in known:
        if p.rate == rate:
            return Reading(p.u, Basis.AT_LEAST if p.censored else Basis.MEASURED)
    below = [p for p in known if p.rate < rate]
    above = [p for p in known if p.rate > rate]
    if below and above:
        low, high = below[-1], above[0]
        value = _between(low.rate, low.u, high.rate, high.u, rate)
        return Reading(value, Basis.AT_LEAST if low.censored or high.censored else Basis.INTERPOLATED)
    if above and not above[0].censored:
        return Reading(above[0].u, Basis.AT_MOST)
    return Reading(below[-1].u, Basis.AT_LEAST) if below else None


def throughput(points: Sequence[Point], rate: float) -> Reading | None:
    """Tuples per second that come through when so many are offered: all of them, or as many as u leaves time for."""
    found = u_at(points, rate)
    if found is None:
        return None
    if found.value <= 1.0 and found.basis is not Basis.AT_LEAST:
        return Reading(rate, Basis.MEASURED if found.basis is Basis.MEASURED else Basis.INTERPOLATED)
    if found.value <= 1.0:
        return None
    basis = Basis.AT_MOST if found.basis is Basis.AT_LEAST else found.basis
    return Reading(rate / found.value, basis)


def maximum(points: Sequence[Point]) -> Reading | None:
    """The rate at which u is 1.

    >>> maximum([Point(1000, 0.5), Point(4000, 2.0)])
    Reading(value=2000.0, basis=<Basis.INTERPOLATED: 'interpolated'>)
    >>> maximum([Point(1000, 0.5)]).basis, maximum([Point(1000, 1.5)]).basis
    (<Basis.AT_LEAST: 'at least'>, <Basis.AT_MOST: 'at most'>)
    """
    low, high = bracket(points)
    if low and high:
        rate = low.rate * (high.rate / low.rate) ** (log(1 / low.u) / log(high.u / low.u))
        return Reading(float(f"{rate:.6g}"), Basis.AT_MOST if high.censored else Basis.INTERPOLATED)
    if low:
        return Reading(low.rate, Basis.AT_LEAST)
    return Reading(high.rate, Basis.AT_MOST) if high else None


def bracket(points: Sequence[Point]) -> tuple[Point | None, Point | None]:
    """The highest rate that is sustained, and the lowest above it that is not."""
    low = max((p for p in points if p.u <= 1.0 and not p.censored), key=lambda p: p.rate, default=None)
    over = [p for p in points if p.u > 1.0 and (low is None or p.rate > low.rate)]
    return low, min(over, key=lambda p: p.rate, default=None)


def next_rate(points: Sequence[Point], lowest: float, highest: float, steps: Sequence[float] = GRID) -> float | None:
    """The rate to measure next on the way to the maximum; none where it is known to a step of the grid.

    >>> next_rate([Point(5000, 0.2)], 100, 400_000), next_rate([Point(5000, 2.5)], 100, 400_000)
    (20000.0, 2000.0)
    >>> next_rate([Point(5000, 0.8), Point(7000, 1.1)], 100, 400_000) is None
    True
    """
    low, high = bracket(points)
    grid = [r for r in steps if lowest <= r <= highest]
    if low and high:
        between = [r for r in grid if low.rate < r < high.rate]
        found = maximum(points)
        assert found is not None
        return min(between, key=lambda r: abs(log(r / found.value)), default=None)
    if low:  # four times as much at most, as windows take long to fill; at least a step
        above = [r for r in grid if r > low.rate]
        reach = min(4.0 * low.rate, _full_at(points, low))
        return max((r for r in above if r <= reach), default=above[0] if above else None)
    if high:
        below = [r for r in grid if r < high.rate]
        reach = high.rate / min(4.0, high.u)
        return max((r for r in below if r <= reach), default=below[0] if below else None)
    return None


def _full_at(points: Sequence[Point], low: Point) -> float:
    """Where u would be 1 on the line through the last two points; through the origin where there is one only."""
    before = max(
        (p for p in points if p.rate < low.rate and p.u < low.u), key=lambda p: p.rate, default=Point(0.0, 0.0)
    )
    return low.rate + (1.0 - low.u) * (low.rate - before.rate) / (low.u - before.u)


def _between(x1: float, y1: float, x2: float, y2: float, x: float) -> float:
    y1, y2 = max(y1, 1e-9), max(y2, 1e-9)
    return float(f"{exp(log(y1) + log(y2 / y1) * log(x / x1) / log(x2 / x1)):.12g}")
