"""A deployment on the smart-plug stream, run for some seconds and measured: what the running benches share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from connectors.spark.sliding import Form
from connectors.spark.smartplug import smartplug_rows
from migration.deployment import Deployment
from migration.metrics import BatchReport, Share
from migration.native import NativeDeployment
from migration.prefill import Earlier, prefill
from migration.streaming import Settings
from optimizer.catalog import Catalog, Figure, Watermark
from optimizer.errors import PenstockError
from optimizer.optimize import Optimized, Options, optimize
from optimizer.physical import PhysicalPlan
from optimizer.sql.ddl import parse_catalog
from service.bench.nway import smartplug

STREAM, TIME = "plugs", "ts"
START = datetime(2024, 1, 1)


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
    earlier = Earlier(STREAM, TIME, workload.rate, seconds, lambda a, b: smartplug_rows(spark, a, b, options))
    prefill(deployment.batches, earlier, seconds)


def measure(
    deployment: Deployment | NativeDeployment,
    workload: Workload,
    reports: list[BatchReport],
    warm_up: float,
    seconds: float,
    at_most: float = 120.0,
) -> Measured:
    """Starts the deployment, lets it warm up, and looks at the batches of the seconds that follow, two at least."""
    deployment.start()
    _run_for(deployment, warm_up)
    deadline = monotonic() + at_most
    while len(_done(deployment)) < 2 and monotonic() < deadline:
        _run_for(deployment, 0.2)
    first = len(_done(deployment))
    _run_for(deployment, seconds)
    while len(_done(deployment)) < first + 2 and monotonic() < deadline:
        _run_for(deployment, 0.2)
    done = _done(deployment)
    while not done and monotonic() < deadline + at_most:  # one at least
        _run_for(deployment, 0.2)
        done = _done(deployment)
    batches = done[first:] or done[1:] or done
    deployment.stop()
    return _measured(deployment, workload, batches, reports)


def _done(deployment: Deployment | NativeDeployment) -> list[StreamingQueryProgress]:
    """The batches that Spark has committed, with tuples in them."""
    assert deployment.query is not None
    return [p for p in deployment.query.recentProgress if tuples_of(p)]


def tuples_of(progress: StreamingQueryProgress) -> int:
    """Spark counts the ranges that the generator hands it; the tuples are in the offsets."""
    source = progress.sources[0]
    start, end = ((json.loads(text) if text else None) or {} for text in (source.startOffset, source.endOffset))
    return int(end.get("index", 0)) - int(start.get("index", 0))


def _run_for(deployment: Deployment | NativeDeployment, seconds: float) -> None:
    deadline = monotonic() + seconds
    while monotonic() < deadline:
        if deployment.wait(min(0.2, seconds)):
            return
        sleep(0)


def _measured(
    deployment: Deployment | NativeDeployment,
    workload: Workload,
    batches: list[StreamingQueryProgress],
    reports: list[BatchReport],
) -> Measured:
    if not batches:
        raise PenstockError(f"{workload.name} did not finish a batch at {workload.rate:,.0f} tuples/s")
    wanted = {p.batchId: p for p in batches}
    later = [r for r in reports if r.batch in wanted]
    tuples = sum(map(tuples_of, batches))
    working = sum(p.durationMs["triggerExecution"] for p in batches) / 1000
    # As fast as it goes the loop does nothing but work; in real time it waits for its next trigger.
    seconds = working if workload.pace == "full" else tuples / workload.rate
    shares = {share.value: sum(r.shares[share] for r in later) / seconds for share in Share}
    behind = [_behind(r, deployment, workload) for r in (later[0], later[-1])]
    return Measured(
        seconds,
        tuples / workload.rate,
        tuples,
        sum(r.ticks for r in later),
        len(batches),
        working / seconds,
        shares,
        behind[0],
        behind[1],
    )


def _behind(report: BatchReport, deployment: Deployment | NativeDeployment, workload: Workload) -> float:
    """Seconds between the tuples that were due when a batch was done and those it had read."""
    if workload.pace != "real":
        return 0.0
    due = (report.finished - wall_start(deployment)) * workload.rate
    return max(0.0, due - report.tuples) / workload.rate if report.tuples else 0.0


def wall_start(deployment: Deployment | NativeDeployment) -> float:
    """The instant at which the source's first tuple was due."""
    assert deployment.query is not None
    progress = deployment.query.lastProgress
    assert progress is not None
    offset = json.loads(progress.sources[0].endOffset)
    return float(offset["wall_us"]) / 1e6
