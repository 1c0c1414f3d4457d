"""How good the optimizer's decisions are: placements of a query measured, beside what the model says of them.

For each query and database two rates, one with room and one near the limit of the plan that is picked there. All
placements of CQ1, CQ3 and CQ5 are measured; of the others a sample with a fixed seed.

u grows with the rate, and a trial costs about four batches, so one trial serves for two rates where it can. A placement
that the model expects to keep up with the higher rate is measured there: where it does, it keeps up with the lower one,
at which only those run that may be the best, and the pure plans. One that the model expects to fail is first tried at
the lowest rate at which it should: where it does fail there, it fails above; where not, the model's figure is corrected
by what was measured.

The best of many single trials is too good to be true. So those that seem ahead of the picked plan run against it once
more, in turns, and what is compared are medians.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from itertools import combinations, product
from math import isfinite, log
from random import Random

from optimizer.optimize import Optimized
from optimizer.physical import PhysicalPlan
from optimizer.pinned import placed
from service.bench.curve import COARSE, GRID, Basis, Point, Reading, bracket, maximum
from service.bench.figure5 import expected, nearest
from service.bench.lab import FIRST, Job, Lab
from service.bench.plans import Candidate, Kind, Query, candidate, in_spark, predicted, way
from service.bench.trial import HASTY
from service.bench.verdicts import Case, Decision, Maximum, Measured, at_rate, reading, summary, throughput_regret

WHOLE = ("cq1", "cq3", "cq5")
SAMPLE = 8
SEED = 7
PURE = 3  # the picked plan, all in Spark, all in the database
ROOM, NEAR = 0.25, 0.85  # of the maximum throughput of the picked plan
MOST = 40_000.0  # tuples/s, the paper's highest, where that maximum is beyond it: windows of more take long to fill
AHEAD = 2  # placements that seem better than the picked one run against it again
CLEARLY = 0.95  # of its u: who is nearer is as good
ROUNDS = 2  # of that
NOISE = 1.1  # times the work: who is still as far ahead runs as often once more
CORRECTIONS = 3  # of the rate at which a plan should fail, by what it took at the last one
FAILING = 1.3  # predicted u at which a plan should fail, also where the model is some way off
CLOSE = 0.15  # of the logarithm of u: so near to 1 a single batch is not enough
CONTRADICTION = 1.15  # times less work at a higher rate: batches scatter by some percent
SURE = 0.8  # predicted u at the higher rate of a plan that should keep up with both
CONTENDERS = 10  # one placement in so many, those of smallest predicted u, may be the best; two at least


def run(lab: Lab, queries: Sequence[str], databases: Sequence[str]) -> Decision:
    cases = [
        (Query.example(q), d)
        for q in (*(q for q in queries if q in WHOLE), *(q for q in queries if q not in WHOLE))
        for d in databases
    ]
    rates: dict[tuple[str, str], tuple[float, float]] = {}
    left_out = lab.run("decision: limits", [Job(f"{q.name} {d}", partial(_limits, lab, q, d, rates)) for q, d in cases])
    known = [(q, d, rates[q.name, d]) for q, d in cases if (q.name, d) in rates]
    jobs = []
    for query, database, (low, high) in known:
        at = {rate: placements(query.optimized(rate, database), query.name in WHOLE) for rate in (low, high)}
        first = at_once(at[low], at[high])
        order = [(low, c, True) for c in at[low] if c.id not in first] + [(high, c, True) for c in at[high]]
        # Those that were to keep up with the higher rate and did not.
        order += [(low, c, False) for c in at[low] if c.id in first]
        for rate, c, exact in order:
            name = f"{query.name} {database} {rate:,.0f}/s spark: {len(in_spark(c.plan))} operators, {c.plan.id}"
            jobs.append(Job(name, partial(_measure, lab, query, database, c, rate, exact)))
    contests = [
        Job(f"{q.name} {d} {both[which]:,.0f}/s best", partial(_contest, lab, q, d, both, which))
        for which in (1, 0)
        for q, d, both in known
    ]
    again = [Job(f"{q.name} {d}", partial(_again, lab, q, d, both)) for q, d, both in known]
    with lab.limited(HASTY):
        left_out += lab.run("decision", jobs)
    left_out += lab.run("decision: best", contests)
    with lab.limited(HASTY):
        left_out += lab.run("decision: again", again)
    return summary(tuple(_case(lab, q, d, both) for q, d, both in known), left_out)


def at_once(low: Sequence[Candidate], high: Sequence[Candidate]) -> set[str]:
    """Placements for which a trial at the higher rate should do for the lower one as well; both lists begin with the
    picked and the pure plans."""
    open_ = {c.id for c in (*low[:PURE], *high[:PURE])}
    open_ |= {c.id for c in sorted(low, key=lambda c: c.plan.cost.bottleneck)[: max(2, len(low) // CONTENDERS)]}
    return {c.id for c in high if c.plan.cost.bottleneck <= SURE} - open_


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


def _measure(lab: Lab, query: Query, database: str, c: Candidate, rate: float, exact: bool) -> None:
    """Whether it keeps up, and with `exact` its u where it does."""
    u, basis = reading(lab.points(query, c), rate)
    if u is not None and not (exact and basis is Basis.AT_MOST):
        return
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
    """Those that seem better than the picked plan at a rate, and pure plans that do, in turns with it; near the limit
    also their maxima."""
    rate = rates[which]
    optimized = query.optimized(rate, database)
    picked = candidate(optimized, Kind.OPTIMAL)
    u = {c.plan.id: (p.u, c) for c in placements(optimized, query.name in WHOLE) if (p := _at(lab, query, c, rate))}
    if picked.plan.id not in u:
        return
    better = sorted((own for own in u.values() if own[0] < CLEARLY * u[picked.plan.id][0]), key=lambda own: own[0])
    ahead = [c for rank, (_, c) in enumerate(better) if rank < AHEAD or pure(c.plan)]
    if not ahead:
        return
    both = [picked, *ahead]
    trials = lab.in_turns(query, both, rate, ROUNDS)
    if trials[0].u > NOISE * min(t.u for t in trials):
        trials = lab.in_turns(query, both, rate, ROUNDS)
    best = min(zip(trials, both, strict=True), key=lambda own: own[0].u)[1]
    if which == 0 or best is picked:
        return
    brackets = [bracket(lab.search(query, one, rate)) for one in (picked, best)]
    if all(above is None for _, above in brackets):
        return  # both keep up with all that is looked at
    for end in sorted({p.rate for both_ends in brackets for p in both_ends if p is not None}):
        lab.in_turns(query, [picked, best], end, ROUNDS)


def _again(lab: Lab, query: Query, database: str, rates: tuple[float, float]) -> None:
    """A trial that contradicts another of its plan hit a slow spell of the machine, or the other did: both run again.
    Single batches that are close to a verdict's border run again as well, whatever the model says of them."""
    for rate in dict.fromkeys(rates):
        for c in placements(query.optimized(rate, database), query.name in WHOLE):
            points = lab.points(query, c)
            for odd in contradicting(points):
                lab.in_turns(query, [c], odd, ROUNDS)
            here = _at(lab, query, c, rate)
            if here is not None and abs(log(here.u)) < CLOSE and len(lab.trial(query, c, rate).batches) < ROUNDS:
                lab.in_turns(query, [c], rate, 1)


