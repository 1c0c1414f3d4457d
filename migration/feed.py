"""All streams of a query as one: each is read once, and goes through one Spark query with one checkpoint.

Rows of every stream carry the number of their stream and their event time; each stream's columns stand beside the
others' under `stream__column`. A batch is looked at once: while its tuples are on their way to the stores, Spark counts
them and notes the newest event time of each stream, before any selection, because a watermark follows all tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from connectors.database import Store
from connectors.spark.expressions import spark_sql
from connectors.spark.sources import Source, open_stream
from migration.layout import ORDER, KeptTuples, Layout
from migration.ticks import instant, microseconds
from optimizer.algebra import Scalar, Window, leaves
from optimizer.catalog import Catalog
from optimizer.errors import PenstockError
from optimizer.physical import PhysicalPlan


@dataclass(frozen=True)
class Seen:
    """A stream's part of a batch, before any selection."""

    tuples: int
    late: int
    malformed: int
    oldest: int | None  # event times of the tuples in time, in microseconds
    newest: int | None  # event time of all


@dataclass(frozen=True)
class Feed:
    frame: DataFrame  # streaming
    streams: tuple[str, ...]
    sources: Mapping[str, Source]
    catalog: Catalog
    _columns: dict[object, list[Column]] = field(default_factory=dict)

    def once(self, what: object, make: Callable[[], list[Column]]) -> list[Column]:
        """Columns that are the same in every batch: each is a dozen calls into the JVM, and can be used again."""
        if what not in self._columns:
            self._columns[what] = make()
        return self._columns[what]

    @staticmethod
    def open(
        spark: SparkSession, plan: PhysicalPlan, catalog: Catalog, kept: Layout, rates: Mapping[str, float]
    ) -> Feed:
        windows = [leaf for leaf in leaves(plan.tree) if isinstance(leaf, Window)]
        times = {w.stream: w.time_column for w in windows}
        sources, frames = {}, []
        for number, (stream, time) in enumerate(times.items()):
            declared = catalog.streams[stream]
            if declared.watermark is None:
                raise PenstockError(
                    f"stream {stream} has no watermark, so no window of it ever closes; "
                    f"declare WATERMARK FOR {time} AS {time} - INTERVAL '2' SECOND"
                )
            source = open_stream(spark, declared, kept.columns(stream), rates.get(stream))
            sources[stream] = source
            columns = [F.lit(number).alias("_stream"), F.col(time).alias("_ts")]
            columns += [F.col(name).alias(wide(stream, name)) for name in kept.columns(stream)]
            columns += [F.col("_malformed"), F.col("_raw")] if source.can_be_malformed else []
            frames.append(source.frame.select(*columns))
        frame = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)
        return Feed(frame, tuple(times), sources, catalog)

    @property
    def can_be_malformed(self) -> bool:
        return any(source.can_be_malformed for source in self.sources.values())


