"""Estimates beside measurements: what `explain --analyze` has to say, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SMALLEST_U = 1e-3  # below a thousandth of a second per second no plan is better or worse, and no clock tells


@dataclass(frozen=True)
class Pair:
    """An estimate, what was measured, and how many times one is the other."""

    estimated: float
    measured: float
    q_error: float


def pair(estimated: float, measured: float, floor: float) -> Pair:
    """Figures below the floor count as the floor: 0 against 0.3 rows is no error.

    >>> pair(100.0, 25.0, 1.0)
    Pair(estimated=100.0, measured=25.0, q_error=4.0)
    >>> pair(0.3, 0.0, 1.0).q_error
    1.0
    """
    low, high = sorted((max(estimated, floor), max(measured, floor)))
    return Pair(estimated, measured, high / low)


@dataclass(frozen=True)
class LeafAnalysis:
    id: str
    relation: str
    filled: float  # share of the window that the run was long enough for; 1 for a stored table
    rate: Pair
    size: Pair


@dataclass(frozen=True)
class OperatorAnalysis:
    """`u` of a DB operator is its part of its MIG's, as in the plan; selections on streams pass a share of tuples."""

    id: str
    kind: str
    engine: str
    form: str | None
    mig: str | None
    inputs: tuple[str, ...]
    rate_in: Pair
    rate_out: Pair
    size: Pair
    u: Pair
    text: str


@dataclass(frozen=True)
class MigAnalysis:
    id: str
    u: Pair
    send: Pair
    run: Pair
    fetch: Pair


@dataclass(frozen=True)
class UnitAnalysis:
    id: str
    u: Pair


@dataclass(frozen=True)
class Analysis:
    version: Literal[1]
    plan: str
    seconds: float  # the plan ran for
    stream_seconds: float  # of the stream went by
    tuples: int
    batches: int
    ticks: int
    rows: int  # out
    late: int
    malformed: int
    tick_rate: Pair
    loop: Pair  # of the loop itself: Spark's batches, whatever runs in them
    bookkeeping: float  # seconds per batch, of Spark around what is done in it
    leaves: tuple[LeafAnalysis, ...]
    operators: tuple[OperatorAnalysis, ...]
    migs: tuple[MigAnalysis, ...]
    units: tuple[UnitAnalysis, ...]
    remarks: tuple[str, ...]
