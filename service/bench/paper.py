"""All experiments of paper 001, section 8, within a budget of time: figures as JSON, pictures, a summary.

The budget is shared out by weight, and what an experiment leaves goes to those after it. The quick run is a fixed
subset whose ratios are meant to be compared from run to run.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from pydantic import TypeAdapter
from rich.console import Console
from rich.table import Table

from optimizer.errors import PenstockError
from service.bench import accuracy, decision, figure5, figure6, pictures, table2, window_slide
from service.bench.curve import Basis, Reading
from service.bench.figure5 import Figure5
from service.bench.lab import HIGHEST, Failure, Lab, laboratory
from service.bench.plans import DATABASES, QUERIES, Kind, Query, candidate
from service.bench.trial import Limits

QUICK_MINUTES, MINUTES = 6.0, 60.0
QUICK = (("duckdb", ("cq1", "cq3", "cq5")), ("postgres", ("cq4",)))
QUICK_HIGHEST = 40_000.0
ACCURACY_RATE = 5_000.0
WARM_UP_RATE = 1_000.0
T = TypeVar("T")
EXPERIMENTS = ("table2", "figure5", "figure6", "window-slide", "decision", "accuracy")


@dataclass(frozen=True)
class Run:
    """What the figures were measured on, and how."""

    begun: str
    minutes: float  # that it took
    budget: float
    quick: bool
    cores: int
    machine: str
    versions: dict[str, str]
    batch: float  # seconds of stream
    measured_batches: int
    give_up: float
    highest: float
    trials: int
    failures: tuple[Failure, ...]


def write(directory: Path, name: str, found: Any) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.json").write_bytes(TypeAdapter(type(found)).dump_json(found, indent=1) + b"\n")


def read(directory: Path, name: str, kind: type[T]) -> T | None:
    """A result that was written, or None where there is none."""
    path = directory / f"{name}.json"
    if not path.exists():
        return None
    try:
        return TypeAdapter(kind).validate_json(path.read_bytes())
    except ValueError as error:
        raise PenstockError(f"{path} is not a result of this version: {str(error).splitlines()[0]}") from None


def run_all(
    directory: Path,
    minutes: float = MINUTES,
    databases: Sequence[str] = DATABASES,
    queries: Sequence[str] = QUERIES,
    only: Sequence[str] = EXPERIMENTS,
    url: str | None = None,
    highest: float = HIGHEST,
    console: Console | None = None,
) -> Run:
    unknown = [name for name in only if name not in EXPERIMENTS]
    if unknown:
        raise PenstockError(f"there is no experiment {unknown[0]}; choose from {', '.join(EXPERIMENTS)}")
    started, begun = monotonic(), datetime.now(UTC)
    if "table2" in only:
        times = table2.run()
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "table2.json").write_text(table2.to_json(times))
        pictures.table2(times, directory)
    spent = (monotonic() - started) / 60
    with laboratory(minutes - spent - 1.0, databases, url, None, highest, console) as lab:
        warm_up(lab, databases)
        steps: list[tuple[str, float, Callable[[], None]]] = [
            ("figure5", 5.0, lambda: _figure5(lab, directory, queries, databases)),
            ("figure6", 1.0, lambda: _figure6(lab, directory, queries, databases)),
            ("window-slide", 1.5, lambda: _window_slide(lab, directory, databases)),
            ("decision", 4.0, lambda: _decision(lab, directory, queries, databases)),
            ("accuracy", 1.0, lambda: _accuracy(lab, directory, queries, databases)),
        ]
        _share_out(lab, [step for step in steps if step[0] in only])
        done = _about(lab, begun, minutes, False, started)
    write(directory, "paper", done)
    return done


def _share_out(lab: Lab, steps: Sequence[tuple[str, float, Callable[[], None]]]) -> None:
    for i, (_, weight, work) in enumerate(steps):
        with lab.within(lab.remaining * weight / sum(w for _, w, _ in steps[i:])):
            work()


def warm_up(lab: Lab, databases: Sequence[str]) -> None:
    """Spark's compiler has seen every kind of plan before the first one counts."""
    query = Query.example("cq4")
    for database in databases:
        at = query.optimized(WARM_UP_RATE, database)
        for kind in (Kind.OPTIMAL, Kind.PANE, Kind.DB):
            for _ in range(2):
                lab.trial(query, candidate(at, kind), WARM_UP_RATE)
                lab.trials.clear()


def _figure5(lab: Lab, directory: Path, queries: Sequence[str], databases: Sequence[str]) -> None:
    found = figure5.run(lab, queries, databases)
    write(directory, "figure5", found)
    pictures.figure5(found, directory)


