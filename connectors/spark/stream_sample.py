"""The next tuples of a stream, for statistics: as many as wanted, or as many as come in a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from math import ceil
from tempfile import TemporaryDirectory

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from connectors.sample_figures import Sample
from connectors.spark.failures import cause_of
from connectors.spark.records import MALFORMED, quoted
from connectors.spark.sources import computed_rows, open_stream
from connectors.types import arrow_type
from optimizer.catalog import Stream
from optimizer.errors import PenstockError

START_SECONDS = 30.0


def sample_stream(
    spark: SparkSession, stream: Stream, seconds: float, most: int, enough: Callable[[], bool] = lambda: False
) -> Sample:
    """Malformed records are passed over, as the queries do."""
    columns = tuple(c.name for c in stream.columns)
    schema = pa.schema([pa.field(c.name, arrow_type(c.type)) for c in stream.columns])
    try:
        count = min(most, ceil((stream.offered or most) * seconds))
        rows = computed_rows(spark, stream, columns, count)
        if rows is not None:
            return Sample(stream, rows.toArrow().cast(schema))
        return Sample(stream, _Listener(spark, stream, columns, schema, most).tuples(seconds, enough))
    except (PySparkException, Py4JError) as error:
        raise PenstockError(f"stream {stream.name} cannot be read: {cause_of(error)}") from error


class _Listener:
    """A streaming query that keeps what comes. It ends between batches: one that is stopped in a batch fails loudly."""

    def __init__(
        self, spark: SparkSession, stream: Stream, columns: tuple[str, ...], schema: pa.Schema, most: int
    ) -> None:
        self._ends = stream.options.get("connector") == "files"
        if self._ends:  # one at a time, oldest first: the tuples are neighbours in time, which a rate is made of
            stream = replace(stream, options={"maxfilespertrigger": 1.0, **stream.options})
        source = open_stream(spark, stream, columns)
        self._frame = source.frame.where(F.col(MALFORMED).isNull()) if source.can_be_malformed else source.frame
        self._columns, self._schema, self._most = columns, schema, most
        self._batches: list[pa.Table] = []
        self._count = 0
        self._busy, self._first, self._full = threading.Lock(), threading.Event(), threading.Event()

    def _batch(self, frame: DataFrame, _: int) -> None:
        with self._busy:
            if self._full.is_set():
                return
            self._first.set()
            found = frame.select(*(F.col(quoted(name)) for name in self._columns))
            table = found.limit(self._most - self._count).toArrow().cast(self._schema)
            self._batches.append(table)
            self._count += table.num_rows
            if self._count >= self._most:
                self._full.set()

    def tuples(self, seconds: float, enough: Callable[[], bool]) -> pa.Table:
        with TemporaryDirectory(prefix="penstock-analyze-") as checkpoint:
            writer = self._frame.writeStream.foreachBatch(self._batch).option("checkpointLocation", checkpoint)
            query = (writer.trigger(availableNow=True) if self._ends else writer).start()
            # The time counts from the first batch on: Spark's first query of a session takes a while to start.
            deadline = time.monotonic() + START_SECONDS + seconds
            try:
                while not query.awaitTermination(0.2):  # type: ignore[arg-type]  # fractions work
                    if self._first.is_set():
                        deadline = min(deadline, time.monotonic() + seconds)
                    if self._full.is_set() or enough() or time.monotonic() >= deadline:
                        break
            finally:
                with self._busy:
                    self._full.set()
                query.stop()
        return pa.concat_tables(self._batches) if self._batches else self._schema.empty_table()
