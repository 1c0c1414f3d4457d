"""What the stream engine keeps between micro-batches, as Parquet in a directory that survives a restart.

A store is a folder with an entry per batch, `<first>-<last>-<newest time>`, where first and last are the same until
entries are merged. An entry appears by one rename, so it is there as a whole or not at all; a batch that is replayed
replaces its own. A merged entry hides those whose batches it covers, so a crash before they are deleted harms nothing.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlparse

import pyspark.sql.functions as F
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.types import StructType

from connectors.spark.expressions import moment, quoted
from connectors.tick import EPOCH

_WRITING = "_writing-"  # in front of the name of an entry that is not whole yet
_FAN_IN = 16  # entries of one size before they become one
_YOUNG = 2  # batches that may be replayed, and stay by themselves


@dataclass(frozen=True, slots=True, order=True)
class _Entry:
    first: int
    last: int
    newest: int  # microseconds since the epoch

    @staticmethod
    def of(name: str) -> _Entry | None:
        found = re.fullmatch(r"(-?\d+)-(-?\d+)-(-?\d+)", name)
        return _Entry(int(found[1]), int(found[2]), int(found[3])) if found else None

    @property
    def name(self) -> str:
        return f"{self.first}-{self.last}-{self.newest}"

    @property
    def tier(self) -> int:
        """How often it was merged, roughly: the power of the fan-in that its batches reach."""
        tier, batches = 0, self.last - self.first + 1
        while batches >= _FAN_IN:
            tier, batches = tier + 1, batches // _FAN_IN
        return tier

    def covers(self, other: _Entry) -> bool:
        return self != other and self.first <= other.first and other.last <= self.last


class SpeState:
    """The stores of one deployment. A DataFrame that was read is good until its store is next changed."""

    def __init__(self, spark: SparkSession, directory: str) -> None:
        self.spark = spark
        self.directory, self.files = _files(spark, directory)
        self._tidy()

    def _tidy(self) -> None:
        """Removes what a crash left half written."""
        for store in self.files.names(self.directory):
            for name in self.files.names(f"{self.directory}/{store}"):
                if name.startswith(_WRITING):
                    self.files.remove(f"{self.directory}/{store}/{name}")

    def write(self, store: str, batch: int, frame: DataFrame, time_column: str) -> None:
        """Keeps a batch's rows, in place of what the store has of this batch; no rows are not kept at all."""
        place = f"{self.directory}/{store}"
        # The old rows go when the new ones are written: the new may be computed from them.
        temporary = f"{place}/{_WRITING}{batch}"
        newest = self._save(frame, temporary, time_column)
        for entry in self._listed(store):
            if entry.first == entry.last == batch:
                self.files.remove(f"{place}/{entry.name}")
        if newest is None:
            self.files.remove(temporary)
        else:
            self.files.rename(temporary, f"{place}/{_Entry(batch, batch, newest).name}")

    def read(self, store: str, schema: StructType) -> DataFrame | None:
        """All rows of a store, or None where there are none. The schema is given so that no file is opened for it."""
        paths = [f"{self.directory}/{store}/{entry.name}" for entry in self._visible(store)]
        return self.spark.read.schema(schema).parquet(*paths) if paths else None

    def evict(self, store: str, before: datetime) -> None:
        """Drops the batches that have nothing from this time on."""
        limit = (before - EPOCH) // timedelta(microseconds=1)
        visible = self._visible(store)
        hidden = [entry for entry in self._listed(store) if entry not in visible]
        for entry in [*hidden, *(entry for entry in visible if entry.newest < limit)]:
            self.files.remove(f"{self.directory}/{store}/{entry.name}")

    def compact(self, store: str, schema: StructType, time_column: str, before: datetime) -> bool:
        """Merges entries where there are many of one size, less the rows before a time; whether it did."""
        visible = self._visible(store)
        settled = visible[:-_YOUNG]
        for tier in range(max((entry.tier for entry in settled), default=0) + 1):
            run = [entry for entry in settled if entry.tier == tier]
            if len(run) > _FAN_IN:
                # Everything between the first and the last goes along: an entry stands for all batches of its range.
                low, high = run[0].first, run[-1].last
                between = [entry for entry in settled if low <= entry.first and entry.last <= high]
                self._merge(store, between, schema, time_column, before)
                return True
        return False

    def drop(self) -> None:
        """Removes everything of this deployment."""
        self.files.remove(self.directory)

    def _merge(self, store: str, entries: list[_Entry], schema: StructType, time_column: str, before: datetime) -> None:
        place = f"{self.directory}/{store}"
        rows = self.spark.read.schema(schema).parquet(*(f"{place}/{entry.name}" for entry in entries))
        kept = rows.where(f"{quoted(time_column)} >= {moment(before).sql(dialect='spark')}")
        temporary = f"{place}/{_WRITING}{entries[0].first}-{entries[-1].last}"
        newest = self._save(kept.coalesce(1), temporary, time_column)
        if newest is None:
            self.files.remove(temporary)
        else:
            self.files.rename(temporary, f"{place}/{_Entry(entries[0].first, entries[-1].last, newest).name}")
        for entry in entries:
            self.files.remove(f"{place}/{entry.name}")

    def _save(self, frame: DataFrame, path: str, time_column: str) -> int | None:
        """Writes the rows and says the newest time among them, in one job."""
        seen = Observation()
        newest = F.max(F.unix_micros(F.col(quoted(time_column)).cast("timestamp"))).alias("newest")
        frame.observe(seen, newest).write.mode("overwrite").parquet(path)
        found = seen.get["newest"]
        return None if found is None else int(found)

    def _listed(self, store: str) -> list[_Entry]:
        names = self.files.names(f"{self.directory}/{store}")
        return sorted(entry for name in names if (entry := _Entry.of(name)))

    def _visible(self, store: str) -> list[_Entry]:
        entries = self._listed(store)
        return [e for e in entries if not any(other.covers(e) for other in entries)]


