"""A Spark session as Penstock wants it: quiet, in UTC, tuned for many small micro-batches."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import IO

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from connectors.spark.class_archive import with_archive
from optimizer.errors import PenstockError

JAVA = 17  # the oldest that Spark 4 runs on

_EVERYWHERE = {
    "spark.app.name": "penstock",
    "spark.driver.memory": "4g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Arrow data below this size becomes part of the plan, where it is analysed, planned and sent to every task anew.
    # A tick's result is small enough for that, and a job less; a window's contents are not.
    "spark.sql.execution.arrow.localRelationThreshold": "1m",
    # A checkpoint is a directory of the driver's machine. Spark's other way of writing it asks the program `readlink`
    # eight times a batch, which is longer than all the rest of an empty batch takes.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # An empty batch has nothing to do here: ticks come from the tuples.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # Several jobs a second, for months: what the driver remembers of finished ones has to stay small.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "20",
}
_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    # Re-planning between the stages of a small batch costs more than a better plan saves; with two partitions there
    # is nothing to coalesce.
    "spark.sql.adaptive.enabled": "false",
}


def spark_session(master: str = "local[*]", options: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
    """The session of this process. There is one: where Spark runs already, that one is given and `options` that can
    still be changed are set."""
    settings = _EVERYWHERE | (_LOCAL if master.startswith("local") else {}) | {"spark.master": master} | dict(options)
    if SparkContext._active_spark_context is None:
        _start(settings)
    try:
        builder = SparkSession.builder.config(map=dict(options)) if options else SparkSession.builder
        spark = builder.getOrCreate()
    except PySparkException as error:
        raise PenstockError(f"Spark refuses an option: {_first_line(error)}") from error
    return spark


@contextmanager
def spark_on_demand(
    master: str = "local[*]", options: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Callable[[], SparkSession]]:
    """Starts Spark when it is first asked for, and stops it in the end unless it ran before."""
    ran = SparkContext._active_spark_context is not None
    try:
        yield lambda: spark_session(master, options)
    finally:
        if not ran and SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()


def _start(settings: Mapping[str, str]) -> None:
    # Executors run the Python of this process, not the first one on their PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf(loadDefaults=False).setAll(list(with_archive(settings).items()))
    master = settings["spark.master"]
    # What the JVM writes on stderr (its notes about modules, log lines) is not for the user of a command: errors come
    # as exceptions. Kept aside, to tell why a JVM did not start.
    with TemporaryFile() as chatter:
        try:
            if SparkContext._gateway is None:
                _check_java()
                gateway = launch_gateway(conf, {"stderr": chatter})  # type: ignore[no-untyped-call]
                context = SparkContext(conf=conf, gateway=gateway)
            else:
                context = SparkContext(conf=conf)
        except (PySparkException, Py4JError) as error:
            why = _tail(chatter) or _first_line(error)
            raise PenstockError(f"Spark did not start with master {master}: {why}") from error
    context.setLogLevel("ERROR")
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True  # they print the stack of what comes as an exception anyway


_ADVICE = f"install a JDK {JAVA} or newer, and put it on the PATH or point JAVA_HOME to it"


def java() -> str:
    """The program that runs Spark."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else which("java")
    if found is None:
        raise PenstockError(f"running queries needs Java, and there is none on the PATH; {_ADVICE}")
    return found


def _check_java() -> None:
    program = java()
    try:
        words = subprocess.run([program, "-version"], capture_output=True, text=True, check=True, timeout=60).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise PenstockError(f"running queries needs Java, but {program} does not run ({error}); {_ADVICE}") from error
    found = java_version(words)
    if found is not None and found < JAVA:
        raise PenstockError(f"running queries needs Java {JAVA} or newer, but {program} is Java {found}; {_ADVICE}")


def java_version(words: str) -> int | None:
    """
    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_401"')
    (17, 8)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', words)
    return int(found[1]) if found else None


def _tail(chatter: IO[bytes]) -> str:
    """The first line that tells of an error, among notes, log lines and stack traces."""
    chatter.seek(0)
    words = chatter.read().decode(errors="replace")
    found = re.search(
        r"^(?:Exception in thread .*? |Caused by: )?((?:Invalid|Error|[\w.]+(?:Exception|Error):).*)", words, re.M
    )
    return found[1][:500] if found else ""


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
