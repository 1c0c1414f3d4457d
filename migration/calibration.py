"""Runs the experiments of a calibration and fits a profile to what they took.

An experiment is a deployment like any other, with windows filled beforehand and tuples as fast as they are read; its
batches are as long as the profile says a batch may be. So what is measured is what a running plan pays, with all that
the engines do to each other on one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic

from pyspark.sql import SparkSession

from connectors.spark.sliding import Form
from connectors.spark.smartplug import smartplug_rows
from costmodel.fit import Residual, fit, residuals
from costmodel.machine import fingerprint
from costmodel.parameters import parameters, with_parameters
from costmodel.profile import CalibrationProfile
from migration.deployment import Deployment
from migration.experiments import CATALOG, Experiment
from migration.measurements import measurements
from migration.metrics import BatchReport
from migration.observations import Observation, Parts
from migration.prefill import Earlier, prefill
from migration.settling import settled
from migration.streaming import Settings
from optimizer.algebra import Window, operators
from optimizer.catalog import Catalog
from optimizer.hints import Hints
from optimizer.optimize import Optimized, Options, optimize
from optimizer.physical import PhysicalPlan, Where
from optimizer.pinned import placed
from optimizer.sql.ddl import parse_catalog

START = datetime(2024, 1, 1)
MEASURED = 2  # batches of an experiment that count, the last ones
MOST = 16  # batches for it to settle
LONGEST = 12.0  # seconds for the batches of one experiment


@dataclass(frozen=True)
class Calibrated:
    profile: CalibrationProfile
    residuals: tuple[Residual, ...]
    experiments: int


def observe(
    spark: SparkSession,
    experiment: Experiment,
    profile: CalibrationProfile,
    url: str | None,
    measured: int = MEASURED,
    most: int = MOST,
    least: int = 0,
) -> Observation:
    """Runs an experiment until its batches get no faster, or there were too many of them; `least` come before that."""
    catalog = _catalog(experiment, profile.batch_interval)
    optimized, plan = _planned(experiment, catalog, profile)
    with TemporaryDirectory(prefix="penstock-calibrate-") as place:
        recorder = _Recorder()
        settings = Settings(
            Path(place) / "state",
            f"parquet:{place}/out",
            experiment.form,
            url if experiment.database == "postgres" else None,
            trigger=0.0,
            rates={"plugs": experiment.rate},
            on_batch=recorder.batch,
        )
        deployment = Deployment(spark, plan, experiment.sql, catalog, settings)
        recorder.deployment = deployment
        try:
            _fill(spark, deployment, catalog, experiment.rate)
            deployment.start()
            deadline = monotonic() + LONGEST
            while not recorder.enough(measured, least, most) and monotonic() < deadline and not deployment.wait(0.05):
                pass
            deployment.stop()
            parts = recorder.measured(profile.batch_interval, measured)
        finally:
            recorder.deployment = None  # Spark holds on to the callback, and would to the database
            deployment.close()
            deployment.drop()
    return _observation(experiment, optimized, plan, profile.batch_interval, parts)


def observation_of(experiment: Experiment, profile: CalibrationProfile) -> Observation:
    """What would be written down of an experiment, had all its parts taken a second."""
    optimized, plan = _planned(experiment, _catalog(experiment, profile.batch_interval), profile)
    parts = Parts(total=5.0, run=1.0, ticks=1.0, fetch=1.0, ship=1.0)
    return _observation(experiment, optimized, plan, profile.batch_interval, parts)


def _planned(experiment: Experiment, catalog: Catalog, profile: CalibrationProfile) -> tuple[Optimized, PhysicalPlan]:
    """As written, and placed as the experiment says."""
    options = Options(database=experiment.database, profile=profile, hints=Hints(phase_one=False))
    optimized = optimize(experiment.sql, catalog, options)
    return optimized, placed(optimized, [experiment.places(node) for node in operators(optimized.plan.tree)])


def _catalog(experiment: Experiment, batch_seconds: float) -> Catalog:
    known = parse_catalog(CATALOG)
    plugs = known.streams["plugs"]
    options = {
        **plugs.options,
        "rate": experiment.rate,
        "start": str(START),
        "pace": "full",
        "max_per_batch": experiment.rate * batch_seconds,
    }
    streams = {"plugs": replace(plugs, options=options)}
    return replace(known, streams=streams).with_rates({"plugs": experiment.rate})


def _fill(spark: SparkSession, deployment: Deployment, catalog: Catalog, rate: float) -> None:
    """The tuples before the stream begins, as far back as the longest window goes."""
    windows = [leaf.node for leaf in deployment.plan.leaves if isinstance(leaf.node, Window)]
    seconds = max(w.spec.size for w in windows) / 1e6
    options = {k: v for k, v in catalog.streams["plugs"].options.items() if k != "connector"}
    options["start"] = str(START - timedelta(seconds=seconds))
    earlier = Earlier("plugs", "ts", rate, seconds, lambda a, b: smartplug_rows(spark, a, b, options))
    prefill(deployment.batches, earlier, seconds)
    for store in deployment.batches.stores.values():
        deployment.database.settle(store)


class _Recorder:
    """The clock's parts after each batch, and when it was done."""

    def __init__(self) -> None:
        self.deployment: Deployment | None = None
        self.parts: list[dict[str, float]] = []

    def batch(self, report: BatchReport) -> None:
        assert self.deployment is not None
        self.parts.append({**self.deployment.clock.parts, "done": monotonic()})

    def enough(self, last: int, least: int, most: int) -> bool:
        """The first batch is never looked at: all its code is new."""
        seconds = [after["done"] - before["done"] for before, after in pairwise(self.parts)]
        return len(self.parts) > most or (len(seconds) >= least and settled(seconds, last))

    def measured(self, batch_seconds: float, last: int) -> Parts:
        """Medians over the last batches, per second of stream; those before them were the warm-up."""
        each = [_Batch(before, after) for before, after in pairwise(self.parts)][-last:]
        each = each or [_Batch({}, self.parts[-1])]

        def typical(part: Callable[[_Batch], float]) -> float:
            return median(part(batch) for batch in each) / batch_seconds

        return Parts(
            total=typical(lambda b: b.of("done")),
            run=typical(lambda b: b.of(" run")),
            ticks=typical(lambda b: b.of("ticks")),
            fetch=typical(lambda b: b.of(" fetch")),
            ship=typical(lambda b: b.of(" send")),
        )


