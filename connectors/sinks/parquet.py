"""Results into a directory of Parquet files, one per batch.

A file appears under its name when it is whole, and a replay replaces it by the same. File names carry no deployment,
so a directory belongs to one; `_penstock.json` says to which (readers of Parquet directories skip such names).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from connectors.sinks.table import check_columns, refuse_duplicates
from optimizer.errors import PenstockError

_BATCH = re.compile(r"batch-(\d{12,})\.parquet")
_OWNER = "_penstock.json"


class ParquetSink:
    exactly_once = True
    note = ""

    def __init__(self, directory: Path, deployment: str) -> None:
        self.directory = directory
        self.deployment = deployment

    def prepare(self, schema: pa.Schema) -> None:
        refuse_duplicates(schema)
        with self._failing():
            self.directory.mkdir(parents=True, exist_ok=True)
            self._own()
            for leftover in self.directory.glob(".batch-*.tmp"):
                leftover.unlink()
            if there := sorted(self.directory.glob("*.parquet")):
                found = pq.read_schema(there[-1])
                check_columns(str(there[-1]), _columns(schema), _columns(found))

    def write(self, batch: int, rows: pa.Table, *, during: Callable[[], None] = lambda: None) -> None:
        with self._failing():
            if not rows.num_rows:
                during()
                return
            temporary = self.directory / f".batch-{batch:012}.parquet.tmp"
            with temporary.open("wb") as file:
                pq.write_table(rows, file)
                file.flush()
                os.fsync(file.fileno())
            during()
            temporary.replace(self.directory / f"batch-{batch:012}.parquet")
            self._sync()

    def last_batch(self) -> int | None:
        with self._failing():
            if not self.directory.is_dir():
                return None
            found = (_BATCH.fullmatch(path.name) for path in self.directory.iterdir())
            return max((int(match.group(1)) for match in found if match), default=None)

    def close(self) -> None:
        pass

    def _own(self) -> None:
        owner = self.directory / _OWNER
        if owner.exists():
            if json.loads(owner.read_text()).get("deployment") != self.deployment:
                raise PenstockError(
                    f"{self.directory} holds the results of another deployment; write to another directory, or "
                    "move what is there away"
                )
            return
        if self.last_batch() is not None:
            raise PenstockError(f"{self.directory} holds batches, but {_OWNER} is gone; write to another directory")
        temporary = self.directory / f".{_OWNER}.tmp"
        temporary.write_text(json.dumps({"deployment": self.deployment}))
        temporary.replace(owner)

    def _sync(self) -> None:
        """Makes the new name survive a power failure; the file's contents are on disk already."""
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException, json.JSONDecodeError) as error:
            raise PenstockError(f"the results cannot be kept in {self.directory}: {error}") from error


def _columns(schema: pa.Schema) -> list[tuple[str, str]]:
    return [(field.name, str(field.type)) for field in schema]
