"""Equi-depth histograms: what share of a column's values lies below a constant.

The borders are quantiles, so every bucket holds the same share of the values, and a value that is frequent enough is
the border of several buckets. Values are taken as evenly spread inside a bucket (Piatetsky-Shapiro and Connell 1984);
whatever they are, the answer is off by less than one bucket, which the interval of an answer contains.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from costmodel.spread import Spread, wilson


@dataclass(frozen=True, slots=True)
class Histogram:
    """`borders` has one value more than there are buckets; `whole` where every value of the column was seen."""

    borders: tuple[float, ...]
    sample: int  # values it was made of, without NULLs
    whole: bool = False

    def share(self, bound: float, upwards: bool, inclusive: bool) -> tuple[float, Spread]:
        """The share of values above a bound, or below it, and where the true share lies.

        >>> Histogram((0, 10, 10, 30), 90, whole=True).share(20, upwards=True, inclusive=False)[0]
        0.16666666666666663
        >>> Histogram((0, 10, 10, 30), 90, whole=True).share(10, upwards=True, inclusive=True)[0]
        0.6666666666666667
        """
        # v > 5 is what is not v <= 5
        first, value, last = self._below(bound, inclusive is not upwards)
        low, high = self._certain(first, last)
        if not upwards:
            return value, Spread(low, high, self.sample)
        return 1.0 - value, Spread(1.0 - high, 1.0 - low, self.sample)

    def _below(self, bound: float, inclusive: bool) -> tuple[float, float, float]:
        """The share below a bound: at least, in proportion, at most."""
        buckets = len(self.borders) - 1
        passed = (bisect_right if inclusive else bisect_left)(self.borders, bound)
        if passed == 0:
            return 0.0, 0.0, 0.0
        if passed > buckets:
            return 1.0, 1.0, 1.0
        start, end = self.borders[passed - 1], self.borders[passed]
        part = (bound - start) / (end - start)
        return (passed - 1) / buckets, (passed - 1 + part) / buckets, passed / buckets

    def _certain(self, first: float, last: float) -> tuple[float, float]:
        if self.whole:
            return first, last
        return wilson(first * self.sample, self.sample).low, wilson(last * self.sample, self.sample).high