@dataclass(frozen=True)
class _Batch:
    before: dict[str, float]
    after: dict[str, float]

    def of(self, ending: str) -> float:
        """Seconds of this batch in parts with such a name."""
        return sum(v - self.before.get(k, 0.0) for k, v in self.after.items() if k.endswith(ending))


def _observation(
    experiment: Experiment, optimized: Optimized, plan: PhysicalPlan, batch_seconds: float, parts: Parts
) -> Observation:
    windows = [leaf.node for leaf in plan.leaves if isinstance(leaf.node, Window)]
    return Observation(
        what=experiment.what,
        sql=experiment.sql,
        catalog=CATALOG,
        database=experiment.database,
        plan=plan.id,
        in_database=tuple(o.id for o in plan.operators if o.where is Where.DB),
        join_orders=tuple(r.order for r in optimized.search.regions),
        forms={o.id: experiment.form.value for o in plan.operators if o.where is Where.SPE and o.form in list(Form)},
        rates={"plugs": experiment.rate},
        filled={w.alias: w.spec.size for w in windows},
        batch_seconds=batch_seconds,
        parts=parts,
    )


def calibrated(observed: Iterable[Observation], before: CalibrationProfile, name: str) -> Calibrated:
    """The profile that fits what was observed; numbers that nothing was observed of stay as they were."""
    lines = list(observed)
    told = list(measurements(lines, before))
    known = parameters(before)
    values = dict(known)
    for part in dict.fromkeys(m.kind for m in told):
        values |= fit([m for m in told if m.kind == part], known)
    touched = {name for m in told for name in m.factors}
    profile = replace(
        with_parameters(before, values),
        name=name,
        machine=fingerprint(),
        measured=datetime.now(UTC).date().isoformat(),
        basis={n: "measured" if n in touched else f"profile {before.name} of {before.measured}" for n in known},
    )
    return Calibrated(profile, tuple(residuals(told, values)), len(lines))
