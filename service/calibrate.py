"""`penstock calibrate`: measures the engines on this machine and writes the profile that explain plans with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import monotonic

from pydantic import TypeAdapter
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from connectors.spark.session import spark_session
from costmodel.fit import Residual
from costmodel.profile import CalibrationProfile
from migration.calibration import Calibrated, calibrated, observe
from migration.experiments import Experiment, full, quick
from migration.observations import Observation, append, read
from optimizer.errors import PenstockError
from service.temporary_postgres import available, postgres

MINUTES = {True: 2.0, False: 15.0}  # at most: quick, full
BATCHES = {True: 1, False: 2}  # measured in each experiment
MOST = {True: 3, False: 12}  # batches of an experiment, until they get no faster
# Java's compiler gains slowly, by less from batch to batch than a batch scatters, and by a third over minutes: what
# Spark is to run is run before anything counts, on fewer tuples, so that the first experiment is as warm as the last.
WARM_UP = {True: 1, False: 6}  # batches of each code at least
WARM_UP_RATE = 10_000.0  # tuples per second at most
LAST = {True: 10.0, False: 25.0}  # seconds that the last experiment and the fit may take


@dataclass(frozen=True)
class Request:
    quick: bool
    databases: tuple[str, ...]
    url: str | None
    output: Path
    observations: Path | None
    name: str = "this machine"


def run(request: Request, before: CalibrationProfile, console: Console) -> Calibrated:
    """Runs the experiments that the time allows, the most telling ones first."""
    deadline = monotonic() + 60 * MINUTES[request.quick] - LAST[request.quick]
    lines = list(_observed(request, before, deadline, console))
    if not lines:
        raise PenstockError("no experiment was done in time: the machine is too busy to be measured")
    found = calibrated(lines, before, request.name)
    write(found.profile, request.output)
    return found


def refit(request: Request, before: CalibrationProfile) -> Calibrated:
    """The profile again, from what runs have left."""
    assert request.observations is not None
    lines = list(read(request.observations))
    if not lines:
        raise PenstockError(f"{request.observations} has no observations; run a query or penstock calibrate first")
    found = calibrated(lines, before, request.name)
    write(found.profile, request.output)
    return found


def _observed(request: Request, before: CalibrationProfile, deadline: float, console: Console) -> Iterator[Observation]:
    with ExitStack() as open_:
        url = open_.enter_context(postgres(request.url)) if "postgres" in request.databases else None
        experiments = list((quick if request.quick else full)(request.databases))
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        progress = open_.enter_context(
            Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal)
        )
        task = progress.add_task("starting Spark", total=len(experiments))
        spark = spark_session("local[*]", {})
        open_.callback(spark.stop)
        for experiment in codes(experiments)[: 1 if request.quick else None]:
            progress.update(task, description=f"warming up: {experiment.what[:48]}")
            observe(spark, experiment, before, url, least=WARM_UP[request.quick], most=WARM_UP[request.quick])
        for number, experiment in enumerate(experiments):
            if monotonic() >= deadline:
                console.print(f"the time is over: {len(experiments) - number} experiments of {len(experiments)} left")
                return
            progress.update(task, description=experiment.what[:60])
            line = observe(spark, experiment, before, url, BATCHES[request.quick], MOST[request.quick])
            if request.observations is not None:
                append(request.observations, line)
            yield line
            progress.advance(task)


def codes(experiments: Iterable[Experiment]) -> list[Experiment]:
    """One experiment for each code that Spark compiles, over smaller windows."""
    found: dict[str, Experiment] = {}
    for experiment in experiments:
        found.setdefault(experiment.code, replace(experiment, rate=min(experiment.rate, WARM_UP_RATE)))
    return list(found.values())


def write(profile: CalibrationProfile, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = path.with_suffix(".new")
        whole.write_bytes(TypeAdapter(CalibrationProfile).dump_json(profile, indent=2) + b"\n")
        whole.replace(path)
    except OSError as error:
        raise PenstockError(f"the profile cannot be written to {path}: {error.strerror}") from None


def databases(chosen: list[str] | None, url: str | None, console: Console) -> tuple[str, ...]:
    """Those asked for; else DuckDB, and PostgreSQL where there is one to measure on."""
    if chosen:
        return tuple(dict.fromkeys(chosen))
    if url is None and not available():
        console.print("PostgreSQL is left as it was: give a server with --url, or pip install pgserver")
        return ("duckdb",)
    return ("duckdb", "postgres")


def render(found: Calibrated) -> Table:
    """How far the profile is from what it was fitted to, by part of the work and engine."""
    table = Table(title=f"{found.experiments} experiments, {len(found.residuals)} measurements")
    table.add_column("part of the work")
    for column in ("measurements", "median error", "95% within", "worst"):
        table.add_column(column, justify="right")
    groups: dict[str, list[Residual]] = {}
    for residual in found.residuals:
        groups.setdefault(_group(residual), []).append(residual)
    for name, own in sorted(groups.items()):
        errors = sorted(r.q_error for r in own)
        cut = errors[min(len(errors) - 1, int(0.95 * len(errors)))]
        figures = (f"{len(own)}", f"{median(errors):.2f}x", f"{cut:.2f}x", f"{errors[-1]:.2f}x")
        table.add_row(name, *figures)
    return table


_PARTS = {
    "run": "SQL of MIGs in",
    "ticks": "operators at ticks in Spark, plans with",
    "arrival": "tuples as they arrive, plans with",
    "fetch": "results back from",
    "ship": "relations into",
}


def _group(residual: Residual) -> str:
    database = residual.measurement.what.rpartition("(")[2].rstrip(")")
    return f"{_PARTS[residual.measurement.kind]} {database}"
