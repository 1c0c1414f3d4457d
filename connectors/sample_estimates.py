"""Figures of a whole relation or of a stream to come, estimated from a sample, with 95% intervals.

Distinct values: Chao's estimator, which infers the values not seen from those seen once and twice (f1, f2): Chao 1984
for a stream, which has no end, and its form for sampling without replacement (Chao and Lin 2012) for a table of known
size, which becomes exact as the sample becomes the table. Its interval is the log-normal one of Chao 1987. It supposes
that tuples are drawn independently; a stream's first seconds are not quite that, and where its keys come in turns the
sample has to see a few turns. Where frequencies differ much, it is a lower bound: values too rare to come even once
leave no trace in the sample.

Rates: the mean and the variance of counts over pieces of event time of equal length, with Student's t. Pieces are
taken as independent; bursts longer than a piece make the interval too narrow.

Pairs: the share of pairs with equal keys is a U-statistic; its variance follows from how much the number of partners
differs from tuple to tuple on either side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, exp, floor, log, sqrt

import numpy as np
from numpy.typing import NDArray

from costmodel.spread import Z, wilson
from optimizer.catalog import MAX_RATE
from optimizer.statistics import Measured

_PIECES = 10  # of a short sample
_LONG = 5.0  # seconds from which on pieces are whole seconds


def share(hits: int, sample: int, whole: bool) -> Measured | None:
    if sample == 0:
        return None
    if whole:
        return Measured(value=hits / sample, sample=sample)
    spread = wilson(hits, sample)
    return Measured(value=hits / sample, low=spread.low, high=spread.high, sample=sample)


def distinct(frequencies: Mapping[int, int], population: int | None = None) -> Measured:
    """`frequencies` says how many values were seen once, twice, …; `population` is a table's number of rows.

    >>> found = distinct({1: 10, 2: 10, 3: 80})
    >>> found.value, int(found.low), int(found.high)
    (105.0, 101, 121)
    >>> distinct({1: 10, 3: 5}, population=25)
    Measured(value=15.0, low=None, high=None, sample=25)
    """
    seen = sum(frequencies.values())
    sample = sum(times * values for times, values in frequencies.items())
    if population is not None and sample >= population:
        return Measured(value=seen, sample=sample)
    once, twice = frequencies.get(1, 0), frequencies.get(2, 0)
    if once <= 1:
        low, high = _all_seen(frequencies, seen, sample)
        return _capped(float(seen), low, high, sample, population)
    if population is None and once == sample:
        return _no_repeats(once)
    unseen, variance = _of_table(once, twice, sample, population) if population else _of_stream(once, twice, sample)
    reach = exp(Z * sqrt(log(1 + variance / unseen**2)))
    return _capped(seen + unseen, seen + unseen / reach, seen + unseen * reach, sample, population)


def _no_repeats(sample: int) -> Measured:
    """Of a stream in which no value came twice one can say only how many there are at least.

    Among fewer than n²/6 values, n draws would have met one twice in 95 of 100 samples.
    """
    pairs_seen = sample * (sample - 1)
    return _capped(sample + pairs_seen / 2, sample + pairs_seen / 6, MAX_RATE, sample, None)


def _of_stream(once: int, twice: int, sample: int) -> tuple[float, float]:
    """The number of values not seen, and its variance."""
    left, ratio = (sample - 1) / sample, once / max(twice, 1)
    return left * once * ratio / 2, max(twice, 1) * left * ratio**2 * (0.5 + left * ratio + left * ratio**2 / 4)


def _of_table(once: int, twice: int, sample: int, population: int) -> tuple[float, float]:
    """The same, where a part of a finite population was seen and only the rest is left to be found."""
    odds, double = sample / (population - sample), 2 * sample / (sample - 1) * max(twice, 0.5)
    unseen = once**2 / (double + odds * once)
    grown = (double * unseen**2 + once**2 * unseen) ** 2 / once**5
    return unseen, unseen + grown + double**2 / max(twice, 0.5) * (unseen / once) ** 4


def _all_seen(frequencies: Mapping[int, int], seen: int, sample: int) -> tuple[float, float]:
    """Hardly a value came only once: one that came i times might have been missed with a probability of about e^-i."""
    missed = sum(values * exp(-times) for times, values in frequencies.items())
    if seen == 0 or missed >= seen:
        return float(seen), float(seen)
    deviation = sqrt(max(missed - missed**2 / max(sample, 1), 0.0))
    return float(seen), (seen + Z * deviation) / (1 - missed / seen)


def _capped(value: float, low: float, high: float, sample: int, population: int | None) -> Measured:
    """There is a whole number of values, so the interval begins and ends with one."""
    most = population if population is not None else int(MAX_RATE)
    value = round(min(value, most), 1)
    return Measured(value=value, low=min(floor(low), value), high=max(min(ceil(high), most), value), sample=sample)


def rate(times_us: NDArray[np.int64]) -> Measured | None:
    """Tuples per second of event time; None where all tuples have one time.

    The outermost thousandths are left out: a few tuples that come late, or with a wrong clock, would stretch the time.
    """
    sample = len(times_us)
    if sample < 2:
        return None
    ends = (0.001, 0.999) if sample >= 1000 else (0.0, 1.0)
    first, last = (float(end) for end in np.quantile(times_us, ends))
    seconds = (last - first) / 1e6
    if seconds <= 0:
        return None
    pieces = int(seconds) if seconds >= _LONG else min(_PIECES, sample - 1)
    length = 1.0 if seconds >= _LONG else seconds / pieces
    inside = times_us[(times_us >= first) & (times_us < first + pieces * length * 1e6)]
    counts = np.histogram(inside, pieces, (first, first + pieces * length * 1e6))[0] / length
    value = float(counts.mean())
    reach = _student(pieces - 1) * float(counts.std(ddof=1)) / sqrt(pieces) if pieces > 1 else value
    least = 1 / seconds  # there was at least one tuple
    return Measured(value=value, low=min(max(value - reach, least), value), high=value + reach, sample=sample)


def _student(degrees: int) -> float:
    """The 97.5% quantile of Student's t, by the Cornish-Fisher expansion from four degrees of freedom on.

    >>> [round(_student(n), 2) for n in (1, 4, 9, 99)]
    [12.71, 2.77, 2.26, 1.98]
    """
    few = {1: 12.706, 2: 4.303, 3: 3.182}
    if degrees in few:
        return few[degrees]
    terms = (
        (Z**3 + Z) / 4,
        (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96,
        (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / 384,
    )
    return Z + sum(term / float(degrees) ** power for power, term in enumerate(terms, 1))


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a join: its tuples, and the squares of the numbers of partners that its tuples have, summed."""

    sample: int
    whole: bool
    partners_squared: float


