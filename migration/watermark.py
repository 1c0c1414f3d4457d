"""Watermarks: up to which event time each stream is complete, and the smallest of them, which the ticks follow.

A stream that falls silent holds every tick back. It is reported, and where the catalog gives it an `idle_timeout` it
does not count any longer once it has been silent for that time, until it speaks again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from optimizer.catalog import Catalog
from optimizer.errors import PenstockError
from optimizer.sql.dialect import parse_duration

REPORT_AFTER = 10.0  # seconds of silence


@dataclass
class Watermarks:
    delays: Mapping[str, int]  # by stream, in microseconds
    timeouts: Mapping[str, float]  # in seconds, for the streams that have one
    now: Callable[[], float] = time.monotonic
    _heard: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def of(streams: tuple[str, ...], catalog: Catalog) -> Watermarks:
        delays, timeouts = {}, {}
        for name in streams:
            stream = catalog.streams[name]
            delays[name] = stream.watermark.delay_us if stream.watermark else 0
            if (given := stream.options.get("idle_timeout")) is not None:
                timeouts[name] = _seconds(name, given)
        return Watermarks(delays, timeouts)

    def at(self, newest: Mapping[str, int], heard: set[str]) -> int | None:
        """The instant up to which all streams are complete; nothing where one has not begun yet."""
        now = self.now()
        self._heard |= {stream: now for stream in self.delays if stream in heard or stream not in self._heard}
        waited_for = [s for s in self.delays if now - self._heard[s] < self.timeouts.get(s, float("inf"))]
        counted = waited_for or [s for s in self.delays if s in newest]
        if not counted or any(stream not in newest for stream in counted):
            return None
        return min(newest[stream] - self.delays[stream] for stream in counted)

    def silent(self) -> list[str]:
        now = self.now()
        return [stream for stream, when in self._heard.items() if now - when >= REPORT_AFTER]


def _seconds(stream: str, given: str | float | bool) -> float:
    """
    >>> _seconds("plugs", "30 seconds")
    30.0
    """
    try:
        found = parse_duration(str(given))
    except ValueError:
        found = None
    if not found:
        raise PenstockError(f"stream {stream}: idle_timeout is a duration such as '30 seconds', found {given!r}")
    return found / 1e6
