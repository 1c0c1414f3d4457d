"""Relations that go to Spark as a file: the same rows, of the same types, and nothing is left of the file."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from connectors.spark.handover import LARGE, Handover
from connectors.tick import EPOCH
from optimizer.errors import PenstockError

ROWS = 50_000


def _relation(rows: int) -> pa.Table:
    """Every type that a column can have, NULLs, and names that a file's columns could not have."""
    every = [EPOCH + timedelta(microseconds=i) for i in range(rows)]
    return pa.table(
        {
            "n": pa.array(range(rows), pa.int64()),
            "a": pa.array([None if i % 7 == 0 else i for i in range(rows)], pa.int32()),
            "A": pa.array([None if i % 5 == 0 else f"ä{i}" for i in range(rows)], pa.string()),
            "of the `day`, at": pa.array(every, pa.timestamp("us")),
            "zone": pa.array(every, pa.timestamp("us", tz="UTC")),
            "tiny": pa.array([i % 100 for i in range(rows)], pa.int8()),
            "small": pa.array([i % 1000 for i in range(rows)], pa.int16()),
            "single": pa.array([i / 4 for i in range(rows)], pa.float32()),
            "double": pa.array([i / 3 for i in range(rows)], pa.float64()),
            "yes": pa.array([i % 2 == 0 for i in range(rows)], pa.bool_()),
            "day": pa.array([date(1969, 12, 30) + timedelta(days=i % 9) for i in range(rows)], pa.date32()),
            "bytes": pa.array([bytes([i % 256]) for i in range(rows)], pa.binary()),
        }
    )


@pytest.mark.parametrize("rows", [0, 1, 100, ROWS])
def test_the_same_rows_and_types_come_out(spark: SparkSession, tmp_path: Path, rows: int) -> None:
    relation = _relation(rows)
    assert (relation.nbytes >= LARGE) == (rows == ROWS)
    with Handover(spark, tmp_path / "a place") as handover:
        found = handover.frame(relation).toArrow()
        assert (tmp_path / "a place").exists() == (rows == ROWS)
    assert found.cast(relation.schema).sort_by("n").equals(relation)
    assert not (tmp_path / "a place").exists()


def test_two_relations_of_a_batch_are_two_files_and_both_of_spark_s_threads_read_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    one, other = _relation(ROWS), _relation(2 * ROWS)
    with Handover(spark, tmp_path / "files") as handover:
        frames = handover.frame(one), handover.frame(other)
        assert [frame.count() for frame in frames] == [ROWS, 2 * ROWS]
        assert handover.frame(pa.concat_tables([other] * 8)).rdd.getNumPartitions() >= 2


def test_what_a_crash_left_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "1.parquet").write_bytes(b"half of")
    Handover(spark, tmp_path / "files")
    assert not (tmp_path / "files").exists()


def test_where_there_is_no_room_the_message_says_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a file").write_bytes(b"")
    with (
        Handover(spark, tmp_path / "a file" / "below") as handover,
        pytest.raises(PenstockError, match=r"50,000 rows on their way .*--state"),
    ):
        handover.frame(_relation(ROWS))
