"""Records that could not be read: kept as they came, with the reason, and counted once each.

Per stream a directory with one file of JSON lines per batch, and `count.json`: the total, and the newest batch in it.
The count is written after the file, so a batch that is replayed is either in both or is written again and counted.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa

from optimizer.errors import PenstockError


@dataclass(frozen=True, slots=True)
class _Counted:
    batch: int = -1
    total: int = 0


class DeadLetters:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self, stream: str, batch: int, rows: pa.Table) -> None:
        """Keeps the records of `rows` (`_raw`, and why in `_malformed`); a batch that is there already stays."""
        counted = self._counted(stream)
        if not rows.num_rows or batch <= counted.batch:
            return
        lines = (
            json.dumps({"batch": batch, "reason": reason, "record": record}, ensure_ascii=False) + "\n"
            for record, reason in zip(_texts(rows, "_raw"), _texts(rows, "_malformed"), strict=True)
        )
        total = counted.total + rows.num_rows
        try:
            self._of(stream).mkdir(parents=True, exist_ok=True)
            _write(self._of(stream) / f"batch-{batch:012}.jsonl", "".join(lines))
            _write(self._count(stream), json.dumps(asdict(_Counted(batch, total))))
        except OSError as error:
            raise PenstockError(f"malformed records cannot be kept in {self._of(stream)}: {error}") from error

    def count(self, stream: str) -> int:
        """How many records of a stream were malformed, over all runs."""
        return self._counted(stream).total

    def _counted(self, stream: str) -> _Counted:
        path = self._count(stream)
        try:
            return _Counted(**json.loads(path.read_text()))
        except FileNotFoundError:
            return _Counted()
        except (OSError, ValueError, TypeError) as error:
            raise PenstockError(f"the count of malformed records in {path} cannot be read: {error}") from error

    def _count(self, stream: str) -> Path:
        return self._of(stream) / "count.json"

    def _of(self, stream: str) -> Path:
        """A directory of its own for every name, also for quoted ones such as "..", "a/b"."""
        return self.directory / quote(stream, safe="").replace(".", "%2E")


def _texts(rows: pa.Table, column: str) -> list[str | None]:
    """Bytes that are no UTF-8 are a common reason for a malformed record, so they must not stop its being kept."""
    values = rows.column(column).cast(pa.binary()).to_pylist()
    return [None if value is None else value.decode("utf-8", "backslashreplace") for value in values]


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