def _figure6(lab: Lab, directory: Path, queries: Sequence[str], databases: Sequence[str]) -> None:
    found = figure6.run(lab, queries, databases)
    write(directory, "figure6", found)
    pictures.figure6(found, directory)


def _window_slide(lab: Lab, directory: Path, databases: Sequence[str]) -> None:
    found = window_slide.run(lab, databases)
    write(directory, "window-slide", found)
    pictures.window_slide(found, directory)


def _decision(lab: Lab, directory: Path, queries: Sequence[str], databases: Sequence[str]) -> None:
    found = decision.run(lab, queries, databases)
    write(directory, "decision", found)
    pictures.decision(found, directory)


def _accuracy(lab: Lab, directory: Path, queries: Sequence[str], databases: Sequence[str]) -> None:
    write(directory, "accuracy", accuracy.run(lab, queries, databases, ACCURACY_RATE))


def _about(lab: Lab, begun: datetime, budget: float, quick: bool, started: float) -> Run:
    names = ("pyspark", "duckdb", "sqlglot", "pyarrow")
    return Run(
        begun.isoformat(timespec="seconds"),
        (monotonic() - started) / 60,
        budget,
        quick,
        os.cpu_count() or 0,
        platform.machine(),
        {name: version(name) for name in names} | {"python": platform.python_version()},
        lab.limits.batch,
        lab.limits.measured,
        lab.limits.give_up,
        lab.highest,
        len(lab.trials),
        tuple(lab.failures),
    )


# -- quick ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ratio:
    """How many times more the plans picked sustain than a pure plan."""

    query: str
    database: str
    optimal: Reading | None
    spe: Reading | None
    db: Reading | None

    @staticmethod
    def of(one: Reading | None, other: Reading | None) -> Reading | None:
        """
        >>> Ratio.of(Reading(400.0, Basis.AT_LEAST), Reading(100.0, Basis.INTERPOLATED))
        Reading(value=4.0, basis=<Basis.AT_LEAST: 'at least'>)
        """
        if one is None or other is None or not other.value:
            return None
        turned = {Basis.AT_LEAST: Basis.AT_MOST, Basis.AT_MOST: Basis.AT_LEAST}
        bounds = {one.basis, turned.get(other.basis, other.basis)} & set(turned)
        if len(bounds) > 1:
            return None  # bounded from neither side
        basis = bounds.pop() if bounds else Basis.INTERPOLATED
        return Reading(one.value / other.value, basis)


@dataclass(frozen=True)
class Quick:
    run: Run
    ratios: tuple[Ratio, ...]
    figure5: Figure5


def run_quick(
    directory: Path, minutes: float = QUICK_MINUTES, url: str | None = None, console: Console | None = None
) -> Quick:
    started, begun = monotonic(), datetime.now(UTC)
    databases = [database for database, _ in QUICK]
    with laboratory(minutes - 0.5, databases, url, None, QUICK_HIGHEST, console) as lab:
        lab.limits = Limits(batch=lab.limits.batch, measured=4)  # the median of four: ratios should not depend on one
        warm_up(lab, databases)
        parts = []
        for i, (database, queries) in enumerate(QUICK):
            with lab.within(lab.remaining * (0.7 if i == 0 else 1.0)):
                parts.append(figure5.run(lab, queries, [database], (Kind.DB, Kind.PANE)))
        whole = Figure5(
            tuple(p for part in parts for p in part.panels), tuple(n for part in parts for n in part.left_out)
        )
        done = _about(lab, begun, minutes, True, started)
    ratios = tuple(_ratio(panel) for panel in whole.panels)
    found = Quick(done, ratios, whole)
    write(directory, "quick", found)
    return found


def _ratio(panel: figure5.Panel) -> Ratio:
    pure = {b.kind: b.maximum for b in panel.baselines}
    return Ratio(panel.query, panel.database, panel.optimal, pure.get(Kind.PANE), pure.get(Kind.DB))


def render_quick(found: Quick) -> Table:
    table = Table(title="Maximum throughput, tuples/s")
    columns = ("query", "database", "picked plans", "all in Spark", "all in database", "× Spark", "× database")
    for name in columns:
        table.add_column(name, justify="left" if name in ("query", "database") else "right")
    for r in found.ratios:
        rates = [shown(reading, "{:,.0f}") for reading in (r.optimal, r.spe, r.db)]
        ratios = [shown(Ratio.of(r.optimal, other), "{:.2f}") for other in (r.spe, r.db)]
        table.add_row(r.query, r.database, *rates, *ratios)
    if found.figure5.left_out:
        table.caption = f"no time for: {'; '.join(found.figure5.left_out)}"
    return table


def shown(reading: Reading | None, form: str) -> str:
    return "-" if reading is None else f"{pictures.bound(reading)}{form.format(reading.value)}"
