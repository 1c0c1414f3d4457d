"""Where trials are run: one Spark, one PostgreSQL, a budget of time, and every trial only once unless asked for again.

An experiment is a list of jobs, the most important first. Jobs that the budget does not reach are named in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from connectors.spark.session import spark_session
from connectors.spark.sliding import Form
from optimizer.errors import PenstockError
from service.bench.curve import GRID, Point, next_rate
from service.bench.fills import Fills
from service.bench.kept import Kept, keep, known
from service.bench.plans import Candidate, Query, planned_at
from service.bench.trial import How, Limits, Trial, measure_u, merged
from service.profile_lookup import find_profile
from service.temporary_postgres import postgres

LOWEST, HIGHEST = 100.0, 1_000_000.0  # tuples per second between which a maximum is looked for
LOADED = {"postgres": 100_000.0}  # of a database that takes minutes to fill the windows of more
FIRST = 5_000.0
SECONDS_PER_TUPLE = 1e-6  # to make a window's; corrected by what it takes


class OutOfTime(Exception):
    """The budget does not reach for another trial."""


@dataclass(frozen=True)
class Job:
    name: str
    run: Callable[[], object]


@dataclass(frozen=True)
class Failure:
    """A trial that did not run; an experiment goes on without it."""

    what: str
    why: str


@dataclass
class Lab:
    fills: Fills
    limits: Limits
    deadline: float  # monotonic seconds
    highest: float = HIGHEST
    console: Console = field(default_factory=Console)
    trials: dict[tuple[str, str, float], Trial] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    kept: Path | None = None  # where trials are written down
    _per_tuple: float = SECONDS_PER_TUPLE

    def trial(self, query: Query, candidate: Candidate, rate: float) -> Trial:
        """u of a plan at a rate, measured unless it is known."""
        key = query.sql, candidate.id, rate
        if key not in self.trials:
            self.trials[key] = self._measured(query, candidate, rate)
        return self.trials[key]

    def in_turns(self, query: Query, candidates: Sequence[Candidate], rate: float, rounds: int) -> list[Trial]:
        """Plans against each other: single trials scatter and the machine has slow spells, which then hit them all."""
        for _ in range(rounds):
            for one in candidates:
                key = query.sql, one.id, rate
                if not (key in self.trials and self.trials[key].censored):  # a bound is all there will be
                    again = self._measured(query, one, rate)
                    before = [self.trials[key]] if key in self.trials else []
                    self.trials[key] = merged([*before, again], self.limits.batch)
        return [self.trials[query.sql, one.id, rate] for one in candidates]

    def _measured(self, query: Query, candidate: Candidate, rate: float) -> Trial:
        candidate = planned_at(query, candidate, rate)
        self._check_time(query, candidate, rate)
        tuples = self._missing(query, candidate, rate)
        making = self.fills.seconds
        found = measure_u(self.fills, query.at(rate), candidate.plan, candidate.how, self.limits)
        if tuples > 1e6:
            self._per_tuple = (self.fills.seconds - making) / tuples
        if self.kept is not None:
            keep(self.kept, Kept(query.sql, candidate.id, self.limits.batch, found))
        return found

    def points(self, query: Query, candidate: Candidate) -> list[Point]:
        """All that is known of a plan."""
        known = [t for (sql, id_, _), t in self.trials.items() if (sql, id_) == (query.sql, candidate.id)]
        return [Point(t.rate, t.u, t.censored) for t in sorted(known, key=lambda t: t.rate)]

    def highest_on(self, database: str) -> float:
        return min(self.highest, LOADED.get(database, self.highest))

    def end_of(self, candidate: Candidate) -> float:
        """Where the search for a plan's maximum ends; one all in Spark fills nothing but Spark's own windows."""
        return self.highest_on(candidate.plan.database) if candidate.plan.migs else self.highest

    def search(
        self, query: Query, candidate: Candidate, first: float = FIRST, steps: Sequence[float] = GRID
    ) -> list[Point]:
        """Measures until the plan's maximum throughput is known to a step, or is outside of what is looked at."""
        rate: float | None = first if not self.points(query, candidate) else None
        while True:
            if rate is not None:
                self.trial(query, candidate, rate)
            points = self.points(query, candidate)
            rate = next_rate(points, LOWEST, self.end_of(candidate), steps)
            if rate is None:
                return points

    @property
    def remaining(self) -> float:
        """Seconds."""
        return self.deadline - monotonic()

    def _missing(self, query: Query, candidate: Candidate, rate: float) -> int:
        if candidate.how is How.NATIVE:
            return 0
        return self.fills.missing(query.at(rate), candidate.plan, Form(candidate.how.value))

    def _check_time(self, query: Query, candidate: Candidate, rate: float) -> None:
        needed = 3.0 + self._missing(query, candidate, rate) * self._per_tuple
        if needed > self.remaining:
            raise OutOfTime

    @contextmanager
    def limited(self, to: Limits) -> Iterator[None]:
        """Trials with other limits, over batches as long as always."""
        usual, self.limits = self.limits, replace(to, batch=self.limits.batch)
        try:
            yield
        finally:
            self.limits = usual

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """A part of the budget."""
        whole, self.deadline = self.deadline, min(self.deadline, monotonic() + seconds)
        try:
            yield
        finally:
            self.deadline = whole

    def run(self, title: str, jobs: Sequence[Job]) -> tuple[str, ...]:
        """Runs jobs in their order; the names of those that there was no time for."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        left_out = []
        with Progress(*columns, TimeRemainingColumn(), console=self.console, transient=True) as progress:
            task = progress.add_task(title, total=len(jobs))
            for job in jobs:
                progress.update(task, description=f"{title}: {job.name}")
                started = monotonic()
                try:
                    job.run()
                except OutOfTime:
                    left_out.append(job.name)
                except PenstockError as error:
                    self.failures.append(Failure(f"{title}: {job.name}", str(error)))
                progress.advance(task)
                if not self.console.is_terminal and job.name not in left_out:
                    self.console.print(f"{title}: {job.name} ({monotonic() - started:.1f} s)", highlight=False)
        return tuple(left_out)


@contextmanager
def laboratory(
    minutes: float,
    databases: Sequence[str],
    url: str | None = None,
    limits: Limits | None = None,
    highest: float = HIGHEST,
    console: Console | None = None,
    kept: Path | None = None,
) -> Iterator[Lab]:
    """Spark and, where it is asked for, PostgreSQL: at `url`, or one of our own; with the trials of a file."""
    deadline = monotonic() + 60 * minutes
    with postgres(url) if "postgres" in databases else nullcontext() as address:
        spark = spark_session("local[*]", {"spark.sql.streaming.numRecentProgressUpdates": "1000"})
        fills = Fills(spark, address)
        try:
            chosen = limits or Limits(batch=find_profile(None)[0].batch_interval)
            trials = known(kept, chosen.batch) if kept is not None else {}
            yield Lab(fills, chosen, deadline, highest, console or Console(), trials, kept=kept)
        finally:
            fills.close()
            spark.stop()