def pairs(matches: float, left: Side, right: Side) -> Measured | None:
    """The share of pairs with equal keys, of samples of two relations."""
    if not left.sample or not right.sample:
        return None
    value = matches / left.sample / right.sample
    variance = sum(
        _partner_variance(matches, here, there) / here.sample
        for here, there in ((left, right), (right, left))
        if not here.whole
    )
    return _pairs(value, variance, min(left.sample, right.sample), left.whole and right.whole)


def _partner_variance(matches: float, here: Side, there: Side) -> float:
    mean = matches / here.sample
    return max(here.partners_squared / here.sample - mean**2, 0.0) / there.sample**2


def self_pairs(frequencies: Mapping[int, int], whole: bool) -> Measured | None:
    """The share of pairs of different tuples of one relation that have one key."""
    sample = sum(times * values for times, values in frequencies.items())
    if sample < 2:
        return None
    others = sum(values * times * (times - 1) for times, values in frequencies.items())
    squared = sum(values * times * (times - 1) ** 2 for times, values in frequencies.items())
    value = others / sample / (sample - 1)
    variance = 4 * max(squared / sample / (sample - 1) ** 2 - value**2, 0.0) / sample
    return _pairs(value, variance, sample, whole)


def _pairs(value: float, variance: float, sample: int, whole: bool) -> Measured:
    if whole:
        return Measured(value=value, sample=sample)
    reach = Z * sqrt(variance) if value > 0 else 3 / sample  # none found: the rule of three
    return Measured(value=value, low=max(value - reach, 0.0), high=min(value + reach, 1.0), sample=sample)
