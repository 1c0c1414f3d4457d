"""Fills the windows of a deployment that has not started yet with earlier tuples, in bulk.

A benchmark over a window of five minutes need not run for five minutes before it begins. To an engine a window is a
number of rows and groups: some seconds of stream are made, and stored again and again, each time that much earlier.
What Spark keeps is made tuple by tuple where that is not much.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import pairwise
from math import lcm

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from connectors.spark.sliding import BUCKET, Form
from migration.batch import Batches
from migration.feed import Arrivals, wide
from migration.layout import KeptPartials, Layout

PART = 1_000_000  # tuples that are made at once
AT_ONCE = 2  # of these; Spark plans each in one thread, and that takes longer than a few tuples do
IN_SPARK = 8  # entries that a store in Spark is made of, about as many as between two of its clean-ups


@dataclass(frozen=True)
class Earlier:
    """The tuples of one stream before its first one arrives. `tuples(a, b)` are those with the numbers a to b - 1;
    number 0 is `longest` seconds before the beginning."""

    stream: str
    time_column: str
    rate: float
    longest: float  # seconds
    tuples: Callable[[int, int], DataFrame]


def prefill(batches: Batches, earlier: Earlier, seconds: float, only: Collection[str] | None = None) -> None:
    """Gives the stores, or those of them that `only` names, the last `seconds` before the beginning."""
    assert batches.progress.batch == -1, "the deployment has begun"
    kept = batches.kept if only is None else _narrowed(batches.kept, only)
    first, end = (round(x * earlier.rate) for x in (earlier.longest - seconds, earlier.longest))
    if kept.in_spark or kept.partials:
        _fill_spark(replace(batches, kept=replace(kept, in_database=())), earlier, first, end)
    if kept.in_database:
        chosen = replace(batches, kept=replace(kept, in_spark=(), partials=()))
        pieces = max(1, -(-(end - first) // PART))
        since = _borders(first, end, pieces)[-2]
        tables = chosen.take(_arrivals(batches, earlier, since, end, -1), -1)
        earlier_by = [timedelta(seconds=seconds * times / pieces) for times in reversed(range(pieces))]
        for name, table in tables.items():
            assert isinstance(table, pa.Table), "windows are filled by the driver"
            batches.database.repeat(batches.stores[name], table, earlier_by)  # oldest first, as tuples arrive


def _fill_spark(batches: Batches, earlier: Earlier, first: int, end: int) -> None:
    """In entries of equal length, with the numbers of batches before the first."""

    def take(number: int, borders: tuple[int, int]) -> None:
        batches.take(_arrivals(batches, earlier, *borders, number), number)

    copies = max((copies_of(p) for p in batches.kept.partials), default=1.0)
    if (end - first) * copies <= IN_SPARK * PART:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(take, range(-IN_SPARK, 0), pairwise(_borders(first, end, IN_SPARK))))
        return
    seconds = (end - first) / earlier.rate
    # Partial results belong to slides: moved by whole ones, they are those of earlier tuples.
    slide = lcm(*(p.window.spec.slide or 1 for p in batches.kept.partials)) / 1e6
    length = -(-seconds // (IN_SPARK * slide)) * slide if batches.kept.partials else seconds / IN_SPARK
    take(-1, (end - round(length * earlier.rate), end))
    stores = [(k.name, k.time_column) for k in batches.kept.in_spark]
    stores += [(p.name, BUCKET) for p in batches.kept.partials]
    for name, time in stores:
        made = batches.evaluator.state.read(name, batches.evaluator.state_schemas[name])
        assert made is not None
        for times in range(1, IN_SPARK):
            by = F.expr(f"INTERVAL {times * round(length * 1e6)} MICROSECONDS")
            moved = made.withColumn(time, F.col(time) - by)
            batches.evaluator.state.write(name, -1 - times, moved, time)


def copies_of(kept: KeptPartials) -> float:
    """How many windows a tuple goes into, where each of them keeps it."""
    spec = kept.window.spec
    return spec.size / (spec.slide or spec.size) if kept.form is Form.EXPAND else 1.0


def _borders(first: int, end: int, pieces: int) -> list[int]:
    return [first + (end - first) * i // pieces for i in range(pieces + 1)]


def _arrivals(batches: Batches, earlier: Earlier, first: int, end: int, number: int) -> Arrivals:
    feed, stream = batches.feed, earlier.stream
    columns = [F.lit(feed.streams.index(stream)).alias("_stream"), F.col(earlier.time_column).alias("_ts")]
    columns += [F.col(name).alias(wide(stream, name)) for name in batches.kept.columns(stream)]
    frame = earlier.tuples(first, end).select(*columns)
    return Arrivals(feed, frame, number, None, bool(batches.windows.counted))


def _narrowed(kept: Layout, only: Collection[str]) -> Layout:
    return Layout(
        tuple(k for k in kept.in_database if k.name in only),
        tuple(k for k in kept.in_spark if k.name in only),
        tuple(p for p in kept.partials if p.name in only),
        kept.filters,
    )
