"""All experiments of paper 001, section 8, within a budget of time: figures as JSON, pictures, a summary.

The budget is shared out by weight, and what an experiment leaves goes to those after it.
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

from optimizer.errors import PenstockError
from service.bench import accuracy, crossover, decision, figure5, figure6, pictures, table2, window_slide
from service.bench.curve import Basis, Reading
from service.bench.lab import HIGHEST, LOADED, Failure, Lab, laboratory
from service.bench.plans import ALL_IN_SPARK, DATABASES, QUERIES, Kind, Query, candidate
from service.bench.trial import measure_u

MINUTES = 60.0
ACCURACY_RATE = 5_000.0
WARM_UP_RATE = 5_000.0
T = TypeVar("T")
EXPERIMENTS = ("table2", "figure5", "figure6", "window-slide", "crossover", "decision", "accuracy")


@dataclass(frozen=True)
class Run:
    """What the figures were measured on, and how."""

    begun: str
    minutes: float  # that it took
    budget: float
    cores: int
    machine: str
    versions: dict[str, str]
    batch: float  # seconds of stream
    measured_batches: int
    give_up: float
    highest: float
    filled: dict[str, float]  # the same, where a database keeps the windows
    trials: int  # with those of earlier runs, where they were kept
    trial_minutes: float  # that all of these took
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
    kept: Path | None = None,
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
    with laboratory(minutes - spent - 1.0, databases, url, None, highest, console, kept) as lab:
        warm_up(lab, databases)
        steps: list[tuple[str, float, Callable[[], None]]] = [
            ("figure5", 12.5, lambda: _figure5(lab, directory, queries, databases)),
            ("window-slide", 3.0, lambda: _window_slide(lab, directory, databases)),
            ("crossover", 5.0, lambda: _crossover(lab, directory, queries, databases)),
            ("accuracy", 4.0, lambda: _accuracy(lab, directory, queries, databases)),
            ("decision", 32.0, lambda: _decision(lab, directory, queries, databases)),
            ("figure6", 1.0, lambda: _figure6(lab, directory, queries, databases)),
            # What there was no time for, and the rates in between.
            ("window-slide", 1.0, lambda: _window_slide(lab, directory, databases)),
            ("figure5", 2.0, lambda: _figure5(lab, directory, queries, databases, requested=True)),
        ]
        _share_out(lab, [step for step in steps if step[0] in only])
        done = about(lab, begun, minutes, started)
    write(directory, "paper", done)
    return done


def _share_out(lab: Lab, steps: Sequence[tuple[str, float, Callable[[], None]]]) -> None:
    for i, (_, weight, work) in enumerate(steps):
        with lab.within(lab.remaining * weight / sum(w for _, w, _ in steps[i:])):
            work()


def warm_up(lab: Lab, databases: Sequence[str]) -> None:
    """Java's compiler has seen every kind of plan before the first one counts; work in Spark gains for minutes."""
    for query in map(Query.example, ("cq1", "cq4")):
        for database in databases:
            at = query.optimized(WARM_UP_RATE, database)
            for kind in (Kind.OPTIMAL, Kind.PANE, Kind.DB):
                if kind in ALL_IN_SPARK and database != databases[0]:
                    continue
                one = candidate(at, kind)
                for _ in range(3 if kind is Kind.PANE else 1):
                    measure_u(lab.fills, query.at(WARM_UP_RATE), one.plan, one.how, lab.limits)


def _figure5(
    lab: Lab, directory: Path, queries: Sequence[str], databases: Sequence[str], requested: bool = False
) -> None:
    found = figure5.run(lab, queries, databases, requested=requested)
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


def _crossover(lab: Lab, directory: Path, queries: Sequence[str], databases: Sequence[str]) -> None:
    found = crossover.run(lab, queries, databases)
    write(directory, "crossover", found)
    pictures.crossover(found, directory)


def _decision(lab: Lab, directory: Path, queries: Sequence[str], databases: Sequence[str]) -> None:
    found = decision.run(lab, queries, databases)
    write(directory, "decision", found)
    pictures.decision(found, directory)


def _accuracy(lab: Lab, directory: Path, queries: Sequence[str], databases: Sequence[str]) -> None:
    write(directory, "accuracy", accuracy.run(lab, queries, databases, ACCURACY_RATE))


def about(lab: Lab, begun: datetime, budget: float, started: float) -> Run:
    names = ("pyspark", "duckdb", "sqlglot", "pyarrow")
    return Run(
        begun.isoformat(timespec="seconds"),
        (monotonic() - started) / 60,
        budget,
        os.cpu_count() or 0,
        platform.machine(),
        {name: version(name) for name in names} | {"python": platform.python_version()},
        lab.limits.batch,
        lab.limits.measured,
        lab.limits.give_up,
        lab.highest,
        {name: rate for name in LOADED if (rate := lab.highest_on(name)) < lab.highest},
        len(lab.trials),
        sum(t.wall for t in lab.trials.values()) / 60,
        tuple(lab.failures),
    )


# -- figures with a bound ---------------------------------------------------------------------------------------------


def ratio(one: Reading | None, other: Reading | None) -> Reading | None:
    """None where the ratio is bounded from neither side.

    >>> ratio(Reading(400.0, Basis.AT_LEAST), Reading(100.0, Basis.INTERPOLATED))
    Reading(value=4.0, basis=<Basis.AT_LEAST: 'at least'>)
    """
    if one is None or other is None or not other.value:
        return None
    turned = {Basis.AT_LEAST: Basis.AT_MOST, Basis.AT_MOST: Basis.AT_LEAST}
    bounds = {one.basis, turned.get(other.basis, other.basis)} & set(turned)
    if len(bounds) > 1:
        return None
    return Reading(one.value / other.value, bounds.pop() if bounds else Basis.INTERPOLATED)


def shown(reading: Reading | None, form: str) -> str:
    return "-" if reading is None else f"{pictures.bound(reading)}{form.format(reading.value)}"
