"""Results into a Kafka topic, one JSON object per row, by Spark's own writer."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from connectors.sinks.table import refuse_duplicates
from connectors.types import spark_type
from optimizer.errors import PenstockError

_JSON = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    # Spark's own formats cut times to milliseconds.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


class KafkaSink:
    exactly_once = False
    note = "Spark's Kafka writer has no transactions: a batch that is replayed is sent again"

    def __init__(self, servers: str, topic: str, spark: SparkSession | None) -> None:
        if spark is None:
            raise PenstockError(f"the sink kafka:{servers}#{topic} needs a Spark session, as rows are sent by Spark")
        self._spark = spark
        self._servers = servers
        self._topic = topic
        try:  # finds the package and does not ask the servers yet
            spark.read.format("kafka").options(**{"kafka.bootstrap.servers": servers, "subscribe": topic}).load()
        except AnalysisException as error:
            package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version}"
            raise PenstockError(
                f"Spark cannot write to Kafka without the package {package}; "
                f"start it with the setting spark.jars.packages={package}"
            ) from error

    def prepare(self, schema: pa.Schema) -> None:
        refuse_duplicates(schema)

    def write(self, batch: int, rows: pa.Table, *, during: Callable[[], None] = lambda: None) -> None:
        if rows.num_rows:
            writer = as_json(self._spark, rows).write.format("kafka")
            try:
                writer.options(**{"kafka.bootstrap.servers": self._servers, "topic": self._topic}).save()
            except (PySparkException, Py4JError) as error:
                cause = str(error).strip().splitlines()[0]
                raise PenstockError(
                    f"batch {batch} cannot be sent to Kafka {self._servers}, topic {self._topic}: {cause}"
                ) from error
        during()

    def last_batch(self) -> int | None:
        return None

    def close(self) -> None:
        pass


def as_json(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """One column, `value`: NULLs are written out, times are UTC with microseconds, bytes are base64."""
    columns = ((field.name.replace("`", "``"), spark_type(field.type)) for field in rows.schema)
    frame = spark.createDataFrame(rows, ", ".join(f"`{name}` {kind}" for name, kind in columns))
    return frame.select(f.to_json(f.struct("*"), _JSON).alias("value"))
