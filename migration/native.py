"""An all-SPE plan run as one native Structured Streaming query: the emitted text itself, without a tick loop.

What `penstock emit` prints is what runs here, so the baseline is the query a Spark user would have written. State,
watermark and windows are Spark's; only the sink is ours, so that results can be compared.
"""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from connectors.sinks import Sink, open_sink
from connectors.spark.arrow import frame_of
from connectors.spark.native import native_script
from connectors.spark.sources import open_stream
from connectors.stored_tables import read_elsewhere
from migration.evaluate import result_schema
from migration.layout import stored_tables
from migration.metrics import BatchReport, Share
from migration.streaming import Settings, StreamingRun
from optimizer.algebra import Window, leaves
from optimizer.catalog import Catalog
from optimizer.physical import PhysicalPlan

_CLOSES_WITHOUT_TUPLES = "spark.sql.streaming.noDataMicroBatches.enabled"


class NativeDeployment(StreamingRun):
    def __init__(self, spark: SparkSession, plan: PhysicalPlan, sql: str, catalog: Catalog, settings: Settings) -> None:
        super().__init__(settings)
        self.spark = spark
        namespace: dict[str, Any] = {"__name__": "penstock_native"}
        exec(compile(native_script(plan.tree, catalog, sql), "native.py", "exec"), namespace)
        self._sources = {}
        for name in dict.fromkeys(leaf.stream for leaf in leaves(plan.tree) if isinstance(leaf, Window)):
            stream = catalog.streams[name]
            columns = tuple(c.name for c in stream.columns)
            self._sources[name] = open_stream(spark, stream, columns, settings.rates.get(name))
        for leaf in stored_tables([plan.tree.input]):
            table = catalog.tables[leaf.table]
            rows = read_elsewhere(table, tuple(c.name for c in table.columns))
            frame_of(spark, rows).createOrReplaceTempView(leaf.table)
        streams = {name: source.frame.drop("_malformed", "_raw") for name, source in self._sources.items()}
        self._result: DataFrame = namespace["query"](spark, streams)
        self._schema = result_schema(plan.tree, catalog)
        self.sink: Sink = open_sink(settings.sink, f"native {settings.state.resolve()}", spark)
        self.sink.prepare(self._schema)
        self._tuples = 0

    @property
    def warnings(self) -> list[str]:
        found = [f"stream {name}: {s.note}" for name, s in self._sources.items() if not s.replayable]
        malformed = [name for name, s in self._sources.items() if s.can_be_malformed]
        found += [f"stream {name}: malformed records are read as NULLs" for name in malformed]
        return found + ([] if self.sink.exactly_once else [self.sink.note])

    def start(self) -> None:
        self.spark.conf.set(_CLOSES_WITHOUT_TUPLES, True)  # windows close when the watermark passes, tuples or not
        self.begin(self._result)

    def handle(self, frame: DataFrame, batch: int) -> BatchReport:
        started = time.perf_counter()
        rows = frame.toArrow().rename_columns(self._schema.names).cast(self._schema)
        evaluated = time.perf_counter()
        self.sink.write(batch, rows)
        done = time.perf_counter()
        shares = dict.fromkeys(Share, 0.0) | {Share.SPARK: evaluated - started, Share.SINK: done - evaluated}
        return self._report(batch, rows, done - started, shares)

    def _report(self, batch: int, rows: pa.Table, seconds: float, shares: dict[Share, float]) -> BatchReport:
        progress = self.query.lastProgress if self.query is not None else None
        self._tuples += progress.numInputRows if progress is not None else 0  # of the batch before
        ticks = len(rows.column(0).unique())
        return BatchReport(
            batch, self._tuples, 0, 0, ticks, rows.num_rows, seconds, shares, None, time.time(), None, (), False
        )

    def close(self) -> None:
        self.stop()
        self.sink.close()
        self.spark.conf.set(_CLOSES_WITHOUT_TUPLES, False)