def contradicting(points: Sequence[Point]) -> list[float]:
    """Rates of trials that say that a plan does less work at a higher rate, where it may matter to a verdict.

    >>> contradicting([Point(1000, 0.9), Point(2000, 0.5), Point(4000, 0.4)])
    [1000, 2000, 4000]
    """
    exact = sorted((p for p in points if not p.censored), key=lambda p: p.rate)
    pairs = [(a.rate, b.rate) for a, b in combinations(exact, 2) if a.u > max(SURE, CONTRADICTION * b.u)]
    return sorted({rate for pair in pairs for rate in pair})


def pure(plan: PhysicalPlan) -> bool:
    """Whether it is all in Spark, or all in the database."""
    return len(in_spark(plan)) in (0, len(plan.operators))


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
            rows.append(_measured(optimized, c, known, rate))
        found.append(at_rate(rate, rows))
    # The pick follows the rate: what a plan sustains is set against what is picked there, be it in the sample or not.
    tops = {top.value for _, known in points.values() if (top := maximum(known)) is not None}
    for rate in sorted(tops):
        picked = candidate(query.optimized(rate, database), Kind.OPTIMAL)
        points[picked.id] = picked, lab.points(query, picked)
    maxima = [
        Maximum(c.plan.id, in_spark(c.plan), top, c.plan.id in _picked_at(query, database, (rates[1], top.value)))
        for c, known in points.values()
        if (top := maximum(known)) is not None
    ]
    return Case(query.name, database, whole, tuple(found), throughput_regret(maxima), tuple(maxima))


def _picked_at(query: Query, database: str, rates: Sequence[float]) -> set[str]:
    """Plans picked near the limit, and at a plan's own maximum."""
    return {query.optimized(rate, database).plan.id for rate in rates}


def _measured(optimized: Optimized, c: Candidate, known: Sequence[Point], rate: float) -> Measured:
    u, basis = reading(known, rate)
    picked = c.plan.id == optimized.plan.id
    return Measured(c.plan.id, in_spark(c.plan), c.how, c.plan.cost.bottleneck, u, basis, picked, pure(c.plan))
