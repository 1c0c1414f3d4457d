"""What running plans were seen to take, one JSON line per run: what a calibration fits the profile to.

A line says which plan ran over which streams, and where its time went; never what a cost model made of it, so that
lines of today serve models of tomorrow. All times are seconds of work per second of stream.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from costmodel.machine import fingerprint
from optimizer.errors import PenstockError


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Parts(_Line):
    """Where the time of a plan goes. All but `total` are parts of it; the rest of it goes to tuples as they arrive."""

    total: float
    run: float = Field(description="the SQL of all MIGs, with their results in the driver's memory")
    ticks: float = Field(description="jobs of the stream engine for relations at ticks")
    fetch: float = Field(description="results of MIGs into the stream engine")
    ship: float = Field(description="relations of the stream engine into the database")

    @property
    def arrival(self) -> float:
        return self.total - self.run - self.ticks - self.fetch - self.ship


class Observation(_Line):
    version: Literal[2] = 2
    at: str = Field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    machine: str = Field(default_factory=fingerprint)
    what: str = Field(description="the experiment, or where the line comes from")
    sql: str
    catalog: str
    database: str
    plan: str
    in_database: tuple[str, ...] = Field(description="operators, by id")
    join_orders: tuple[str, ...]
    forms: dict[str, str] = Field(description="of sliding aggregates in Spark: pane or expand, by operator")
    rates: dict[str, float] = Field(description="tuples per second of stream, by stream")
    filled: dict[str, int] = Field(description="how much of each window there was, in its own unit, by alias")
    batch_seconds: float = Field(description="of stream, in a batch")
    parts: Parts


def default_path() -> Path:
    """Where runs leave their lines."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "penstock" / "observations.jsonl"


def append(path: Path, observation: Observation) -> None:
    """One line more; a line is written whole, whoever else appends."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(observation.model_dump_json() + "\n")
    except OSError as error:
        raise PenstockError(f"the observations cannot be written to {path}: {error.strerror}") from None


def read(path: Path) -> Iterator[Observation]:
    """Lines of earlier versions are passed over; one that is not a line of this kind at all is an error."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise PenstockError(f"the observations in {path} cannot be read: {reason}") from None
    for number, line in enumerate(lines, 1):
        if line.startswith('{"version":1,'):
            continue
        try:
            yield Observation.model_validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            raise PenstockError(f"{path}, line {number} is no observation: {first['msg']}; remove the line") from None
