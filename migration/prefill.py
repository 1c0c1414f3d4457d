"""Fills the windows of a deployment that has not started yet with earlier tuples, in bulk.

A benchmark over a window of five minutes need not run for five minutes before it begins.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from migration.batch import Batches
from migration.feed import Arrivals, wide


def prefill(batches: Batches, stream: str, time_column: str, parts: Sequence[DataFrame]) -> None:
    """`parts` are tuples of one stream, oldest first, with its columns; all before the first tuple that will arrive."""
    assert batches.progress.batch == -1, "the deployment has begun"
    feed = batches.feed
    for number, part in enumerate(parts, -len(parts)):  # batches before the first
        columns = [F.lit(feed.streams.index(stream)).alias("_stream"), F.col(time_column).alias("_ts")]
        columns += [F.col(name).alias(wide(stream, name)) for name in batches.kept.columns(stream)]
        frame = part.select(*columns)
        arrivals = Arrivals(feed, frame, number, None, bool(batches.windows.counted))
        tables = batches.take(arrivals, number)
        with batches.database.transaction():
            for name, table in tables.items():
                assert isinstance(table, pa.Table), "windows are filled by the driver"
                batches.database.append(batches.stores[name], table)
