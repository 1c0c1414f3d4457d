"""A deployment on the smart-plug stream, run for some seconds and measured: what the running benches share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep

from pyspark.sql import SparkSession

from connectors.spark.sliding import Form
from connectors.spark.smartplug import smartplug_rows
from migration.deployment import Deployment
from migration.metrics import BatchReport, Share
from migration.native import NativeDeployment
from migration.prefill import prefill
from migration.streaming import Settings
from optimizer.catalog import Catalog, Figure, Watermark
from optimizer.optimize import Optimized, Options, optimize
from optimizer.physical import PhysicalPlan
from optimizer.sql.ddl import parse_catalog
from service.bench.nway import smartplug

STREAM, TIME = "plugs", "ts"
START = datetime(2024, 1, 1)
PREFILL_PART = 2_000_000  # tuples generated and stored at once


@dataclass(frozen=True)
class Workload:
    """A query on the stream. The tuples come in order, so no tick has to wait for late ones."""

    name: str
    sql: str
    rate: float  # of event time
    pace: str = "real"  # or full: as fast as they are read
    batch_seconds: float = 4.0  # of the stream in a batch, at most
    limit: float | None = None  # seconds of stream after which the source ends

    @staticmethod
    def example(name: str, rate: float, pace: str = "real", limit: float | None = None) -> Workload:
        return Workload(name, smartplug(f"{name}.sql"), rate, pace, limit=limit)

    @property
    def catalog(self) -> Catalog:
        known = parse_catalog(smartplug("catalog.sql"))
        plugs = known.streams[STREAM]
        options: dict[str, str | float | bool] = {
            **plugs.options,
            "rate": self.rate,
            "start": str(START),
            "pace": self.pace,
            "max_per_batch": self.rate * self.batch_seconds,
        }
        if self.limit is not None:
            options["limit"] = round(self.limit * self.rate)
        changed = replace(plugs, options=options, rate=Figure(self.rate), watermark=Watermark(TIME, 0))
        return replace(known, streams={**known.streams, STREAM: changed})

    def optimized(self, database: str = "duckdb") -> Optimized:
        return optimize(self.sql, self.catalog, Options(database=database))


@dataclass(frozen=True)
class Measured:
    """Of the batches after the warm-up. `busy` is the share of time in which Spark's loop was not waiting."""

    seconds: float
    stream_seconds: float
    tuples: int
    ticks: int
    batches: int
    busy: float
    shares: dict[str, float]
    behind_first: float  # seconds of event time the ticks are behind the tuples that are due
    behind_last: float

    @property
    def tuples_per_second(self) -> float:
        return self.tuples / self.seconds

    @property
    def keeps_up(self) -> bool:
        return self.behind_last <= self.behind_first + 1.0


@contextmanager
def deployed(
    spark: SparkSession,
    workload: Workload,
    plan: PhysicalPlan,
    reports: list[BatchReport],
    window_seconds: float = 0.0,
    trigger: float = 1.0,
    native: bool = False,
    form: Form = Form.PANE,
    url: str | None = None,
) -> Iterator[Deployment | NativeDeployment]:
    """Deployed in a directory of its own, with windows filled for some seconds, and not yet started."""
    with TemporaryDirectory(prefix="penstock-bench-") as place:
        settings = Settings(
            Path(place) / "state",
            f"parquet:{place}/out",
            form,
            url,
            trigger=trigger,
            rates={STREAM: workload.rate},
            on_batch=reports.append,
        )
        kind = NativeDeployment if native else Deployment
        deployment = kind(spark, plan, workload.sql, workload.catalog, settings)
        try:
            if window_seconds and isinstance(deployment, Deployment):
                _fill(spark, deployment, workload, window_seconds)
            yield deployment
        finally:
            deployment.close()
            if isinstance(deployment, Deployment):
                deployment.drop()


def _fill(spark: SparkSession, deployment: Deployment, workload: Workload, seconds: float) -> None:
    """The tuples of the seconds before the stream begins."""
    options = {k: v for k, v in workload.catalog.streams[STREAM].options.items() if k not in ("connector", "limit")}
    options["start"] = str(START - timedelta(seconds=seconds))
    count = round(seconds * workload.rate)
    borders = [*range(0, count, PREFILL_PART), count]
    parts = [smartplug_rows(spark, a, b, options) for a, b in pairwise(borders)]
    prefill(deployment.batches, STREAM, TIME, parts)


def measure(
    deployment: Deployment | NativeDeployment,
    workload: Workload,
    reports: list[BatchReport],
    warm_up: float,
    seconds: float,
) -> Measured:
    """Starts the deployment, lets it warm up, and looks at the batches of the seconds that follow."""
    deployment.start()
    _run_for(deployment, warm_up)
    while len(reports) < 2:
        _run_for(deployment, 0.2)
    first = len(reports) - 1
    _run_for(deployment, seconds)
    while len(reports) < first + 3:  # at least two batches, however long they take
        _run_for(deployment, 0.2)
    deployment.stop()
    return _measured(deployment, workload, reports[first:])


def _run_for(deployment: Deployment | NativeDeployment, seconds: float) -> None:
    deadline = monotonic() + seconds
    while monotonic() < deadline:
        if deployment.wait(min(0.2, seconds)):
            return
        sleep(0)


def _measured(deployment: Deployment | NativeDeployment, workload: Workload, reports: list[BatchReport]) -> Measured:
    before, later = reports[0], reports[1:]
    last = later[-1]
    seconds = last.finished - before.finished
    wanted = {r.batch for r in later}
    assert deployment.query is not None
    progress = [p for p in deployment.query.recentProgress if p.batchId in wanted]
    # The last batch's own record may come after the stop; its handling is known all the same.
    known = {p.batchId: p.durationMs["triggerExecution"] / 1000 for p in progress}
    busy = sum(known.get(r.batch, r.seconds) for r in later) / seconds
    shares = {share.value: sum(r.shares[share] for r in later) / seconds for share in Share}
    tuples = last.tuples - before.tuples
    behind = [_behind(r, deployment, workload) for r in (before, last)]
    return Measured(
        seconds,
        tuples / workload.rate,
        tuples,
        sum(r.ticks for r in later),
        len(later),
        busy,
        shares,
        behind[0],
        behind[1],
    )


def _behind(report: BatchReport, deployment: Deployment | NativeDeployment, workload: Workload) -> float:
    """Seconds between the tuples that were due when a batch was done and those it had read."""
    if workload.pace != "real":
        return 0.0
    due = (report.finished - wall_start(deployment)) * workload.rate
    return max(0.0, due - report.tuples) / workload.rate


def wall_start(deployment: Deployment | NativeDeployment) -> float:
    """The instant at which the source's first tuple was due."""
    assert deployment.query is not None
    progress = deployment.query.lastProgress
    assert progress is not None
    offset = json.loads(progress.sources[0].endOffset)
    return float(offset["wall_us"]) / 1e6
