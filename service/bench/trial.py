"""One plan at one rate: u, the seconds of work per second of stream (paper 001, section 5), as the runtime has it.

The runtime is a serial loop: a batch is read, shipped to the stores, and its ticks are evaluated, one after the other.
A plan sustains a rate if batches of B seconds of stream take at most B seconds. So the stream is read as fast as it
goes, in batches of B seconds over full windows, until batches get no faster; u is what such a batch takes, over B. A
batch that takes several times B is given up: its u is a lower bound, and the trial is called censored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate, pairwise
from math import inf
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic

from pyspark.sql import SparkSession

from connectors.spark.sliding import Form
from migration.deployment import Deployment, kept_by
from migration.metrics import BatchReport, Share
from migration.mig import in_panes
from migration.native import NativeDeployment
from migration.settling import settled
from migration.streaming import Settings
from optimizer.errors import PenstockError
from optimizer.physical import PhysicalPlan
from service.bench.fills import Fills, worth_filling
from service.bench.live import STREAM, Workload, tuples_of
from service.bench.steady import memory


class How(StrEnum):
    """The way in which Spark aggregates windows; `native` is the whole query as one query of Spark's."""

    PANE = "pane"
    EXPAND = "expand"
    NATIVE = "native"


@dataclass(frozen=True)
class Limits:
    batch: float = 2.0  # B, seconds of stream in a batch
    measured: int = 2  # batches that count at least, the last ones
    span: float = 1.0  # seconds that those take at least, as short ones scatter more
    settle: int = 1  # batches that are no faster than as many before them: it has settled
    most: int = 12  # batches for that
    patience: float = inf  # seconds of batches for that
    slow: float = 1.5  # times B: batches that all take longer need not settle
    give_up: float = 3.0  # times B
    starting: float = 10.0  # seconds more for the first batch, in which Spark compiles the plan; no part of its u


CLEAR = 1.5  # times B, or B over it: nearer to B a trial settles, whatever the patience
PANED = 10e6  # tuples per second that a database makes panes of, at least

# Where it matters only whether a plan keeps up; most of the code has been compiled for plans before.
HASTY = Limits(measured=1, patience=0.8, slow=1.5, give_up=2.0, starting=4.0)


@dataclass(frozen=True)
class Trial:
    rate: float
    u: float
    censored: bool  # u is at least this
    filled: bool  # windows were full; otherwise u only grows from here
    batches: tuple[float, ...]  # seconds of each that counts
    ticks: int  # in those
    shares: dict[str, float]  # of u; the rest is Spark's bookkeeping
    memory: int  # bytes, of driver and JVM
    wall: float  # seconds that the trial took, with making the windows


def measure_u(fills: Fills, workload: Workload, plan: PhysicalPlan, how: How, limits: Limits) -> Trial:
    """The workload's pace and limits are the trial's own; its rate, its query and the plan's database count."""
    started = monotonic()
    paced = replace(workload, pace="full", batch_seconds=limits.batch, limit=limits.most * limits.batch)
    reports: list[BatchReport] = []
    with _deployed(fills, paced, plan, how, reports) as deployment:
        lost = _run(deployment, fills.spark, reports, replace(limits, starting=limits.starting + making_panes(plan)))
        durations = _durations(deployment, reports, limits)
    seconds = list(durations.values())
    if len(seconds) >= limits.measured:
        lost = None  # what came after the last batch that counts: Spark's own query closes its windows
    form = None if how is How.NATIVE else Form(how.value)
    filled = form is not None and worth_filling(paced, kept_by(plan, paced.catalog, form))
    done = [r for r in reports if r.batch in durations]
    shares = {s.value: sum(r.shares[s] for r in done) / (limits.batch * max(len(done), 1)) for s in Share}
    # A batch that was given up is slower than any that was not; where one was, its time is the bound.
    u = max([median(seconds)] if seconds and lost is None else [*seconds, lost or 0.0]) / limits.batch
    ticks = sum(r.ticks for r in done)
    return Trial(
        workload.rate, u, lost is not None, filled, tuple(seconds), ticks, shares, memory(), monotonic() - started
    )


def making_panes(plan: PhysicalPlan) -> float:
    """Seconds that the first batch may take longer, in which a database makes the panes of a whole window."""
    tuples = sum(leaf.size for leaf in plan.leaves) if in_panes(plan.operators) else 0.0
    return tuples / PANED


