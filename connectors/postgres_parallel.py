"""Executors write a batch into PostgreSQL themselves, side by side, so that it need not pass through the driver.

A partition is one transaction that first removes what an earlier attempt left: a task that is tried again, or run twice
at once by speculation, ends in the same rows. They go to a staging table; `Postgres.adopt` moves them into the store in
the transaction that also writes the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from adbc_driver_postgresql import dbapi
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.functions import struct
from pyspark.sql.pandas.functions import arrow_udf

from connectors.database import DatabaseError, DatabaseUnavailable, Store
from connectors.postgres import Postgres
from connectors.postgres_session import quoted, with_defaults

Arrays = Iterator[pa.Array]


@dataclass(frozen=True)
class ExecutorStaging:
    """A deployment's batches, written by the executors and taken over by its own session."""

    database: Postgres

    def stage(self, store: Store, frame: DataFrame, batch: int) -> int:
        return append_from_executors(self.database.url, self.database.schema, store, frame, batch)

    def adopt(self, store: Store, batch: int, rows: int) -> None:
        self.database.adopt(store, batch, rows)


def append_from_executors(url: str, schema: str, store: Store, frame: DataFrame, batch: int) -> int:
    """Stages the frame's rows and says how many they are, for `adopt`."""
    database = Postgres(url, schema)
    try:
        table = database.stage(store, batch)
    finally:
        database.close()
    # Not mapInArrow, which asks for pandas. What has an effect must not be evaluated twice, hence nondeterministic.
    stage = writer(with_defaults(url), schema, table, store.schema, batch)
    write = arrow_udf(stage, "bigint").asNondeterministic()  # type: ignore[call-overload]  # the hints say its kind
    written = frame.select(write(struct(*store.schema.names)).alias("count"))
    try:
        return written.agg({"count": "sum"}).collect()[0][0] or 0
    except PySparkException as error:
        raise _translated(error, store) from None


def writer(url: str, schema: str, table: str, columns: pa.Schema, batch: int) -> Callable[[Arrays], Arrays]:
    """Goes to the workers, which have pyarrow and the database's driver but not this package.

    An inner function is pickled by value, and this one names nothing else of ours.
    """
    home = f"{quoted(schema)}.{quoted(table)}"
    staged = pa.schema([pa.field("_batch", pa.int64()), pa.field("_part", pa.int32()), *columns])

    def write(arrays: Iterator[pa.Array]) -> Iterator[pa.Array]:
        context = TaskContext.get()
        assert context is not None
        part = context.partitionId()
        with dbapi.connect(url) as connection, connection.cursor() as cursor:
            # The second of two attempts at once waits here, and then finds the rows of the first.
            cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", (f"{home} {batch} {part}",))
            cursor.fetchall()
            cursor.execute(f"DELETE FROM {home} WHERE _batch = {batch:d} AND _part = {part:d}")
            for array in arrays:
                own = [
                    pa.repeat(pa.scalar(batch, pa.int64()), len(array)),
                    pa.repeat(pa.scalar(part, pa.int32()), len(array)),
                ]
                data = [column.cast(field.type) for column, field in zip(array.flatten(), columns, strict=True)]
                cursor.adbc_ingest(
                    table, pa.record_batch([*own, *data], schema=staged), "append", db_schema_name=schema
                )
                yield pa.repeat(pa.scalar(1, pa.int64()), len(array))
            connection.commit()

    return write


def _translated(error: PySparkException, store: Store) -> DatabaseError:
    """The driver's error of the last attempt, from the text in which Spark wraps it."""
    lines = [line.strip() for line in str(error).splitlines()]
    own = [line.removeprefix("adbc_driver_manager.") for line in lines if line.startswith("adbc_driver_manager.")]
    cause = own[-1] if own else lines[0]
    kind = DatabaseUnavailable if cause.startswith("OperationalError") else DatabaseError
    return kind(f"the executors cannot write to PostgreSQL for {store.name}: {cause}")