# -- files ------------------------------------------------------------------------------------------------------------


class Files(Protocol):
    """The little that a store needs of a file system; paths as Spark takes them."""

    def names(self, directory: str) -> list[str]: ...

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None:
        """With all that is in it; nothing there is nothing to do."""


class LocalFiles:
    def names(self, directory: str) -> list[str]:
        path = _local(directory)
        return [child.name for child in path.iterdir()] if path.is_dir() else []

    def rename(self, old: str, new: str) -> None:
        _local(old).rename(_local(new))

    def remove(self, path: str) -> None:
        if _local(path).exists():
            shutil.rmtree(_local(path))


class HadoopFiles:
    """Any other file system that Spark knows."""

    def __init__(self, spark: SparkSession) -> None:
        self.jvm: Any = spark._jvm
        self.configuration: Any = spark._jsparkSession.sessionState().newHadoopConf()

    def names(self, directory: str) -> list[str]:
        path, system = self._of(directory)
        return [status.getPath().getName() for status in system.listStatus(path)] if system.exists(path) else []

    def rename(self, old: str, new: str) -> None:
        path, system = self._of(old)
        if not system.rename(path, self._of(new)[0]):
            raise OSError(f"{old} cannot be renamed to {new}")

    def remove(self, path: str) -> None:
        target, system = self._of(path)
        system.delete(target, True)

    def _of(self, path: str) -> tuple[Any, Any]:
        found = self.jvm.org.apache.hadoop.fs.Path(path)
        return found, found.getFileSystem(self.configuration)


def _local(path: str) -> Path:
    return Path(re.sub("^file:(//)?", "", path))


def _files(spark: SparkSession, directory: str) -> tuple[str, Files]:
    """The directory as Spark takes it, which is not as a URI has it: a space is a space. And who handles its files."""
    if urlparse(directory).scheme in ("", "file"):
        return f"file://{_local(directory).absolute()}", LocalFiles()
    return directory.rstrip("/"), HadoopFiles(spark)
