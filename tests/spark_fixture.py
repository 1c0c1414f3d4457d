"""One Spark session for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from connectors.spark.class_archive import OPTIONS
from connectors.spark.session import spark_session

SHORT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # what is run once is not worth Java's second compiler
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session("local[2]", {"spark.sql.shuffle.partitions": "1", OPTIONS: SHORT})
    yield session
    session.stop()


@contextmanager
def interpreted(spark: SparkSession) -> Iterator[None]:
    """For queries that are run once, on few rows: to compile them takes longer than all else."""
    before = {option: spark.conf.get(option) for option in INTERPRETED}
    for option, value in INTERPRETED.items():
        spark.conf.set(option, value)
    try:
        yield
    finally:
        for option, value in before.items():
            spark.conf.set(option, value or "")
