"""Where results go: every batch of ticks is one Arrow table, written whole or not at all.

A batch is replayed after a crash. A sink that is exactly once finds such a batch in its own ledger, or overwrites it
with the same contents; one that is not says why in its `note`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from connectors.sinks.console import ConsoleSink
from connectors.sinks.duckdb import DuckDbSink
from connectors.sinks.kafka import KafkaSink
from connectors.sinks.parquet import ParquetSink
from connectors.sinks.postgres import PostgresSink
from optimizer.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FORMS", "Sink", "open_sink"]

FORMS = (
    "console",
    "parquet:DIRECTORY",
    "duckdb:FILE#TABLE",
    "postgres:postgresql://USER@HOST:PORT/DATABASE#TABLE",
    "kafka:HOST:PORT,HOST:PORT#TOPIC",
)


class Sink(Protocol):
    exactly_once: bool
    note: str  # why a batch may come twice; empty where it cannot

    def prepare(self, schema: pa.Schema) -> None:
        """Makes the table or directory; SchemaMismatch where one stands that has other columns."""

    def write(self, batch: int, rows: pa.Table, *, during: Callable[[], None] = ...) -> None:
        """Writes a batch once, whichever way it is called again; batches come in rising order.

        `during` is called when the rows are there and not yet committed.
        """

    def last_batch(self) -> int | None:
        """The newest batch known to be written; None where there is none, or where the sink cannot know."""

    def close(self) -> None: ...


def open_sink(text: str, deployment: str, spark: SparkSession | None) -> Sink:
    """The sink that `text` names; what `deployment` has written is kept apart from what others have."""
    kind, _, rest = text.strip().partition(":")
    place, _, name = rest.rpartition("#")
    if kind == "console" and not rest:
        return ConsoleSink()
    if kind == "parquet" and rest:
        if "://" in rest:
            raise PenstockError(f"the sink parquet:{rest} is not a local directory; write parquet:DIRECTORY")
        return ParquetSink(Path(rest), deployment)
    if kind == "duckdb" and place and name:
        if place == ":memory:":
            raise PenstockError("a sink in DuckDB's memory is lost at the end of the run; write duckdb:FILE#TABLE")
        return DuckDbSink(Path(place), name, deployment)
    if kind == "postgres" and place.startswith(("postgresql://", "postgres://")) and name:
        return PostgresSink(place, name, deployment)
    if kind == "kafka" and place and name:
        return KafkaSink(place, name, spark)
    shown = text if "@" not in text else f"{kind}:…"  # there may be a password in it
    raise PenstockError(f"there is no sink '{shown}'; write one of\n" + "\n".join(f"  {form}" for form in FORMS))
