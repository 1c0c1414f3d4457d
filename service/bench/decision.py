"""How good the optimizer's decisions are: placements of a query measured, beside what the model says of them.

For each query and database two rates, one with room and one near the limit of the plan that is picked there. *Regret*
is how many times worse the picked plan is than the best one measured. A *verdict* is right if the model and the
measurement agree on whether a plan keeps up. All placements of CQ1, CQ3 and CQ5 are measured; of the others a sample
with a fixed seed.

Filling windows takes longer than running on them, and most placements fail at a fraction of what the picked one
sustains. So one that the model expects to fail is first tried at the lowest rate at which it should: where it does
fail there, it fails above; where not, the model's figure is corrected by what was measured.

The best of many single trials is too good to be true. So those that seem ahead of the picked plan run against it once
more, in turns, and what is compared are medians.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import isfinite
from random import Random

from optimizer.optimize import Optimized
from optimizer.pinned import placed
from service.bench.curve import GRID, Basis, Point, Reading, bracket, maximum
from service.bench.figure5 import expected, nearest
from service.bench.lab import FIRST, Job, Lab
from service.bench.plans import Candidate, Kind, Query, candidate, in_spark, predicted, way
from service.bench.trial import Limits

WHOLE = ("cq1", "cq3", "cq5")
SAMPLE = 8
SEED = 7
ROOM, NEAR = 0.25, 0.85  # of the maximum throughput of the picked plan
MOST = 70_000.0  # tuples/s, where that maximum is beyond what is looked at: windows of more take long to fill
HASTY = Limits(give_up=2.0)  # of trials that are to tell whether a placement keeps up
AHEAD = 3  # placements that seem better than the picked one run against it again
ROUNDS = 2  # of that
CORRECTIONS = 3  # of the rate at which a plan should fail, by what it took at the last one
COARSE = tuple(r for r in GRID if f"{r:.0f}"[:2] in ("10", "20", "40"))  # such rates: each has windows to fill
FAILING = 1.3  # predicted u at which a plan should fail, also where the model is some way off
UNDECIDED = 0.05  # u this close to 1 is as good as 1


@dataclass(frozen=True)
class Measured:
    """A placement at a rate."""

    plan: str
    in_spark: tuple[str, ...]
    how: str
    predicted: float  # u
    u: float | None  # not measured: the budget did not reach
    basis: Basis  # at least: given up, or failing at a lower rate already
    picked: bool

    @property
    def undecided(self) -> bool:
        return self.u is not None and abs(self.u - 1.0) <= UNDECIDED and self.basis is Basis.MEASURED

    @property
    def right(self) -> bool | None:
        """Whether model and measurement agree; None where the measurement does not tell."""
        if self.u is None or (self.basis is Basis.AT_LEAST and self.u <= 1.0):
            return None
        return (self.predicted <= 1.0) == (self.u <= 1.0)


@dataclass(frozen=True)
class AtRate:
    rate: float
    placements: tuple[Measured, ...]
    regret: float | None  # in u
    best: tuple[str, ...] | None  # operators in Spark of the best plan measured


@dataclass(frozen=True)
class Case:
    query: str
    database: str
    complete: bool  # all placements, or a sample
    rates: tuple[AtRate, ...]
    throughput_regret: float | None  # maxima interpolated from the measured rates
    maxima: tuple[Maximum, ...]


@dataclass(frozen=True)
class Maximum:
    plan: str
    in_spark: tuple[str, ...]
    maximum: Reading
    picked: bool


@dataclass(frozen=True)
class Decision:
    cases: tuple[Case, ...]
    measured: int
    right: int
    decided: int  # verdicts that could be compared
    undecided: int  # of those, with u within 5 % of 1
    misses: tuple[str, ...]
    left_out: tuple[str, ...]


def run(lab: Lab, queries: Sequence[str], databases: Sequence[str]) -> Decision:
    cases = [
        (Query.example(q), d)
        for q in (*(q for q in queries if q in WHOLE), *(q for q in queries if q not in WHOLE))
        for d in databases
    ]
    rates: dict[tuple[str, str], tuple[float, float]] = {}
    left_out = lab.run("decision: limits", [Job(f"{q.name} {d}", partial(_limits, lab, q, d, rates)) for q, d in cases])
    jobs = []
    for which in (0, 1):
        for query, database in cases:
            if (query.name, database) in rates:
                rate = rates[query.name, database][which]
                chosen = placements(query.optimized(rate, database), query.name in WHOLE)
                for c in chosen:
                    name = (
                        f"{query.name} {database} {rate:,.0f}/s spark: {len(in_spark(c.plan))} operators, {c.plan.id}"
                    )
                    jobs.append(Job(name, partial(_measure, lab, query, database, c, rate)))
    contests = [
        Job(
            f"{q.name} {d} {rates[q.name, d][which]:,.0f}/s best", partial(_contest, lab, q, d, rates[q.name, d], which)
        )
        for which in (1, 0)
        for q, d in cases
        if (q.name, d) in rates
    ]
    with lab.limited(HASTY):
        left_out += lab.run("decision", jobs)
    left_out += lab.run("decision: best", contests)
    found = tuple(_case(lab, q, d, rates[q.name, d]) for q, d in cases if (q.name, d) in rates)
    return summary(found, left_out)


def placements(optimized: Optimized, whole: bool) -> list[Candidate]:
    """The picked plan first, then all in Spark and all in the database, then others."""
    first = [candidate(optimized, kind) for kind in (Kind.OPTIMAL, Kind.PANE, Kind.DB)]
    count = len(optimized.plan.operators)
    others = [
        p
        for p in (placed(optimized, list(in_db)) for in_db in product((False, True), repeat=count))
        if isfinite(p.cost.utilization)
    ]
    if not whole:
        Random(SEED).shuffle(others)
    found: dict[str, Candidate] = {}
    for c in (*first, *(Candidate(p, way(p)) for p in others)):
        found.setdefault(c.plan.id, c)
    return list(found.values())[: None if whole else SAMPLE]


def _limits(lab: Lab, query: Query, database: str, rates: dict[tuple[str, str], tuple[float, float]]) -> None:
    """Two rates from the maximum throughput of the plan that is picked at it."""
    top: Reading | None = None
    known: set[str] = set()
    while (picked := candidate(query.optimized(top.value if top else FIRST, database), Kind.OPTIMAL)).id not in known:
        known.add(picked.id)
        own = maximum(lab.search(query, picked, expected(lab, query, database, picked)))
        top = max((r for r in (top, own) if r is not None), key=lambda r: r.value)
    assert top is not None
    high = min(top.value, MOST / NEAR) if top.basis is Basis.AT_LEAST else top.value
    rates[query.name, database] = nearest(ROOM * high), max(r for r in GRID if r <= max(NEAR * high, GRID[0]))


def _measure(lab: Lab, query: Query, database: str, c: Candidate, rate: float) -> None:
    if any(p.rate == rate or (p.u > 1.0 and p.rate < rate) for p in lab.points(query, c)):
        return  # is known, or fails already
    off = 1.0
    for _ in range(CORRECTIONS):
        lower = failing_from(query, database, c, rate, off)
        if lower is None:
            break
        u = lab.trial(query, c, lower).u
        if u > 1.0:
            return
        off = u / predicted(c.plan, query.optimized(lower, database)).cost.bottleneck
    lab.trial(query, c, rate)


def failing_from(query: Query, database: str, c: Candidate, rate: float, off: float = 1.0) -> float | None:
    """The lowest rate of a coarse grid, below `rate`, at which the model, times its error so far, says it fails."""
    lower = [r for r in COARSE if r < rate]
    first = bisect_left(
        lower, True, key=lambda r: off * predicted(c.plan, query.optimized(r, database)).cost.bottleneck > FAILING
    )
    return lower[first] if first < len(lower) else None


def _contest(lab: Lab, query: Query, database: str, rates: tuple[float, float], which: int) -> None:
    """Those that seem better than the picked plan at a rate, in turns with it; near the limit also their maxima."""
    rate = rates[which]
    optimized = query.optimized(rate, database)
    picked = candidate(optimized, Kind.OPTIMAL)
    u = {c.plan.id: (p.u, c) for c in placements(optimized, query.name in WHOLE) if (p := _at(lab, query, c, rate))}
    if picked.plan.id not in u:
        return
    ahead = sorted((own for own in u.values() if own[0] < u[picked.plan.id][0]), key=lambda own: own[0])[:AHEAD]
    if not ahead:
        return
    both = [picked, *(c for _, c in ahead)]
    trials = lab.in_turns(query, both, rate, ROUNDS)
    best = min(zip(trials, both, strict=True), key=lambda own: own[0].u)[1]
    if which == 0 or best is picked:
        return
    for one in (picked, best):
        lab.search(query, one, rate)
    ends = {p.rate for one in (picked, best) for p in bracket(lab.points(query, one)) if p is not None}
    for end in sorted(ends):
        lab.in_turns(query, [picked, best], end, ROUNDS)


def _at(lab: Lab, query: Query, c: Candidate, rate: float) -> Point | None:
    return next((p for p in lab.points(query, c) if p.rate == rate and not p.censored), None)


# -- figures ----------------------------------------------------------------------------------------------------------


def _case(lab: Lab, query: Query, database: str, rates: tuple[float, float]) -> Case:
    whole = query.name in WHOLE
    points: dict[str, tuple[Candidate, list[Point]]] = {}
    found = []
    for rate in dict.fromkeys(rates):
        optimized = query.optimized(rate, database)
        rows = []
        for c in placements(optimized, whole):
            known = lab.points(query, c)
            points[c.id] = c, known
            rows.append(_measured(c, known, rate, c.plan.id == optimized.plan.id))
        found.append(at_rate(rate, rows))
    maxima = [
        Maximum(c.plan.id, in_spark(c.plan), top, c.plan.id in _picked_at(query, database, (rates[1], top.value)))
        for c, known in points.values()
        if (top := maximum(known)) is not None
    ]
    return Case(query.name, database, whole, tuple(found), throughput_regret(maxima), tuple(maxima))


def _picked_at(query: Query, database: str, rates: Sequence[float]) -> set[str]:
    """Plans picked near the limit, and at a plan's own maximum: the pick follows the rate."""
    return {query.optimized(rate, database).plan.id for rate in rates}


