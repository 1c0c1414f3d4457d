"""How far a figure may be off: intervals that hold the truth in 95 of 100 samples.

Shares have Wilson's score interval, which keeps its promise for small samples and for shares near 0 and 1, where the
textbook's p ± 1.96 σ does not (Brown, Cai, DasGupta 2001). A guess has no sample; it is taken to be wrong by a factor
of up to three either way.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

Z = 1.959963984540054  # 95% of a normal distribution lie within ± this many standard deviations
GUESS = 3.0


@dataclass(frozen=True, slots=True)
class Spread:
    """Between these two lies the true figure; `sample` is the number of tuples that says so, 0 for a guess."""

    low: float
    high: float
    sample: int = 0


def wilson(hits: float, sample: int) -> Spread:
    """The interval of a share that `hits` of `sample` tuples have.

    >>> spread = wilson(5, 100)
    >>> round(spread.low, 4), round(spread.high, 4)
    (0.0215, 0.1118)
    >>> wilson(0, 0)
    Spread(low=0.0, high=1.0, sample=0)
    """
    if sample <= 0:
        return Spread(0.0, 1.0, 0)
    share, z2 = hits / sample, Z * Z / sample
    middle = (share + z2 / 2) / (1 + z2)
    reach = Z * sqrt(share * (1 - share) / sample + z2 / (4 * sample)) / (1 + z2)
    low = 0.0 if hits <= 0 else max(middle - reach, 0.0)
    return Spread(low, 1.0 if hits >= sample else min(middle + reach, 1.0), sample)


def guessed(value: float, at_most: float) -> Spread:
    """
    >>> guessed(0.5, at_most=1.0)
    Spread(low=0.16666666666666666, high=1.0, sample=0)
    """
    return Spread(value / GUESS, min(value * GUESS, at_most))