@dataclass
class Arrivals:
    """One batch of the feed. Ask `seen` only after the tuples have been taken."""

    feed: Feed
    frame: DataFrame  # of this batch
    batch: int
    threshold: int | None  # event times before this are late
    numbered: bool  # a row window asks for the order of tuples

    def __post_init__(self) -> None:
        self._observation = Observation()
        whole = self.frame.withColumn("_arrival", F.monotonically_increasing_id()) if self.numbered else self.frame
        sound = F.lit(True)
        if self.feed.can_be_malformed:
            sound = F.col("_malformed").isNull()
        in_time = sound
        if self.threshold is not None:
            in_time = sound & (F.col("_ts") >= F.expr(f"TIMESTAMP_NTZ '{instant(self.threshold)}'"))
        if self.threshold is None:
            self._metrics = self.feed.once("measures", lambda: self._measures(sound, in_time))
        else:
            self._metrics = self._measures(sound, in_time)
        self.all = whole.observe(self._observation, *self._metrics)
        self.usable = self.all.filter(in_time) if self.threshold is not None or self.feed.can_be_malformed else self.all

    def _measures(self, sound: Column, in_time: Column) -> list[Column]:
        metrics: list[Column] = []
        for number in range(len(self.feed.streams)):
            # Only what can differ is counted: every one of these is work per tuple.
            own = [F.col("_stream") == number] if len(self.feed.streams) > 1 else []
            late = [*own, sound, ~in_time] if self.threshold is not None else []
            metrics += [
                _count(own).alias(f"tuples{number}"),
                (_count(late) if late else F.lit(0)).alias(f"late{number}"),
                (_count([*own, ~sound]) if self.feed.can_be_malformed else F.lit(0)).alias(f"malformed{number}"),
                F.min(_only([*own, in_time] if late or self.feed.can_be_malformed else own)).alias(f"oldest{number}"),
                F.max(_only([*own, sound] if self.feed.can_be_malformed else own)).alias(f"newest{number}"),
            ]
        return metrics

    def keep(self) -> None:
        """Reads the sources once although several jobs follow."""
        self.all.persist()

    def release(self) -> None:
        self.all.unpersist()

    def seen(self) -> dict[str, Seen]:
        found = self._counted()
        result = {}
        for number, stream in enumerate(self.feed.streams):
            oldest, newest = found[f"oldest{number}"], found[f"newest{number}"]
            counts = [int(found[f"{name}{number}"] or 0) for name in ("tuples", "late", "malformed")]
            times = [microseconds(t) if t is not None else None for t in (oldest, newest)]
            result[stream] = Seen(counts[0], counts[1], counts[2], times[0], times[1])
        return result

    def _counted(self) -> dict[str, Any]:
        try:
            return self._observation.get
        except Py4JError:
            # Where no store can want a tuple (WHERE FALSE), Spark reads none, and has nothing to tell.
            return self.frame.agg(*self._metrics).collect()[0].asDict()

    def occupied(self, step: int) -> list[int]:
        """The stretches of event time, `step` microseconds each, that have tuples: where they begin, in order."""
        stretch = F.expr(f"unix_micros(CAST(_ts AS TIMESTAMP)) DIV {step:d} * {step:d}")
        return sorted(int(row[0]) for row in self.usable.select(stretch.alias("at")).distinct().collect())

    def selected(self, kept: KeptTuples) -> DataFrame:
        """The tuples some windows keep, under the stream's own names."""

        def make() -> list[Column]:
            own = [F.col(wide(kept.stream, name)).alias(name) for name in kept.columns]
            return [self._wanted(kept), *own, *([F.col("_arrival")] if kept.counted else [])]

        wanted, *columns = self.feed.once(kept, make)
        return self.usable.filter(wanted).select(*columns)

    def _wanted(self, kept: KeptTuples) -> Column:
        conditions = [F.expr(self._predicate(p, kept.stream)) for p in kept.predicates]
        if len(self.feed.streams) > 1:
            conditions.append(F.col("_stream") == self.feed.streams.index(kept.stream))
        return reduce(lambda a, b: a & b, conditions, F.lit(True))

    def _predicate(self, predicate: Scalar, stream: str) -> str:
        columns = self.feed.catalog.streams[stream].columns
        types = {(stream, c.name): c.type for c in columns}
        return spark_sql(predicate, types, {(stream, c.name): wide(stream, c.name) for c in columns})

    def tables(self, kept: Sequence[tuple[KeptTuples, Store]]) -> dict[str, pa.Table]:
        """The new tuples of every store, by its name, in one job."""
        if len(kept) == 1:
            ((only, store),) = kept
            return {only.name: self._numbered(self.selected(only).toArrow(), store)}
        flags = [self._wanted(k).alias(f"_in_{k.name}") for k, _ in kept]
        read = dict.fromkeys(wide(k.stream, name) for k, _ in kept for name in k.columns)
        order = ["_arrival"] if any(k.counted for k, _ in kept) else []
        flagged = self.usable.select(*read, *order, *flags)
        any_of = reduce(lambda a, b: a | b, (F.col(f"_in_{k.name}") for k, _ in kept))
        found = flagged.filter(any_of).toArrow()
        result = {}
        for k, store in kept:
            own = found.filter(pc.field(f"_in_{k.name}"))
            names = [wide(k.stream, name) for name in k.columns] + (["_arrival"] if k.counted else [])
            renamed = own.select(names).rename_columns([*k.columns, *(["_arrival"] if k.counted else [])])
            result[k.name] = self._numbered(renamed, store)
        return result

    def _numbered(self, table: pa.Table, store: Store) -> pa.Table:
        if ORDER[0].name in store.schema.names:
            table = table.append_column(ORDER[0], pa.array([self.batch] * table.num_rows, pa.int64()))
        return table.select(store.schema.names)

    def malformed(self) -> dict[str, pa.Table]:
        """The records that could not be read, by stream, with the reason."""
        bad = self.frame.filter(F.col("_malformed").isNotNull()).select("_stream", "_raw", "_malformed").toArrow()
        split = {s: bad.filter(pc.field("_stream") == n) for n, s in enumerate(self.feed.streams)}
        return {stream: rows.select(["_raw", "_malformed"]) for stream, rows in split.items() if rows.num_rows}


def wide(stream: str, name: str) -> str:
    return f"{stream}__{name}"


def _count(conditions: Sequence[Column]) -> Column:
    return F.count_if(reduce(lambda a, b: a & b, conditions)) if conditions else F.count(F.lit(1))


def _only(conditions: Sequence[Column]) -> Column:
    """The event time of the tuples that meet the conditions."""
    time = F.col("_ts")
    return F.when(reduce(lambda a, b: a & b, conditions), time) if conditions else time
