"""Where the time of a running query goes: Spark, transfer between the engines, the database, the sink."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from time import perf_counter


class Share(StrEnum):
    SPARK = "spark"
    TRANSFER = "transfer"
    DATABASE = "database"
    SINK = "sink"


@dataclass
class Clock:
    """Seconds spent per share; `with clock(Share.SPARK): …`. A named part is also counted by its name, for good."""

    seconds: dict[Share, float] = field(default_factory=lambda: dict.fromkeys(Share, 0.0))
    parts: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, share: Share, part: str | None = None) -> Iterator[None]:
        started = perf_counter()
        try:
            yield
        finally:
            taken = perf_counter() - started
            self.seconds[share] += taken
            if part is not None:
                self.parts[part] = self.parts.get(part, 0.0) + taken

    def taken(self) -> dict[Share, float]:
        """The seconds since the last call."""
        result, self.seconds = self.seconds, dict.fromkeys(Share, 0.0)
        return result


@dataclass(frozen=True)
class BatchReport:
    """One batch, as the live panel, explain --analyze and the benches see it."""

    batch: int
    tuples: int
    late: int
    malformed: int
    ticks: int
    rows: int
    seconds: float
    shares: dict[Share, float]
    behind: float | None  # seconds that the evaluation is behind the stream; none before the first tick
    finished: float  # wall clock
    last_tick: int | None  # microseconds
    silent: tuple[str, ...]  # streams without a tuple in this batch
    replayed: bool