def _measured(c: Candidate, known: Sequence[Point], rate: float, picked: bool) -> Measured:
    here = next((p for p in known if p.rate == rate), None)
    failing = max((p for p in known if p.rate < rate and p.u > 1.0), key=lambda p: p.rate, default=None)
    u, basis = None, Basis.MEASURED
    if here is not None:
        u, basis = here.u, Basis.AT_LEAST if here.censored else Basis.MEASURED
    elif failing is not None:
        u, basis = failing.u, Basis.AT_LEAST
    return Measured(c.plan.id, in_spark(c.plan), c.how, c.plan.cost.bottleneck, u, basis, picked)


def at_rate(rate: float, rows: Sequence[Measured]) -> AtRate:
    known = [r for r in rows if r.u is not None]
    exact = [r for r in known if r.basis is Basis.MEASURED]
    picked = next((r for r in known if r.picked), None)
    best = min(exact, key=lambda r: r.u or 0.0, default=None)
    regret = picked.u / best.u if picked and best and picked.u and best.u else None
    return AtRate(rate, tuple(rows), regret, best.in_spark if best else None)


def throughput_regret(maxima: Sequence[Maximum]) -> float | None:
    """How many times more tuples the best plan sustains; 1 where the picked one is the best."""
    picked = max((m.maximum.value for m in maxima if m.picked), default=None)
    return (
        max(m.maximum.value for m in maxima if m.maximum.basis is not Basis.AT_MOST or m.picked) / picked
        if picked
        else None
    )


def summary(cases: Sequence[Case], left_out: tuple[str, ...]) -> Decision:
    rows = [(case, at, m) for case in cases for at in case.rates for m in at.placements]
    decided = [(case, at, m) for case, at, m in rows if m.right is not None]
    misses = []
    for case, at, m in decided:
        if not m.right:
            close = " (undecided)" if m.undecided else ""
            where = ", ".join(m.in_spark) or "nothing"
            misses.append(
                f"{case.query} {case.database} {at.rate:,.0f}/s, in Spark {where}: "
                f"predicted {m.predicted:.2f}, measured {'≥ ' if m.basis is Basis.AT_LEAST else ''}{m.u:.2f}{close}"
            )
    return Decision(
        tuple(cases),
        sum(m.u is not None for _, _, m in rows),
        sum(bool(m.right) for _, _, m in decided),
        len(decided),
        sum(m.undecided for _, _, m in decided),
        tuple(misses),
        left_out,
    )
