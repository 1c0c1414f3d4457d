"""Relations on their way from a database into Spark: small ones as a part of the plan, large ones as a file.

Spark takes Arrow data apart row by row. A Parquet file it reads by columns, so that the detour over a file, which is
gone before the system gets to writing it to a disk, takes a quarter of the time: 2.4 million rows of 36 bytes were
written, read and grouped in 0.2 s instead of 0.9 s.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from connectors.spark.arrow import ddl, frame_of
from optimizer.errors import PenstockError

LARGE = 1 << 20  # bytes; data below this size becomes part of Spark's plan (`localRelationThreshold`)
_GROUPS = 2  # row groups for each of Spark's threads


class Handover:
    """The large relations of one batch, in a directory that is theirs alone."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark, self._directory = spark, directory
        self._shared = str(spark.sparkContext.master).startswith("local")  # who runs tasks sees our files
        self._files = 0
        self._clear()  # of what a crash left

    def __enter__(self) -> Handover:
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    def frame(self, rows: pa.Table) -> DataFrame:
        """Good until the end of the `with` that it is called in."""
        if rows.nbytes < LARGE or not self._shared:
            return frame_of(self.spark, rows)
        self._files += 1
        path = self._directory / f"{self._files}.parquet"
        # Names are Spark's matter: in a file it would not tell `a` from `A`.
        names = [f"c{i}" for i in range(rows.num_columns)]
        numbered = rows.rename_columns(names)
        group = -(-rows.num_rows // (_GROUPS * self.spark.sparkContext.defaultParallelism))
        plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            pq.write_table(numbered, path, row_group_size=group, **plain)
        except OSError as error:
            raise PenstockError(
                f"{rows.num_rows:,} rows on their way from the database into Spark ({rows.nbytes / 1e6:,.0f} MB) "
                f"cannot be written to {self._directory} ({error}): make room there, or keep the state elsewhere "
                "(--state)"
            ) from error
        return (
            self.spark.read.schema(ddl(numbered.schema)).parquet(f"file://{path.absolute()}").toDF(*rows.column_names)
        )

    def _clear(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)
