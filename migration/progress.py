"""What one batch leaves behind, as the ledger keeps it: enough to go on after it, and to evaluate it again."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

Microseconds = int


class Progress(BaseModel):
    """Times are microseconds since the epoch. The instants of this batch are those in (fired, until]."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    batch: int = -1
    newest: dict[str, Microseconds] = {}  # event time, by stream
    oldest: Microseconds | None = None  # event time of the first tuples, before which there are no ticks
    fired: Microseconds | None = None  # all instants up to here were evaluated by earlier batches
    until: Microseconds | None = None  # this batch evaluates up to here
    spans: tuple[tuple[Microseconds, Microseconds], ...] = ()  # the parts of (fired, until] with tuples in a window
    dropped: dict[str, int] = {}  # tuples evicted from the stores of row windows
    tuples: int = 0  # in all, of every stream
    late: int = 0
    malformed: int = 0

    @property
    def evaluated(self) -> Microseconds | None:
        """All instants up to here are evaluated once this batch is done."""
        return self.until if self.until is not None else self.fired
