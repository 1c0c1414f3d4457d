"""A few minutes' look at whether the picked plans are still better than pure ones, and by how much.

A fixed set of queries at fixed rates: u of the picked plan, of all in Spark and of all in the database. Single batches
scatter, and the machine has slow spells, so the plans take turns in several rounds, and medians over all batches are
compared. The ratios are what should be the same from run to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import monotonic

from rich.console import Console
from rich.table import Table

from service.bench.curve import Basis, Reading
from service.bench.lab import Job, Lab, OutOfTime, laboratory
from service.bench.paper import Run, about, ratio, shown, warm_up, write
from service.bench.plans import Candidate, Kind, Query, candidate
from service.bench.trial import Trial, measure_u, merged

MINUTES = 6.0
CASES = (
    ("cq1", "duckdb", 10_000.0),
    ("cq3", "duckdb", 10_000.0),
    ("cq5", "duckdb", 10_000.0),
    ("cq4", "postgres", 2_000.0),
)
KINDS = (Kind.OPTIMAL, Kind.PANE, Kind.DB)
ROUNDS = 3
GIVE_UP = 5.0  # times a batch
LONGEST = 30.0  # seconds that a trial may take, about


@dataclass(frozen=True)
class Row:
    query: str
    database: str
    rate: float
    picked: Reading | None  # u
    spe: Reading | None
    db: Reading | None


@dataclass(frozen=True)
class Quick:
    run: Run
    rows: tuple[Row, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class _Entry:
    query: Query
    database: str
    rate: float
    kind: Kind
    candidate: Candidate
    trials: list[Trial]


def run(directory: Path, minutes: float = MINUTES, url: str | None = None, console: Console | None = None) -> Quick:
    started, begun = monotonic(), datetime.now(UTC)
    databases = list(dict.fromkeys(database for _, database, _ in CASES))
    with laboratory(minutes - 0.5, databases, url, console=console) as lab:
        lab.limits = replace(lab.limits, give_up=GIVE_UP)
        warm_up(lab, databases)
        entries = [_entry(name, database, rate, kind) for name, database, rate in CASES for kind in KINDS]
        jobs = [
            Job(f"{e.query.name} {e.database} {e.kind}, round {number + 1}", partial(_measure, lab, e))
            for number in range(ROUNDS)
            for e in entries
        ]
        left_out = lab.run("quick", jobs)
        done = replace(about(lab, begun, minutes, started), trials=sum(len(e.trials) for e in entries))
    rows = []
    for name, database, rate in CASES:
        own = {e.kind: e for e in entries if (e.query.name, e.database) == (name, database)}
        rows.append(Row(name, database, rate, *(together(own[kind].trials, lab.limits.batch) for kind in KINDS)))
    found = Quick(done, tuple(rows), left_out)
    write(directory, "quick", found)
    return found


def _entry(name: str, database: str, rate: float, kind: Kind) -> _Entry:
    query = Query.example(name)
    return _Entry(query, database, rate, kind, candidate(query.optimized(rate, database), kind), [])


def _measure(lab: Lab, entry: _Entry) -> None:
    if any(t.censored for t in entry.trials):
        return  # a bound is all there will be
    if lab.remaining < LONGEST:
        raise OutOfTime
    one = entry.candidate
    entry.trials.append(measure_u(lab.fills, entry.query.at(entry.rate), one.plan, one.how, lab.limits))


def together(trials: Sequence[Trial], batch: float) -> Reading | None:
    """The median over the batches of all trials; a bound where one was given up."""
    if not trials:
        return None
    one = merged(trials, batch)
    return Reading(one.u, Basis.AT_LEAST if one.censored else Basis.MEASURED)


def rows_of(found: Quick) -> list[tuple[str, ...]]:
    rows = []
    for r in found.rows:
        loads = [shown(u, "{:.3f}") for u in (r.picked, r.spe, r.db)]
        ratios = [shown(ratio(other, r.picked), "{:.2f}") for other in (r.spe, r.db)]
        rows.append((r.query.upper(), r.database, f"{r.rate:,.0f}", *loads, *ratios))
    return rows


def render(found: Quick) -> Table:
    table = Table(title="u, seconds of work per second of stream")
    for name in (
        "query",
        "database",
        "tuples/s",
        "picked",
        "all in Spark",
        "all in database",
        "Spark / picked",
        "database / picked",
    ):
        table.add_column(name, justify="left" if name in ("query", "database") else "right")
    for row in rows_of(found):
        table.add_row(*row)
    if found.left_out:
        table.caption = f"no time for: {'; '.join(found.left_out)}"
    return table
