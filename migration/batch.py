"""The life of a batch, once whatever happens (design, section 6).

Tuples, evictions and the ledger's entry are one transaction. Evaluation comes after it and reads the stores only, so a
batch that is run again after a crash finds itself in the ledger, changes nothing, and evaluates the same instants from
the same tuples: eviction goes no further than what this batch's first instant needs. The sink has a ledger of its own
and leaves alone what it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from sqlglot import exp

from connectors.database import Database, LedgerEntry, Store
from connectors.dead_letter import DeadLetters
from connectors.sinks import Sink
from connectors.spark.sliding import BUCKET, Form
from connectors.tick import Span, Tick
from costmodel.flow import Drive
from migration.emission import changes
from migration.evaluate import Evaluator
from migration.failpoints import failpoint
from migration.feed import Arrivals, Feed, Seen
from migration.layout import KeptTuples, Layout
from migration.metrics import BatchReport, Clock, Share
from migration.progress import Progress
from migration.ticks import Numbered, Windows, boundary, instant, microseconds
from migration.watermark import Watermarks
from optimizer.algebra import Emission
from optimizer.catalog import Catalog
from optimizer.errors import PenstockError
from optimizer.physical import PhysicalPlan

MANY_TICKS = 1000  # of one batch, from which on it pays to ask in which of them there are tuples
TICKS_AT_ONCE = 32  # of one evaluation, so that a result fits in memory when a batch closes thousands
_WRITES = 1 << 20  # of one batch at most: a batch's writes are numbered one by one for the sink


class Staging(Protocol):
    """A database that the executors write to side by side; `stage` says how many tuples, `adopt` takes them over."""

    def stage(self, store: Store, frame: DataFrame, batch: int) -> int: ...

    def adopt(self, store: Store, batch: int, rows: int) -> None: ...


class StateLost(PenstockError):
    """The checkpoint and the ledger do not belong together."""


@dataclass
class Batches:
    plan: PhysicalPlan
    catalog: Catalog
    kept: Layout
    feed: Feed
    evaluator: Evaluator
    database: Database
    sink: Sink
    dead_letters: DeadLetters
    watermarks: Watermarks
    clock: Clock
    progress: Progress = field(default_factory=Progress)
    staging: Staging | None = None  # where the executors write into the database themselves
    observer: Callable[[Arrivals, dict[str, Seen]], None] = lambda arrivals, seen: None
    _late_seen: bool = False
    _began: tuple[float, int] | None = None  # wall clock and instant of the first report

    @cached_property
    def windows(self) -> Windows:
        return Windows.of(self.plan.tree)

    @cached_property
    def stores(self) -> dict[str, Store]:
        return {k.name: k.store(self.catalog) for k in self.kept.in_database}

    def run(self, frame: DataFrame, batch: int) -> BatchReport:
        started = time.perf_counter()
        failpoint("batch begins", batch)
        replayed = self.progress.batch == batch
        if not replayed:
            self._check(batch)
            self.progress = self._ingest(frame, batch)
        ticks, rows = self._evaluate(self.progress)
        return self._report(ticks, rows, time.perf_counter() - started, replayed)

    def _check(self, batch: int) -> None:
        known = self.progress.batch
        if batch != known + 1:
            raise StateLost(
                f"Spark's checkpoint is at batch {batch}, the ledger in {self.database.name} at {known}: they do not "
                "belong together; start with a fresh state directory"
            )

    # -- tuples in ---------------------------------------------------------------------------------------------------

    def _ingest(self, frame: DataFrame, batch: int) -> Progress:
        before = self.progress
        threshold = self._late_before(before)
        # A time in Spark's plan that differs from batch to batch makes Spark compile the plan anew in each. As long as
        # no tuple was late, and the driver has all that is kept, a batch is read without looking for late ones first.
        trusting = not (self._late_seen or self.kept.in_spark or self.kept.partials or self.staging)
        arrivals, tables, seen = self._read(frame, batch, None if trusting else threshold)
        if trusting and threshold is not None and _any_before(threshold, seen):
            arrivals, tables, seen = self._read(frame, batch, threshold)
        self._late_seen |= any(part.late for part in seen.values())
        failpoint("after spark state", batch)
        progress = self._advanced(before, seen, arrivals)
        with self.clock(Share.TRANSFER, "store"), self.database.transaction():
            for name, table in tables.items():
                if isinstance(table, int):
                    assert self.staging is not None
                    self.staging.adopt(self.stores[name], batch, table)
                else:
                    self.database.append(self.stores[name], table)
            failpoint("after append", batch)
            progress = progress.model_copy(update={"dropped": self._evict(progress)})
            self.database.record(LedgerEntry(batch, progress.model_dump_json()))
            failpoint("before commit", batch)
            failpoint("during commit", batch)
        failpoint("after commit", batch)
        self._evict_in_spark(progress)
        return progress

    def _read(
        self, frame: DataFrame, batch: int, threshold: int | None
    ) -> tuple[Arrivals, dict[str, pa.Table | int], dict[str, Seen]]:
        arrivals = Arrivals(self.feed, frame, batch, threshold, bool(self.windows.counted))
        in_database = len(self.kept.in_database) if self.staging else bool(self.kept.in_database)
        jobs = len(self.kept.in_spark) + len(self.kept.partials) + in_database
        if jobs > 1:
            arrivals.keep()
        try:
            with self.clock(Share.SPARK, "arrivals"):
                failpoint("during spark job", batch)
                tables = self.take(arrivals, batch)
            seen = arrivals.seen()
            self.observer(arrivals, seen)
            if any(part.malformed for part in seen.values()):
                for stream, rows in arrivals.malformed().items():
                    self.dead_letters.write(stream, batch, rows)
        finally:
            if jobs > 1:
                arrivals.release()
        return arrivals, tables, seen

    def take(self, arrivals: Arrivals, batch: int) -> dict[str, pa.Table | int]:
        """Everything the stores want of a batch, as Arrow; of what the executors have written themselves, how much."""
        tables: dict[str, pa.Table | int] = {}
        staged = [k for k in self.kept.in_database if self.staging is not None and not k.counted]
        fetched = [k for k in self.kept.in_database if k not in staged]
        for k in staged:
            assert self.staging is not None
            tables[k.name] = self.staging.stage(self.stores[k.name], arrivals.selected(k), batch)
        if fetched:
            tables |= arrivals.tables([(k, self.stores[k.name]) for k in fetched])
        for k in self.kept.in_spark:
            self.evaluator.state.write(k.name, batch, arrivals.selected(k), k.time_column)
        for p in self.kept.partials:
            own = arrivals.selected(p.source)
            flat = own.select(*(F.col(name).alias(f"{p.window.alias}_{name}") for name in p.source.columns))
            self.evaluator.state.write(p.name, batch, p.sliding(self.catalog).partial(flat), BUCKET)
        return tables

    def _late_before(self, progress: Progress) -> int | None:
        """Tuples before this time come after an instant that would have seen them."""
        done = progress.evaluated
        if done is None:
            return None
        if self.plan.drive is Drive.TUPLE:
            return done + 1
        return done if self.windows.counted else self.windows.previous(done)

    def _advanced(self, before: Progress, seen: dict[str, Seen], arrivals: Arrivals) -> Progress:
        newest = dict(before.newest)
        for stream, part in seen.items():
            if part.newest is not None:
                newest[stream] = max(part.newest, newest.get(stream, part.newest))
        times = [t for t in (before.oldest, *(s.oldest for s in seen.values())) if t is not None]
        oldest = min(times, default=None)
        fired = before.evaluated
        watermark = self.watermarks.at(newest, {s for s, part in seen.items() if part.tuples})
        until = None
        if watermark is not None and oldest is not None:
            tuple_driven = self.plan.drive is Drive.TUPLE
            fired = fired if fired is not None else oldest - tuple_driven
            until = max(fired, watermark - tuple_driven)
        return before.model_copy(
            update={
                "batch": arrivals.batch,
                "newest": newest,
                "oldest": oldest,
                "fired": fired,
                "until": until,
                "spans": self._spans(fired, until, before, arrivals),
                "tuples": before.tuples + sum(s.tuples for s in seen.values()),
                "late": before.late + sum(s.late for s in seen.values()),
                "malformed": before.malformed + sum(s.malformed for s in seen.values()),
            }
        )

    def _spans(
        self, fired: int | None, until: int | None, before: Progress, arrivals: Arrivals
    ) -> tuple[tuple[int, int], ...]:
        """The instants to evaluate; of very many only those that can have tuples in a window of a silent query."""
        if fired is None or until is None or until <= fired:
            return ()
        sparse = self.plan.drive is Drive.SLIDE and self.windows.silent and not self.windows.counted
        shortest = min((w.spec.slide or 1 for w in self.windows.timed), default=1)
        if not sparse or (until - fired) // shortest <= MANY_TICKS:
            return ((fired, until),)
        reached = max(before.newest.values(), default=fired)
        occupied = [(fired, reached), *((at - 1, at + shortest) for at in arrivals.occupied(shortest))]
        found: list[tuple[int, int]] = []
        for start, end in ((a, b + self.windows.longest) for a, b in occupied):
            low, high = max(start, fired), min(end, until)
            if found and low <= found[-1][1]:
                found[-1] = (found[-1][0], max(high, found[-1][1]))
            elif low < high:
                found.append((low, high))
        return tuple(found)

    # -- tuples out --------------------------------------------------------------------------------------------------

    def _evict(self, progress: Progress) -> dict[str, int]:
        dropped = dict(progress.dropped)
        for k in self.kept.in_database:
            before = self._needed_from(k, progress)
            if before is not None:
                count = self.database.evict(self.stores[k.name], instant(before))
                failpoint("during eviction", progress.batch)
                if k.counted:
                    dropped[k.name] = dropped.get(k.name, 0) + count
        return dropped

    def _needed_from(self, kept: KeptTuples, progress: Progress) -> int | None:
        """The event time from which this batch, or a later one, still needs tuples of a store."""
        fired = progress.fired
        if fired is None:
            return None
        if self.plan.drive is Drive.TUPLE:
            return fired - max(0 if kept.counted else w.spec.size for w in kept.windows)
        if not kept.counted:
            return min(boundary(w, fired) - w.spec.size for w in kept.windows)
        held = self._numbered(kept, progress)
        first = min(held.last(w.spec.slide or 1, fired) - w.spec.size for w in kept.windows)
        return int(held.times[first]) if 0 < first < len(held.times) else None

    def _evict_in_spark(self, progress: Progress) -> None:
        if progress.fired is None:
            return
        for k in self.kept.in_spark:
            before = self._needed_from(k, progress)
            if before is not None:
                self._forget(k.name, k.time_column, before, progress.batch)
        for p in self.kept.partials:
            ends = p.form is Form.EXPAND
            before = progress.fired + 1 if ends else boundary(p.window, progress.fired) - p.window.spec.size
            self._forget(p.name, BUCKET, before, progress.batch)

    def _forget(self, store: str, time_column: str, before: int, batch: int) -> None:
        state, schema = self.evaluator.state, self.evaluator.state_schemas[store]
        with self.clock(Share.SPARK):
            state.evict(store, instant(before))
            failpoint("during spark eviction", batch)
            state.compact(store, schema, time_column, instant(before))

    # -- results -----------------------------------------------------------------------------------------------------

    def _evaluate(self, progress: Progress) -> tuple[Sequence[Tick], int]:
        """Evaluates this batch's instants and hands the results to the sink; the ticks, and how many rows came out."""
        if progress.fired is None or not progress.spans:
            return [], 0
        self.evaluator.before_query = lambda: self._query_begins(progress.batch)
        done, first_write = self.sink.last_batch(), progress.batch * _WRITES
        if self.plan.drive is Drive.TUPLE:
            ((since, until),) = progress.spans
            if done is not None and done >= first_write:
                return [], 0
            rows = self.evaluator.between(Span(instant(since), instant(until)))
            self._write(first_write, rows, progress.batch)
            return [], rows.num_rows
        ticks = self.windows.ticks(progress.spans, self.counted(progress))
        count = 0
        for number, start in enumerate(range(0, len(ticks), TICKS_AT_ONCE)):
            if done is None or done < first_write + number:
                rows = self._result(ticks, start, progress)
                self._write(first_write + number, rows, progress.batch)
                count += rows.num_rows
        return ticks, count

    def _result(self, ticks: Sequence[Tick], start: int, progress: Progress) -> pa.Table:
        some = list(ticks[start : start + TICKS_AT_ONCE])
        emission = self.plan.tree.emission
        if emission is Emission.RSTREAM:
            return self.evaluator.at(some)
        if start:
            some.insert(0, ticks[start - 1])
        elif progress.fired is not None and (before := self.windows.previous(progress.fired)) is not None:
            some.insert(0, self.windows.tick(before, {}))
        return changes(self.evaluator.at(some), [t.at for t in some], emission)

    def _query_begins(self, batch: int) -> None:
        failpoint("before query", batch)
        failpoint("during query", batch)

    def _write(self, number: int, rows: pa.Table, batch: int) -> None:
        failpoint("before result", batch)
        with self.clock(Share.SINK):
            self.sink.write(number, rows, during=lambda: failpoint("during result", batch))
        failpoint("after result", batch)

    def counted(self, progress: Progress) -> dict[str, Numbered]:
        """The stores of row windows, by the windows' aliases."""
        by_store = {k.name: self._numbered(k, progress) for k in self.kept.in_database if k.counted}
        return {w.alias: by_store[self.kept.of(w).name] for w in self.windows.counted}

    def _numbered(self, kept: KeptTuples, progress: Progress) -> Numbered:
        time_column = exp.column(kept.time_column, quoted=True)
        query = exp.Select().select(time_column).from_(exp.Table(this=exp.to_identifier(kept.name, quoted=True)))
        sql = query.order_by(time_column.copy()).sql(dialect=self.database.dialect)
        found = self.database.query(sql, {}, pa.schema([pa.field("ts", pa.timestamp("us"))]))
        times = np.asarray(found.column(0).cast(pa.int64()).to_numpy(), dtype=np.int64)
        return Numbered(times, progress.dropped.get(kept.name, 0))

    def _behind(self, newest: int, evaluated: int) -> float:
        """Seconds of event time not evaluated yet, and how much the evaluation has lost on the wall clock since."""
        now = time.time()
        since, begun = self._began = self._began or (now, evaluated)
        return (newest - evaluated) / 1e6 + max(0.0, (now - since) - (evaluated - begun) / 1e6)

    def _report(self, ticks: Sequence[Tick], rows: int, seconds: float, replayed: bool) -> BatchReport:
        progress = self.progress
        newest = max(progress.newest.values(), default=None)
        evaluated = progress.evaluated
        behind = self._behind(newest, evaluated) if newest is not None and evaluated is not None else None
        return BatchReport(
            progress.batch,
            progress.tuples,
            progress.late,
            progress.malformed,
            len(ticks),
            rows,
            seconds,
            self.clock.taken(),
            behind,
            time.time(),
            microseconds(ticks[-1].at) if ticks else None,
            tuple(self.watermarks.silent()),
            replayed,
        )


def _any_before(threshold: int, seen: dict[str, Seen]) -> bool:
    return any(part.oldest is not None and part.oldest < threshold for part in seen.values())
