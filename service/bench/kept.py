"""Trials in a file, a JSON line each: what was measured once can be looked at again with another profile.

A trial knows of no profile. So a bench whose time was over goes on where it was, and a model that was changed is
compared with the same measurements. Lines of another machine or another version of the engines are not told apart:
the file is as good as its owner keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from optimizer.errors import PenstockError
from service.bench.trial import Trial, merged


@dataclass(frozen=True)
class Kept:
    sql: str
    plan: str
    batch: float  # seconds of stream
    trial: Trial


_LINE = TypeAdapter(Kept)


def keep(path: Path, line: Kept) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(_LINE.dump_json(line) + b"\n")


def known(path: Path, batch: float) -> dict[tuple[str, str, float], Trial]:
    """By query, plan and rate, lines of the same taken together; none where there is no file."""
    found: dict[tuple[str, str, float], Trial] = {}
    lines = path.read_text().splitlines() if path.exists() else []
    for number, text in enumerate(lines, 1):
        try:
            line = _LINE.validate_json(text)
        except ValidationError as error:
            why = error.errors()[0]["msg"]
            raise PenstockError(f"{path}, line {number}, is no trial: {why}; remove the line or the file") from None
        if line.batch == batch:
            key = line.sql, line.plan, line.trial.rate
            found[key] = merged([found[key], line.trial], batch) if key in found else line.trial
    return found
