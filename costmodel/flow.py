"""Rates and sizes along the edges of a plan (paper 001, section 5, equations 1 to 3).

A `Flow` is what one operator hands to the next. Two kinds differ in what a second of stream costs downstream: an
*incremental* flow brings only new tuples (a window under stateless operators), any other is a whole new relation at
every tick. Departing from the paper, a slide-driven join emits the join of its two snapshots once per tick, where
equation (2) would count each result twice when both inputs change together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from fractions import Fraction
from math import expm1, lcm

from costmodel.spread import Spread

LARGEST = 1e200  # estimates stop here: infinities would turn into NaN further up


class Drive(StrEnum):
    """What makes a query emit: the slide of its windows, or the arrival of a tuple."""

    SLIDE = "slide"
    TUPLE = "tuple"


class Source(IntEnum):
    """Where an estimate came from; smaller is weaker, and a derived figure is as weak as its weakest part."""

    DEFAULT = 0  # a guess
    DERIVED = 1  # from known figures, under an assumption
    CATALOG = 2
    ANALYZED = 3
    OVERRIDE = 4
    EXACT = 5

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Estimate:
    """One figure the cost model was given, by name, and where it came from."""

    what: str
    value: float
    source: Source
    spread: Spread | None = None
    is_share: bool = False  # and so at most 1
    figure: str = ""  # what it is whatever the alias, where `what` is not that already

    @property
    def name(self) -> str:
        """One figure has one name, also where a query uses it under several aliases."""
        return self.figure or self.what


@dataclass(frozen=True, slots=True)
class Flow:
    """λ tuples per second of stream, W tuples at an instant, bytes per tuple."""

    rate: float
    size: float
    width: float
    incremental: bool
    source: Source


def window(rate: float, size: float, width: float, source: Source) -> Flow:
    return Flow(rate, size, width, True, source)


def stored(rows: float, width: float, drive: Drive, ticks: float, source: Source) -> Flow:
    """A table read at every tick; a tuple-driven query only probes it."""
    return Flow(ticks * rows if drive is Drive.SLIDE else 0.0, rows, width, False, source)


def select(flow: Flow, selectivity: float, source: Source) -> Flow:
    """Equation (1).

    >>> select(Flow(1000, 60_000, 40, True, Source.CATALOG), 0.5, Source.DEFAULT).rate
    500.0
    """
    weakest = min(flow.source, source)
    return Flow(flow.rate * selectivity, flow.size * selectivity, flow.width, flow.incremental, weakest)


def project(flow: Flow, width: float) -> Flow:
    return Flow(flow.rate, flow.size, width, flow.incremental, flow.source)


def join(left: Flow, right: Flow, selectivity: float, drive: Drive, ticks: float, source: Source) -> Flow:
    """Tuple-driven: equation (2). Slide-driven: one snapshot of the result per tick.

    >>> a, b = Flow(10, 100, 8, True, Source.EXACT), Flow(20, 200, 8, True, Source.EXACT)
    >>> join(a, b, 0.01, Drive.TUPLE, 0.0, Source.EXACT).rate      # 10·0.01·200 + 20·0.01·100
    40.0
    >>> join(a, b, 0.01, Drive.SLIDE, 2.0, Source.EXACT).rate      # 2 ticks a second of 200 rows
    400.0
    """
    size = min(left.size * right.size, LARGEST) * selectivity
    if drive is Drive.TUPLE:
        rate = min(left.rate * right.size + right.rate * left.size, LARGEST) * selectivity
    else:
        rate = ticks * size
    return Flow(rate, size, left.width + right.width, False, min(left.source, right.source, source))


def aggregate(flow: Flow, groups: float, ticks: float, width: float, source: Source) -> Flow:
    """Equation (3): λ = l · g."""
    return Flow(ticks * groups, groups, width, False, min(flow.source, source))


def distinct(tuples: float, groups: float) -> float:
    """How many of the groups some tuples meet, if they fall into them at random.

    >>> round(distinct(100, 100)), round(distinct(1_000_000, 100)), distinct(10, 0)
    (63, 100, 0.0)
    """
    return groups * -expm1(-tuples / groups) if groups else 0.0


def tick_rate(slides_us: Iterable[int]) -> float:
    """Ticks per second of windows with these slides (microseconds): the union of their boundaries.

    >>> tick_rate([1_000_000])
    1.0
    >>> tick_rate([2_000_000, 3_000_000])      # 1/2 + 1/3 - 1/6
    0.6666666666666666
    """
    distinct = sorted(set(slides_us))
    # A slide that is a multiple of a smaller one adds no boundary.
    basis = [s for i, s in enumerate(distinct) if not any(s % smaller == 0 for smaller in distinct[:i])]
    if len(basis) > 12:  # inclusion-exclusion is exponential; the sum is an upper bound
        return float(sum(Fraction(1_000_000, s) for s in basis))
    total = Fraction(0)
    for mask in range(1, 1 << len(basis)):
        chosen = [s for i, s in enumerate(basis) if mask >> i & 1]
        total += (-1 if len(chosen) % 2 == 0 else 1) * Fraction(1_000_000, lcm(*chosen))
    return float(total)