def merged(trials: Sequence[Trial], batch: float) -> Trial:
    """Trials of one plan at one rate as one: the median over all their batches, a bound where one was given up.

    >>> some = [Trial(1000, u, False, True, (2 * u,), 2, {}, 0, 1.0) for u in (0.5, 0.8, 0.6)]
    >>> merged(some, 2.0).u
    0.6
    """
    given_up = [t for t in trials if t.censored]
    if given_up:
        return max(given_up, key=lambda t: t.u)
    seconds = tuple(s for t in trials for s in t.batches)
    weights = [len(t.batches) / len(seconds) for t in trials]
    shares = {s: sum(w * t.shares[s] for w, t in zip(weights, trials, strict=True)) for s in trials[-1].shares}
    return replace(
        trials[-1],
        u=median(seconds) / batch,
        batches=seconds,
        ticks=sum(t.ticks for t in trials),
        shares=shares,
        memory=max(t.memory for t in trials),
        wall=sum(t.wall for t in trials),
    )


@contextmanager
def _deployed(
    fills: Fills, workload: Workload, plan: PhysicalPlan, how: How, reports: list[BatchReport]
) -> Iterator[Deployment | NativeDeployment]:
    if how is not How.NATIVE:
        with fills.deployed(workload, plan, Form(how.value), reports.append) as deployment:
            yield deployment
        return
    with TemporaryDirectory(prefix="penstock-trial-", ignore_cleanup_errors=True) as place:
        settings = Settings(
            Path(place) / "state",
            f"parquet:{place}/out",
            trigger=None,
            rates={STREAM: workload.rate},
            on_batch=reports.append,
        )
        native = NativeDeployment(fills.spark, plan, workload.sql, workload.catalog, settings)
        try:
            yield native
        finally:
            native.close()


def _run(
    deployment: Deployment | NativeDeployment, spark: SparkSession, reports: list[BatchReport], limits: Limits
) -> float | None:
    """Until it has settled, or until a batch takes too long: then the seconds that it had taken."""
    deployment.start()
    begun, done = monotonic(), 0
    while not deployment.wait(0.05):
        now = monotonic()
        if len(reports) > done:
            begun, done = now, len(reports)
            if _enough(reports, limits):
                deployment.stop()
                return None
        if now - begun > limits.give_up * limits.batch + (0.0 if done else limits.starting):
            _cancel(deployment, spark)
            return now - begun - (0.0 if done else limits.starting)
    return None


def _enough(reports: Sequence[BatchReport], limits: Limits) -> bool:
    """The first batch is never looked at: all its code is new."""
    seconds = [after.finished - before.finished for before, after in pairwise(reports)]
    slow = len(seconds) >= limits.settle and min(seconds) > limits.slow * limits.batch
    long = len(seconds) >= limits.measured and sum(seconds) >= limits.patience and _clear(seconds[-1], limits)
    return slow or long or (len(seconds) > _long_enough(seconds, limits) and settled(seconds, limits.settle))


def _clear(seconds: float, limits: Limits) -> bool:
    """Whether a batch is so long, or so short, that another one says the same."""
    return not 1 / CLEAR <= seconds / limits.batch <= CLEAR


def counting(seconds: Sequence[float], limits: Limits) -> int:
    """How many batches count: so many of the last ones that they are long enough together; near B both that settled.

    >>> one = Limits(measured=1, span=1.0, batch=2.0)
    >>> counting([3.0, 0.6, 0.5, 0.4], one), counting([3.0, 4.0], one), counting([3.0, 2.1, 2.0], one)
    (3, 1, 2)
    """
    near = min(2 * limits.settle, len(seconds)) if seconds and not _clear(seconds[-1], limits) else 0
    return max(_long_enough(seconds, limits), near)


def _long_enough(seconds: Sequence[float], limits: Limits) -> int:
    together = accumulate(reversed(seconds))
    enough = next((n for n, length in enumerate(together, 1) if length >= limits.span), len(seconds))
    return max(enough, limits.measured)


def _cancel(deployment: Deployment | NativeDeployment, spark: SparkSession) -> None:
    """Ends the batch in flight. Stopping the query would wait for it; without its jobs and statements it fails."""
    assert deployment.query is not None
    deployment.stop_asked.set()
    deadline = monotonic() + 60.0
    while deployment.query.isActive and monotonic() < deadline:
        spark.sparkContext.cancelAllJobs()
        if isinstance(deployment, Deployment):
            deployment.database.interrupt()
        with suppress(PenstockError):  # that it was cancelled
            deployment.wait(0.3)


def _durations(
    deployment: Deployment | NativeDeployment, reports: Sequence[BatchReport], limits: Limits
) -> dict[int, float]:
    """Seconds of the batches that count, trigger to commit; end to end, of one that Spark was stopped after too soon to
    tell."""
    assert deployment.query is not None
    told = [p for p in deployment.query.recentProgress if tuples_of(p) and p.batchId > 0]
    found = {p.batchId: p.durationMs["triggerExecution"] / 1000 for p in told}
    if not found or isinstance(deployment, Deployment):
        found = {after.batch: after.finished - before.finished for before, after in pairwise(reports)} | found
    last = sorted(found.items())
    return dict(last[-counting([seconds for _, seconds in last], limits) :])
