"""Mutated SQL texts: each must be planned and explained, or refused with a `PenstockError`, in bounded time.

Four of five texts are queries against a good catalog, one is a catalog that CQ1 is planned with. Text number i follows
from the seed and i alone. Worker processes plan them and report one by one; a worker that is silent for `HANG_SECONDS`
hangs, is killed and replaced by one that goes on with the next text, so that even a hang in compiled code is seen.
"""

from __future__ import annotations

import resource
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from json import dumps, loads
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from random import Random
from time import perf_counter

from rich.console import Group
from rich.table import Table
from rich.text import Text

from optimizer.catalog import Catalog
from optimizer.errors import PenstockError, SqlError
from optimizer.explain.api import Format
from optimizer.explain.api import render as render_plan
from optimizer.explain.explanation import explain_plan
from optimizer.optimize import Options, optimize
from optimizer.sql.ddl import parse_catalog
from service.bench.fuzz_seeds import good_catalog, queries
from service.bench.mutate import mutated
from service.bench.nway import smartplug

HANG_SECONDS = 5.0
WORKERS = 2
KEPT = 20  # distinct crashes, and hangs
SHOWN_CHARACTERS = 400
CATALOG_SHARE = 0.2
WHY_NOT_SHARE = 0.1
MEMORY = 6 << 30  # bytes of address space per worker: a text that needs more is a crash, not the machine's end


class Kind(StrEnum):
    QUERY = "query"
    CATALOG = "catalog"


@dataclass(frozen=True, slots=True)
class Sample:
    """A text, and how it is planned."""

    kind: Kind
    text: str
    database: str
    why_not: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """`crash` is empty where the text was planned or refused."""

    index: int
    ms: float
    accepted: bool = False
    position: bool = False
    hint: bool = False
    cause: str = ""
    crash: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A text that crashed or hung; `count` others failed at the same place."""

    index: int
    kind: Kind
    database: str
    text: str
    cause: str
    trace: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Report:
    texts: int
    seed: int
    seconds: float
    texts_per_second: float
    accepted: int
    refused: int
    with_position: int  # of the refused
    with_hint: int
    crashed: int
    crashes: tuple[Failure, ...]  # by cause, with the first text of each
    hangs: tuple[Failure, ...]
    median_ms: float
    p99_ms: float
    slowest_ms: float
    slowest: Failure | None


class Samples:
    """The texts of a seed, by number."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._queries = queries()
        self._catalog = good_catalog()

    def __getitem__(self, index: int) -> Sample:
        rng = Random(f"{self._seed}/{index}")
        database = rng.choice(("duckdb", "postgres"))
        why_not = rng.random() < WHY_NOT_SHARE
        if rng.random() < CATALOG_SHARE:
            return Sample(Kind.CATALOG, mutated(rng, self._catalog, (self._catalog, *self._queries)), database, why_not)
        return Sample(Kind.QUERY, mutated(rng, rng.choice(self._queries), self._queries), database, why_not)


def run(texts: int = 50_000, seed: int = 7, workers: int = WORKERS) -> Report:
    began = perf_counter()
    parse_catalog(good_catalog())  # a broken seed fails here, not once per worker
    lanes = [_Lane(seed, range(k, texts, workers)) for k in range(min(workers, texts))]
    outcomes: list[Outcome] = []
    hangs: list[int] = []
    try:
        while lanes := [lane for lane in lanes if not lane.done]:
            wait([lane.pipe for lane in lanes], timeout=HANG_SECONDS / 10)
            for lane in lanes:
                outcomes += lane.received()
                if lane.silent_for() > HANG_SECONDS:
                    hangs.append(lane.skip())
    finally:
        for lane in lanes:
            lane.stop()
    return _report(texts, seed, perf_counter() - began, outcomes, hangs)


