"""A plan run for a short while, and what became of the estimates: rates, sizes and u of every operator.

The run itself says how long batches take, what the MIGs take of them, and what is left to Spark's loop; probes say
what single operators do (`migration.probes`), and so how Spark's time is divided among them. All figures are per second
of stream, so that a run that falls behind, or one over recorded streams, is measured as well. Windows that the run is
too short to fill are compared with estimates for windows as long as it was.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa
from pyspark.sql import SparkSession

from connectors.spark.sliding import Form
from costmodel.flow import Drive
from migration.analysis import Analysis
from migration.deployment import Deployment, drop_state
from migration.measured import Measured
from migration.metrics import BatchReport
from migration.observations import Observation
from migration.observer import Sample, bookkeeping, observed
from migration.probes import ArrivalProbe, OperatorProbe
from migration.streaming import Settings
from optimizer.errors import PenstockError
from optimizer.optimize import Optimized

FIRST_BATCH = 60.0  # seconds to wait for the first tuples
FEW = 4  # batches, below which, or without a result, a run goes on
LONGER = 4  # times as long, at most


@dataclass(frozen=True)
class Trial:
    """How to run the plan."""

    seconds: float = 15.0  # from the first batch on
    form: Form | None = None  # of sliding aggregates; as the plan says, where not given
    url: str | None = None  # of PostgreSQL
    trigger: float = 0.5
    on_batch: Callable[[BatchReport], None] = lambda report: None
    on_message: Callable[[str], None] = lambda text: None
    enough: Callable[[], bool] = lambda: False  # asked now and then: whether to end before the time


def analyze(spark: SparkSession, optimized: Optimized, trial: Trial) -> tuple[Analysis, Observation | None]:
    """Runs the plan on state that is gone afterwards, and measures it."""
    with _temporary_state(trial.url) as state:
        recorder = Recorder(trial.on_batch)
        rates = {name: s.offered for name, s in optimized.catalog.streams.items() if s.offered}
        settings = Settings(
            state, "console", trial.form, trial.url, False, trial.trigger, rates, recorder.batch, trial.on_message
        )
        deployment = Deployment(spark, optimized.plan, optimized.sql, optimized.catalog, settings)
        try:
            deployment.sink = deployment.batches.sink = _Nowhere()
            return analyze_deployment(deployment, optimized, trial, recorder)
        finally:
            deployment.close()
            recorder.deployment = None  # Spark holds on to the callback, and would to the database


def analyze_deployment(
    deployment: Deployment, optimized: Optimized, trial: Trial, recorder: Recorder, earlier: float = 0.0
) -> tuple[Analysis, Observation | None]:
    """Runs and measures a deployment that has not started, whose batches go to `recorder`.

    `earlier` is how many seconds of stream its windows hold already.
    """
    recorder.deployment = deployment
    arrivals = ArrivalProbe(deployment.plan, optimized.catalog, deployment.kept, deployment.evaluator.state)
    deployment.batches.observer = arrivals
    _run(deployment, trial, recorder.samples)
    _check(deployment, trial, recorder.samples)
    trial.on_message("measuring the operators one by one")
    operators = OperatorProbe(deployment)
    operators.measure()
    samples = [replace(s, probing=arrivals.spent.get(s.report.batch, 0.0)) for s in recorder.samples]
    own = bookkeeping(deployment, samples)
    measured = Measured(deployment, samples, own, arrivals, operators, round(earlier * 1e6))
    seen = observed(deployment, samples, optimized, "explain --analyze", round(earlier * 1e6))
    return measured.analysis(optimized), seen


@contextmanager
def _temporary_state(url: str | None) -> Iterator[Path]:
    state = Path(mkdtemp(prefix="penstock-analyze-"))
    try:
        try:
            yield state
        except BaseException:
            with suppress(PenstockError):  # the first error is the one to tell
                drop_state(state, url)
            raise
        drop_state(state, url)
    finally:
        shutil.rmtree(state, ignore_errors=True)


class _Nowhere:
    """A sink that forgets."""

    exactly_once, note = True, ""

    def prepare(self, schema: pa.Schema) -> None:
        pass

    def write(self, batch: int, rows: pa.Table, *, during: Callable[[], None] = lambda: None) -> None:
        during()

    def last_batch(self) -> int | None:
        return None

    def close(self) -> None:
        pass


@dataclass
class Recorder:
    """Takes the batches of a deployment, with what the clock says at the end of each."""

    on_batch: Callable[[BatchReport], None] = lambda report: None
    samples: list[Sample] = field(default_factory=list)
    deployment: Deployment | None = None

    def batch(self, report: BatchReport) -> None:
        assert self.deployment is not None
        self.samples.append(Sample.of(report, self.deployment))
        self.on_batch(report)


def _run(deployment: Deployment, trial: Trial, samples: list[Sample]) -> None:
    deployment.start()
    started, begun = time.monotonic(), None
    while not deployment.wait(0.1) and not trial.enough():
        now = time.monotonic()
        if samples:
            begun = begun if begun is not None else now
            enough = len(samples) >= FEW and any(s.report.ticks or s.report.rows for s in samples)
            due = trial.seconds if enough else LONGER * trial.seconds
        if now >= (started + FIRST_BATCH if begun is None else begun + due):
            break
    deployment.stop()


def _check(deployment: Deployment, trial: Trial, samples: list[Sample]) -> None:
    streams = ", ".join(deployment.feed.streams)
    progress = deployment.batches.progress
    if not samples or not progress.newest:
        raise PenstockError(f"no tuple of {streams} came: there is nothing to measure")
    slides = deployment.plan.drive is Drive.SLIDE
    if progress.evaluated is None or (slides and not any(s.report.ticks for s in samples)):
        delay = max(deployment.batches.watermarks.delays.values()) / 1e6
        raise PenstockError(
            f"nothing was evaluated in {trial.seconds:g} s: the watermark of {streams} is {delay:g} s behind the "
            "newest tuple, and a tick comes after its slide; run for longer with --for"
        )
