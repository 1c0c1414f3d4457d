"""Results on the terminal, tick by tick, as aligned lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.compute as pc
from rich.cells import cell_len

from optimizer.errors import PenstockError

_WIDEST = 48
_TICK = ("_tick", "tick")  # the column that says a row's tick has the first name where the query uses the second


class ConsoleSink:
    exactly_once = False
    note = "the console shows a batch again when it is replayed"

    def __init__(self, limit: int = 20, out: TextIO | None = None) -> None:
        self.limit = limit  # rows shown of each tick
        self._out = out

    def prepare(self, schema: pa.Schema) -> None:
        pass

    def write(self, batch: int, rows: pa.Table, *, during: Callable[[], None] = lambda: None) -> None:
        out = self._out or sys.stdout
        encoding = getattr(out, "encoding", None) or "utf-8"
        try:
            for line in self._lines(rows):
                print(line.encode(encoding, "replace").decode(encoding), file=out)
            during()
            out.flush()
        except OSError as error:
            raise PenstockError(f"the results cannot be printed: {error}") from error

    def last_batch(self) -> int | None:
        return None

    def close(self) -> None:
        pass

    def _lines(self, rows: pa.Table) -> Iterator[str]:
        name = next((name for name in _TICK if name in rows.column_names), None)
        if name is None:
            if rows.num_rows:
                yield from self._one("", rows)
            return
        ticks, others = rows.column(name), rows.drop_columns(name)
        for tick in pc.unique(ticks):
            yield from self._one(f"tick {_text(tick.as_py())}: ", others.filter(pc.equal(ticks, tick)))

    def _one(self, title: str, rows: pa.Table) -> Iterator[str]:
        yield f"{title}{rows.num_rows:,} {'row' if rows.num_rows == 1 else 'rows'}"
        shown = rows.slice(0, self.limit)
        columns = []
        for field, values in zip(rows.schema, shown.columns, strict=True):
            cells = [_text(field.name), *(_text(value) for value in values.to_pylist())]
            columns.append(_aligned(cells, right=_is_number(field.type)))
        for line in zip(*columns, strict=True):
            yield ("  " + "  ".join(line)).rstrip()
        if rows.num_rows > shown.num_rows:
            yield f"  … and {rows.num_rows - shown.num_rows:,} more"


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _aligned(cells: list[str], right: bool) -> list[str]:
    width = max(cell_len(cell) for cell in cells)
    blanks = [" " * (width - cell_len(cell)) for cell in cells]
    return [blank + cell if right else cell + blank for blank, cell in zip(blanks, cells, strict=True)]


def _text(value: Any) -> str:
    r"""
    >>> _text(None), _text(True), _text("a\tb"), _text(datetime(2024, 1, 1)), _text(b"\x00\xff")
    ('NULL', 'true', 'a\\tb', '2024-01-01 00:00:00', '0x00ff')
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case bytes():
            text = "0x" + value.hex()
        case datetime():
            text = value.isoformat(" ")
        case _:
            text = str(value)
    # Control characters would move the cursor.
    safe = text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return safe if len(safe) <= _WIDEST else safe[: _WIDEST - 1] + "…"
