"""`penstock run`: plans a query, deploys it, shows how it keeps up, and ends without losing anything."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from connectors.spark.session import spark_session
from connectors.spark.sliding import Form
from migration.deployment import Deployment, drop_state, look_ahead
from migration.metrics import BatchReport
from migration.native import NativeDeployment
from migration.observations import Observation, append
from migration.observer import Sample, observed
from migration.streaming import Settings
from optimizer.catalog import Catalog
from optimizer.errors import PenstockError
from optimizer.explain.document import PlanDocument
from optimizer.optimize import Optimized, Options, optimize
from optimizer.physical import PhysicalPlan, Where
from optimizer.pinned import everywhere, pinned
from service.panel import Panel

NATIVE, PLANNED = "native", "planned"
RECENT = 200  # batches that an observation is made of, at most


@dataclass(frozen=True)
class Request:
    """What a person asked to run."""

    sql: str
    catalog: Catalog
    options: Options
    state: Path
    plan: str = "optimal"  # optimal, spe, db, or a file with a plan document
    spe: str = PLANNED  # or native, pane, expand
    sink: str = "console"
    url: str | None = None
    in_memory: bool = False
    fresh: bool = False
    master: str = "local[*]"
    seconds: float | None = None
    trigger: float | None = 0.5
    spark_options: Mapping[str, str] = field(default_factory=dict)
    observations: Path | None = None  # where to leave a line of what was seen


def choose(request: Request) -> tuple[Optimized, PhysicalPlan]:
    optimized = optimize(request.sql, request.catalog, request.options)
    if request.spe == NATIVE:
        return optimized, everywhere(optimized, Where.SPE)
    match request.plan:
        case "optimal":
            return optimized, optimized.plan
        case "spe" | "db":
            return optimized, everywhere(optimized, Where(request.plan))
        case path:
            return optimized, pinned(read_plan(Path(path)), optimized)


def read_plan(path: Path) -> PlanDocument:
    try:
        return PlanDocument.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise PenstockError(f"the plan {path} cannot be read: {reason}; --plan is optimal, spe, db or a file") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the document"
        raise PenstockError(
            f"{path} is not a plan document: {where}: {first['msg']}; write one with explain --format json"
        ) from None


def run(request: Request, panel: Panel) -> None:
    """Runs until the time is over, the input is at its end, or a person stops it."""
    optimized, plan = choose(request)
    if request.fresh:
        drop_state(request.state, request.url)
    panel.plan(optimized, plan, request.plan)
    samples: deque[Sample] = deque(maxlen=RECENT)
    watched: list[Deployment] = []

    def on_batch(report: BatchReport) -> None:
        panel.batch(report)
        if watched:
            samples.append(Sample.of(report, watched[0]))

    settings = Settings(
        request.state,
        request.sink,
        None if request.spe in (NATIVE, PLANNED) else Form(request.spe),
        request.url,
        request.in_memory,
        request.trigger,
        {name: s.offered for name, s in optimized.catalog.streams.items() if s.offered},
        on_batch,
        panel.message,
    )
    if request.spe != NATIVE:
        look_ahead(plan, request.sql, settings)
    panel.message("starting Spark")
    spark = spark_session(request.master, request.spark_options)
    try:
        kind = NativeDeployment if request.spe == NATIVE else Deployment
        deployment = kind(spark, plan, request.sql, optimized.catalog, settings)
        try:
            for warning in deployment.warnings:
                panel.warn(warning)
            if isinstance(deployment, Deployment):
                watched.append(deployment)
            _until_the_end(deployment, request.seconds, panel)
            if watched and request.observations:
                _leave_line(request.observations, observed(watched[0], list(samples), optimized, "run"), panel)
        finally:
            watched.clear()  # Spark holds on to the callback, and would to the database
            deployment.close()
    finally:
        spark.stop()


def _leave_line(path: Path, seen: Observation | None, panel: Panel) -> None:
    """What was seen is for later calibrations: a run is no failure because it cannot be written down."""
    if seen is not None:
        try:
            append(path, seen)
        except PenstockError as error:
            panel.warn(str(error))


def _until_the_end(deployment: Deployment | NativeDeployment, seconds: float | None, panel: Panel) -> None:
    asked = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: asked.set())
    also = signal.signal(signal.SIGTERM, lambda *_: asked.set())
    try:
        deployment.start()
        deadline = time.monotonic() + seconds if seconds is not None else None
        with panel:
            while not deployment.wait(0.2):
                if asked.is_set() or (deadline is not None and time.monotonic() >= deadline):
                    panel.message("finishing the batch in flight")
                    deployment.stop()
                    break
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, also)
