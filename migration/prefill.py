"""Fills the windows of a deployment that has not started yet with earlier tuples, in bulk.

A benchmark over a window of five minutes need not run for five minutes before it begins.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from migration.batch import Batches
from migration.feed import Arrivals, wide
from migration.layout import Layout


def prefill(
    batches: Batches, stream: str, time_column: str, parts: Sequence[DataFrame], only: Collection[str] | None = None
) -> None:
    """`parts` are tuples of one stream, oldest first, with its columns; all before the first tuple that will arrive.

    `only` names the stores to fill, where not all of them are.
    """
    assert batches.progress.batch == -1, "the deployment has begun"
    feed = batches.feed
    chosen = batches if only is None else replace(batches, kept=_narrowed(batches.kept, only))
    for number, part in enumerate(parts, -len(parts)):  # batches before the first
        columns = [F.lit(feed.streams.index(stream)).alias("_stream"), F.col(time_column).alias("_ts")]
        columns += [F.col(name).alias(wide(stream, name)) for name in batches.kept.columns(stream)]
        frame = part.select(*columns)
        arrivals = Arrivals(feed, frame, number, None, bool(batches.windows.counted))
        tables = chosen.take(arrivals, number)
        with batches.database.transaction():
            for name, table in tables.items():
                assert isinstance(table, pa.Table), "windows are filled by the driver"
                batches.database.append(batches.stores[name], table)


def _narrowed(kept: Layout, only: Collection[str]) -> Layout:
    return Layout(
        tuple(k for k in kept.in_database if k.name in only),
        tuple(k for k in kept.in_spark if k.name in only),
        tuple(p for p in kept.partials if p.name in only),
        kept.filters,
    )
