"""The rate at which one plan overtakes another: as explain's sweep predicts it, and as it is measured.

Both plans run in turns at rates next to the predicted one, further and further in the direction of the change, until
the plan that was ahead is behind. Between the last two rates the ratio of their u is interpolated, log over log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import exp, log

from service.bench.curve import GRID, Point
from service.bench.figure5 import intervals, nearest
from service.bench.lab import Job, Lab
from service.bench.plans import Candidate, Query, in_spark

WITHOUT_PANES = "spread"  # an aggregate for which databases read the window anew, so that they lose sooner
MORE = 1  # rounds where one is not enough
APART = 0.15  # of the logarithm of the ratio of two u: who is so far ahead stays ahead
STEPS = 6  # of the grid, each way: a factor of about seven
FURTHEST = 150_000.0  # tuples/s: windows of more take minutes to fill, and changes further on are only predicted


@dataclass(frozen=True)
class Crossover:
    """`before` and `after` are the operators in Spark; `measured` is None where neither overtook the other."""

    query: str
    database: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    predicted: float
    measured: float | None
    points_before: tuple[Point, ...]
    points_after: tuple[Point, ...]


@dataclass(frozen=True)
class Crossovers:
    found: tuple[Crossover, ...]
    left_out: tuple[str, ...]


def run(lab: Lab, queries: Sequence[str], databases: Sequence[str]) -> Crossovers:
    """Of all changes of plan, those at rates that the plans keep up with, or nearly."""
    changes = sorted(
        (
            (query, database, one.candidate, other.candidate, other.low)
            for database in databases
            for query in map(Query.example, (*queries, WITHOUT_PANES))
            for one, other in pairwise(intervals(query, database, lab.highest / 2))
            if not other.hopeless
        ),
        key=lambda change: change[-1],
    )
    jobs = [
        Job(f"{query.name} {database} {rate:,.0f}/s", partial(_look, lab, query, before, after, rate))
        for query, database, before, after, rate in changes
        if rate <= FURTHEST
    ]
    left_out = lab.run("crossover", jobs)
    found = []
    for query, database, before, after, rate in changes:
        points = tuple(lab.points(query, before)), tuple(lab.points(query, after))
        both = in_spark(before.plan), in_spark(after.plan)
        found.append(Crossover(query.name, database, *both, rate, crossing(*points, rate), *points))
    return Crossovers(tuple(found), left_out)


def _look(lab: Lab, query: Query, before: Candidate, after: Candidate, predicted: float) -> None:
    """At the rate next to the predicted one, then up while the old plan is ahead, or down while the new one is."""
    start = GRID.index(nearest(predicted))
    first = _lead(lab, query, before, after, GRID[start])
    step = 1 if first < 0 else -1
    for i in range(1, STEPS + 1):
        place = start + step * i
        if not 0 <= place < len(GRID) or GRID[place] > 2 * FURTHEST:
            return
        if (_lead(lab, query, before, after, GRID[place]) < 0) != (first < 0):
            return


def _lead(lab: Lab, query: Query, before: Candidate, after: Candidate, rate: float) -> float:
    one, other = lab.in_turns(query, [before, after], rate, 1)
    if abs(log(one.u / other.u)) < APART:
        one, other = lab.in_turns(query, [before, after], rate, MORE)
    return log(one.u / other.u)


def crossing(before: Sequence[Point], after: Sequence[Point], predicted: float) -> float | None:
    """The rate at which the second plan's u becomes the smaller one; of several the nearest to the predicted.

    >>> round(crossing([Point(1000, 0.2), Point(4000, 0.8)], [Point(1000, 0.4), Point(4000, 0.4)], 3000))
    2000
    """
    later = {p.rate: p for p in after}
    leads = [(p.rate, log(p.u / later[p.rate].u)) for p in before if p.rate in later and not _unknown(p, later[p.rate])]
    found = []
    for (low, first), (high, second) in pairwise(leads):
        if first < 0 <= second:
            found.append(exp(log(low) + log(high / low) * first / (first - second)))
    return min(found, key=lambda rate: abs(log(rate / predicted)), default=None)


def _unknown(one: Point, other: Point) -> bool:
    """Whether which of the two is smaller cannot be told: a bound that the other is above says nothing."""
    return (one.censored and one.u <= other.u) or (other.censored and other.u <= one.u)