class _Lane:
    """Every n-th text, and the process that is at it."""

    def __init__(self, seed: int, todo: Sequence[int]) -> None:
        self._seed = seed
        self._todo = todo
        self._start()

    def _start(self) -> None:
        context = get_context("spawn")  # a fork would copy the caller's threads' locks
        self.pipe, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(self._seed, self._todo, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._heard: float | None = None  # the time to import is not the first text's

    @property
    def done(self) -> bool:
        return not self._todo

    def received(self) -> list[Outcome]:
        found: list[Outcome] = []
        while not self.done and self.pipe.poll():
            try:
                outcome = self.pipe.recv()
            except EOFError:
                return [*found, self._died()]
            self._heard = perf_counter()
            if outcome is not None:
                found.append(outcome)
                self._todo = self._todo[1:]
        if self.done:
            self.stop()
        return found

    def silent_for(self) -> float:
        return 0.0 if self.done or self._heard is None else perf_counter() - self._heard

    def skip(self) -> int:
        """Ends the process and goes on behind the text it was at."""
        self.stop()
        index, self._todo = self._todo[0], self._todo[1:]
        if self._todo:
            self._start()
        return index

    def _died(self) -> Outcome:
        began = self._heard
        self._process.join()
        cause = f"the process ended with exit code {self._process.exitcode}"
        index = self.skip()
        return Outcome(index, 0.0 if began is None else (perf_counter() - began) * 1e3, cause=cause, crash=cause)

    def stop(self) -> None:
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _work(seed: int, todo: Sequence[int], pipe: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    samples = Samples(seed)
    catalog, query = parse_catalog(good_catalog()), smartplug("cq1.sql")
    pipe.send(None)
    for index in todo:
        pipe.send(attempt(index, samples[index], catalog, query))


def attempt(index: int, sample: Sample, catalog: Catalog, query: str) -> Outcome:
    began = perf_counter()
    try:
        _plan(sample, catalog, query)
    except SqlError as error:
        str(error)
        return Outcome(
            index, (perf_counter() - began) * 1e3, position=error.position is not None, hint=bool(error.hint)
        )
    except PenstockError:
        return Outcome(index, (perf_counter() - began) * 1e3)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        cause = f"{type(error).__name__} at {'/'.join(last.filename.rsplit('/', 3)[-3:])}:{last.lineno} ({last.name})"
        trace = "".join(traceback.format_exception(error, limit=-12))
        return Outcome(index, (perf_counter() - began) * 1e3, cause=cause, crash=trace)
    return Outcome(index, (perf_counter() - began) * 1e3, accepted=True)


def _plan(sample: Sample, catalog: Catalog, query: str) -> None:
    """Everything a user can ask about a text."""
    options = Options(database=sample.database)
    if sample.kind is Kind.CATALOG:
        optimized = optimize(query, parse_catalog(sample.text), options)
    else:
        optimized = optimize(sample.text, catalog, options)
    explanation = explain_plan(optimized, why_not=sample.why_not, trace=True)
    for to in Format:
        rendered = render_plan(explanation, to, sample.why_not)
        if to is Format.JSON:
            loads(rendered, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _report(texts: int, seed: int, seconds: float, outcomes: list[Outcome], hangs: list[int]) -> Report:
    samples = Samples(seed)

    def failure(index: int, cause: str, trace: str = "") -> Failure:
        sample = samples[index]
        return Failure(index, sample.kind, sample.database, sample.text, cause, trace)

    crashes: dict[str, Failure] = {}
    for outcome in sorted((o for o in outcomes if o.crash), key=lambda o: o.index):
        if outcome.cause in crashes:
            first = crashes[outcome.cause]
            crashes[outcome.cause] = replace(first, count=first.count + 1)
        elif len(crashes) < KEPT:
            crashes[outcome.cause] = failure(outcome.index, outcome.cause, outcome.crash)
    refused = [o for o in outcomes if not o.accepted and not o.crash]
    times = sorted(o.ms for o in outcomes) or [0.0]
    slowest = max(outcomes, key=lambda o: o.ms, default=None)
    return Report(
        texts,
        seed,
        seconds,
        texts / seconds,
        sum(o.accepted for o in outcomes),
        len(refused),
        sum(o.position for o in refused),
        sum(o.hint for o in refused),
        sum(1 for o in outcomes if o.crash),
        tuple(crashes.values()),
        tuple(failure(index, f"silent for {HANG_SECONDS:g} s") for index in hangs[:KEPT]),
        times[len(times) // 2],
        times[int(len(times) * 0.99)],
        times[-1],
        failure(slowest.index, f"{slowest.ms:.0f} ms") if slowest else None,
    )


def render(report: Report) -> Group:
    table = Table(title=f"{report.texts:,} mutated texts, seed {report.seed}")
    table.add_column("")
    table.add_column("", justify="right")
    refused = report.refused or 1
    for name, value in (
        ("planned and explained", f"{report.accepted:,}"),
        ("refused", f"{report.refused:,}"),
        ("  with line and column", f"{report.with_position / refused:.1%}"),
        ("  with the form to write", f"{report.with_hint / refused:.1%}"),
        ("crashes", f"{report.crashed:,}"),
        ("hangs", f"{len(report.hangs):,}"),
        ("median, ms", f"{report.median_ms:.1f}"),
        ("99%, ms", f"{report.p99_ms:.1f}"),
        ("slowest, ms", f"{report.slowest_ms:.0f}"),
        ("texts/s", f"{report.texts_per_second:.0f}"),
        ("seconds", f"{report.seconds:.0f}"),
    ):
        table.add_row(name, value)
    return Group(table, *(Text(_words(failure)) for failure in (*report.crashes, *report.hangs)))


def _words(failure: Failure) -> str:
    shown = failure.text if len(failure.text) <= SHOWN_CHARACTERS else failure.text[:SHOWN_CHARACTERS] + " …"
    where = f"{failure.kind} {failure.index} for {failure.database}"
    return f"\n{failure.count} × {failure.cause}; {where}:\n{shown!r}\n{failure.trace}"


def to_json(report: Report) -> str:
    return dumps(asdict(report), indent=1) + "\n"
