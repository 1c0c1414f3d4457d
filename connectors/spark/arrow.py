"""Arrow tables as DataFrames, with the types of the catalog: a TIMESTAMP has no time zone."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from connectors.spark.expressions import quoted
from connectors.types import spark_type


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Spark by itself would take a timestamp without a zone for one of the session's zone.

    In one chunk, because pyspark 4.3 loses all rows that come after an empty one.
    """
    return spark.createDataFrame(rows.combine_chunks(), ddl(rows.schema))


def ddl(schema: pa.Schema, prefix: str = "") -> str:
    """
    >>> ddl(pa.schema([("ts", pa.timestamp("us"))]))
    '`ts` timestamp_ntz'
    """
    return ", ".join(f"{quoted(prefix + field.name)} {spark_type(field.type)}" for field in schema)
