"""What operators of running plans were seen to take, one JSON line per run: what a calibration refits the profile from.

A line says what was done and for how long, never what a cost model made of it, so that lines of today serve models of
tomorrow. All times are seconds, of one execution: at a tick, or on one batch's tuples.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from costmodel.machine import fingerprint
from optimizer.errors import PenstockError


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class OperatorSeen(_Line):
    id: str
    kind: Literal["select", "project", "join", "aggregate"]
    form: str | None = Field(description="of an aggregate in Spark: pane, expand or relation")
    engine: str = Field(description="spark, duckdb or postgres")
    rows_in: tuple[float, ...] = Field(description="per execution, by input")
    rows_out: float
    window_over_slide: float | None = Field(description="of an aggregate that stands on one window")
    parts: tuple[str, ...] = Field(description="an aggregate's functions, or a word per item, predicate or join key")
    seconds: float = Field(description="of one execution")
    batch_seconds: float = Field(description="per batch beside that: tuples or partial aggregates kept in Spark")


class MigSeen(_Line):
    id: str
    rows_sent: float = Field(description="per batch, into all stores of the deployment")
    rows_back: float = Field(description="per execution")
    send: float = Field(description="seconds per batch")
    run: float
    fixed: float = Field(description="of `run`: what an empty query takes")
    fetch: float


class Observation(_Line):
    version: Literal[1] = 1
    at: str = Field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    machine: str = Field(default_factory=fingerprint)
    plan: str
    database: str
    drive: Literal["slide", "tuple"]
    stream_seconds: float
    batches: float = Field(description="per second of stream")
    ticks: float = Field(description="per second of stream")
    tuples: float = Field(description="per second of stream, of all streams")
    bookkeeping: float = Field(description="Spark's own seconds per batch, around what is done in it")
    loop: float = Field(description="seconds per batch that belong to no operator, bookkeeping among them")
    operators: tuple[OperatorSeen, ...]
    migs: tuple[MigSeen, ...]


def append(path: Path, observation: Observation) -> None:
    """One line more; a line is written whole, whoever else appends."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(observation.model_dump_json() + "\n")
    except OSError as error:
        raise PenstockError(f"the observations cannot be written to {path}: {error.strerror}") from None
