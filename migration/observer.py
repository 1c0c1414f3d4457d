"""Looks at the batches of a deployment, and makes an observation of them when it is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from migration.deployment import Deployment
from migration.metrics import BatchReport
from migration.observations import Observation, Parts
from optimizer.algebra import Window, WindowUnit
from optimizer.optimize import Optimized
from optimizer.physical import Where

COLD = 2  # first batches, in which the JVM and the database warm up


@dataclass(frozen=True)
class Sample:
    """A batch: its report, the newest event time then, the clock's parts until then, and what probes took of it."""

    report: BatchReport
    newest: int
    parts: dict[str, float]
    probing: float = 0.0

    @staticmethod
    def of(report: BatchReport, deployment: Deployment) -> Sample:
        newest = max(deployment.batches.progress.newest.values(), default=0)
        return Sample(report, newest, dict(deployment.clock.parts))


def bookkeeping(deployment: Deployment, samples: Sequence[Sample]) -> float:
    """Spark's own seconds per batch: from the trigger to the commit, less what happens in the batch."""
    assert deployment.query is not None
    whole = {p.batchId: p.durationMs.get("triggerExecution", 0) / 1e3 for p in deployment.query.recentProgress}
    rest = [whole[s.report.batch] - s.report.seconds for s in samples if s.report.batch in whole]
    return max(0.0, median(rest)) if rest else 0.0


def observed(
    deployment: Deployment, samples: Sequence[Sample], optimized: Optimized, what: str, earlier: int = 0
) -> Observation | None:
    """The later half of the batches, without the first ones; None where too little happened to say anything.

    `earlier` is how many microseconds of stream the windows held before the first batch.
    """
    progress = deployment.batches.progress
    first = max(COLD, len(samples) // 2)
    later = samples[first:]
    if not later or progress.oldest is None or not any(s.report.ticks or s.report.rows for s in later):
        return None
    before = samples[first - 1]
    seconds = (later[-1].newest - before.newest) / 1e6
    tuples = later[-1].report.tuples - before.report.tuples
    if seconds <= 0 or tuples <= 0:
        return None
    busy = sum(s.report.seconds - s.probing for s in later) + bookkeeping(deployment, samples) * len(later)

    def part(ending: str) -> float:
        """Seconds per second of stream in parts of the clock with such a name."""
        return sum(v - before.parts.get(k, 0.0) for k, v in later[-1].parts.items() if k.endswith(ending)) / seconds

    plan = deployment.plan
    middle = later[len(later) // 2].newest
    rates = {name: figure.rate.value for name, figure in optimized.catalog.streams.items() if figure.rate}
    if len(deployment.feed.streams) == 1:
        rates[deployment.feed.streams[0]] = tuples / seconds
    return Observation(
        what=what,
        sql=optimized.sql,
        catalog=optimized.catalog.text,
        database=plan.database,
        plan=plan.id,
        in_database=tuple(o.id for o in plan.operators if o.where is Where.DB),
        join_orders=tuple(r.order for r in optimized.search.regions),
        forms={p.name.rpartition("_")[0]: p.form.value for p in deployment.kept.partials},
        rates=rates,
        filled={
            leaf.node.alias: _filled(leaf.node, progress.oldest - earlier, middle, later[-1].report.tuples)
            for leaf in plan.leaves
            if isinstance(leaf.node, Window)
        },
        batch_seconds=seconds / len(later),
        parts=Parts(
            total=busy / seconds, run=part(" run"), ticks=part("ticks"), fetch=part(" fetch"), ship=part(" send")
        ),
    )


def _filled(window: Window, oldest: int, middle: int, tuples: int) -> int:
    """How much of a window there was half-way, in its own unit."""
    there = tuples if window.spec.unit is WindowUnit.ROWS else middle - oldest
    return max(1, min(window.spec.size, there))
