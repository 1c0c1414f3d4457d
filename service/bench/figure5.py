"""The plans picked at rising rates, what they sustain, and the maximum throughput of pure plans (paper 001, Figure 5).

u of a plan grows with the rate, so a plan is first measured on the way to its maximum and where the pick changes, and
at the paper's rates where there is time. The search for the maximum begins where the model expects it, and goes where
the measurements lead. Throughputs at the other rates are interpolated, and marked so. Spark's own query (`native`)
begins with empty windows and its u only grows from there: its maximum is an upper bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import log

from optimizer.explain.sweep import sweep
from service.bench.curve import COARSE, GRID, Basis, Point, Reading, maximum, throughput, u_at
from service.bench.lab import FIRST, LOWEST, Job, Lab
from service.bench.live import STREAM
from service.bench.plans import ALL_IN_SPARK, Candidate, Kind, Query, candidate, in_spark, predicted, predicted_maximum
from service.bench.trial import HASTY, Limits

RATES = (1_000.0, 2_000.0, 5_000.0, 10_000.0, 20_000.0, 40_000.0)
BASELINES = (Kind.PANE, Kind.DB, Kind.NATIVE, Kind.EXPAND)  # what there may be no time for last
HOPELESS = 1.3  # predicted u
SLOW = 400.0  # where the search for the maximum of Spark's own query begins


@dataclass(frozen=True)
class Picked:
    """A plan and the rates at which the optimizer picks it; `until` is None where no other follows."""

    plan: str
    how: str
    in_spark: tuple[str, ...]
    since: float
    until: float | None
    maximum: Reading | None
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Step:
    rate: float  # requested
    plan: str
    predicted: float  # u
    u: Reading | None
    throughput: Reading | None


@dataclass(frozen=True)
class Baseline:
    kind: Kind
    maximum: Reading | None
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Panel:
    query: str
    database: str
    picked: tuple[Picked, ...]
    steps: tuple[Step, ...]
    optimal: Reading | None  # the highest rate at which the plan picked for it keeps up
    baselines: tuple[Baseline, ...]


@dataclass(frozen=True)
class Figure5:
    panels: tuple[Panel, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class _Interval:
    low: float
    high: float | None
    candidate: Candidate
    hopeless: bool  # infeasible throughout, says the model, also where it is some way off


def run(
    lab: Lab,
    queries: Sequence[str],
    databases: Sequence[str],
    baselines: Sequence[Kind] = BASELINES,
    requested: bool = False,
) -> Figure5:
    """With `requested` the picked plans are also measured at rates at which a bound tells that they keep up."""
    panels = [(Query.example(q), d) for d in databases for q in queries]
    picks = {(q.name, d): intervals(q, d, lab.highest_on(d)) for q, d in panels}
    jobs = []
    for query, database in panels:
        for interval in picks[query.name, database]:
            name = f"{query.name} {database} picked from {interval.low:,.0f}/s"
            # Of a plan picked only where nothing keeps up, what it lets through is of interest, not its maximum.
            if interval.hopeless:
                jobs.append(Job(name, partial(lab.trial, query, interval.candidate, nearest(interval.low))))
            elif interval.high is not None:
                jobs.append(Job(name, partial(_to_its_end, lab, query, interval.candidate, nearest(interval.high))))
            else:
                first = expected(lab, query, database, interval.candidate)
                jobs.append(Job(name, partial(lab.search, query, interval.candidate, first)))
    for kind in baselines:
        for query, database in panels:
            if kind in ALL_IN_SPARK and database != databases[0]:
                continue
            pure = candidate(query.optimized(RATES[0], database), kind)
            slow = kind in (Kind.EXPAND, Kind.NATIVE)
            # They are orders of magnitude behind; the copies of window() in most cases even at the lowest rate.
            hasty = replace(HASTY, starting=lab.limits.starting)
            limits, steps = (hasty, COARSE) if slow else (lab.limits, GRID)
            first = {Kind.EXPAND: LOWEST, Kind.NATIVE: SLOW}.get(kind) or expected(lab, query, database, pure)
            search = partial(_search, lab, query, pure, first, limits, steps)
            jobs.append(Job(f"{query.name} {database} {kind}", search))
    for query, database in panels:
        for after in picks[query.name, database][1:]:
            name = f"{query.name} {database} where the pick changes, {after.low:,.0f}/s"
            jobs.append(Job(name, partial(lab.trial, query, after.candidate, nearest(after.low))))
    if requested:
        for query, database in panels:
            for rate in RATES:
                name = f"{query.name} {database} at {rate:,.0f}/s"
                jobs.append(Job(name, partial(_at, lab, query, database, rate)))
    left_out = lab.run("Figure 5", jobs)
    return Figure5(tuple(_panel(lab, q, d, picks[q.name, d], baselines, databases[0]) for q, d in panels), left_out)


def _at(lab: Lab, query: Query, database: str, rate: float) -> None:
    with lab.limited(HASTY):
        lab.trial(query, candidate(query.optimized(rate, database), Kind.OPTIMAL), rate)


def _search(lab: Lab, query: Query, one: Candidate, first: float, limits: Limits, steps: Sequence[float]) -> None:
    with lab.limited(limits):
        lab.search(query, one, first, steps)


def _to_its_end(lab: Lab, query: Query, one: Candidate, end: float) -> None:
    """Where another plan takes over, this one need only keep up; where it does not, its maximum is looked for."""
    if lab.trial(query, one, end).u > 1.0:
        lab.search(query, one)


def intervals(query: Query, database: str, highest: float) -> list[_Interval]:
    """Which plan is picked from where to where; feasible or not is not asked."""
    found: list[_Interval] = []
    for part in sweep(query.optimized(RATES[0], database), STREAM, RATES[0], highest):
        picked = candidate(part.optimized, Kind.OPTIMAL)
        if found and found[-1].candidate.id == picked.id:
            continue
        if found:
            found[-1] = replace(found[-1], high=part.low)
        found.append(_Interval(part.low, None, picked, part.optimized.plan.cost.bottleneck > HOPELESS))
    return found


def nearest(rate: float) -> float:
    return min(GRID, key=lambda r: abs(log(r / rate)))


def expected(lab: Lab, query: Query, database: str, one: Candidate) -> float:
    """The rate of the grid next to the one that the model says a plan keeps up with."""
    top = predicted_maximum(one.plan, query.optimized(FIRST, database)) or FIRST
    return nearest(min(max(top, LOWEST), lab.end_of(one)))


def _panel(
    lab: Lab, query: Query, database: str, picks: list[_Interval], baselines: Sequence[Kind], first: str
) -> Panel:
    picked = []
    for p in picks:
        points = lab.points(query, p.candidate)
        plan = p.candidate.plan
        picked.append(Picked(plan.id, p.candidate.how, in_spark(plan), p.low, p.high, maximum(points), tuple(points)))
    top = optimal(picked)
    steps = []
    for rate in _rates(top, lab.highest_on(database)):
        at = query.optimized(rate, database)
        chosen = candidate(at, Kind.OPTIMAL)
        points = lab.points(query, chosen)
        u = u_at(points, rate)
        steps.append(
            Step(rate, chosen.plan.id, predicted(chosen.plan, at).cost.bottleneck, u, throughput(points, rate))
        )
    pure = []
    for kind in baselines:
        own = candidate(query.optimized(RATES[0], first if kind in ALL_IN_SPARK else database), kind)
        points = lab.points(query, own)
        pure.append(Baseline(kind, maximum(points), tuple(points)))
    return Panel(query.name, database, tuple(picked), tuple(steps), top, tuple(pure))


def optimal(picked: Sequence[Picked]) -> Reading | None:
    """The highest rate at which the plan that is picked there keeps up."""
    best: Reading | None = None
    for p in picked:
        if p.maximum is None or p.maximum.value < p.since or not any(point.u <= 1.0 for point in p.points):
            continue
        within = p.until is None or p.maximum.value <= p.until
        own = p.maximum if within else Reading(p.until or 0.0, Basis.INTERPOLATED)
        best = own if best is None or own.value > best.value else best
    return best


def _rates(top: Reading | None, highest: float) -> list[float]:
    """The paper's, and then twice as much until the picked plan has failed."""
    found = list(RATES)
    while top is not None and found[-1] < min(top.value, highest):
        found.append(2 * found[-1])
    return found
