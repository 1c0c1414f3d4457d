"""An instant of evaluation, as every connector sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True)
class Tick:
    """An instant of a slide-driven query, and where each of its windows stands then.

    A time window shows its own last boundary b, the tuples with b - size <= ts < b. A row window shows the `size`
    tuples up to number `lasts[alias]`, counted from 1 in order of (event time, arrival).
    """

    at: datetime
    boundaries: Mapping[str, datetime] = field(default_factory=dict)  # by alias of a time window
    lasts: Mapping[str, int] = field(default_factory=dict)  # by alias of a row window


@dataclass(frozen=True, slots=True)
class Span:
    """What a tuple-driven query emits at once: the rows whose newest tuple has its time in (since, until]."""

    since: datetime
    until: datetime
