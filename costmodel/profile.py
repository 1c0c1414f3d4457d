"""The calibration profile: what the operators of each engine cost on one machine.

A profile is a versioned JSON file. All times are seconds. The profile shipped with the package, `default`, follows
from figures measured on one two-core machine; its `basis` says which figure each number comes from.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

PROFILE_VERSION = 6


@dataclass(frozen=True, slots=True)
class Transfer:
    """Moving tuples between the engines, once per batch or execution."""

    fixed: float
    row: float
    byte: float

    def cost(self, executions: float, rate: float, width: float) -> float:
        return executions * self.fixed + rate * (self.row + width * self.byte)


@dataclass(frozen=True, slots=True)
class ByWidth:
    """Work on tuples that are wide or narrow."""

    row: float
    byte: float

    def cost(self, rate: float, width: float) -> float:
        return rate * (self.row + width * self.byte)


@dataclass(frozen=True, slots=True)
class SpeCosts:
    """The stream engine. All ticks of a batch are evaluated together: what a job costs by itself is paid per batch."""

    batch: float  # a micro-batch with nothing in it
    read: float  # per tuple that a source brings
    select: float  # per tuple
    project: float
    keep: float  # per batch: the job that keeps a window's tuples
    keep_row: float  # per tuple kept
    window: float  # per evaluation: reading a kept window, whatever it holds
    window_row: float  # per tuple of a kept window, at each tick
    partial: float  # per batch: the job that keeps partial aggregates
    pane_row: float  # per tuple, into its pane
    combine: float  # per evaluation: partial aggregates into results
    pane_group: float  # per pane and group, at each tick
    expand: float  # per tuple and window that holds it: window() multiplies rows by ceil(size / slide)
    expand_group: float  # per kept window and group, per evaluation
    stage: float  # per evaluation: an aggregate of a relation, which moves tuples between executors
    join: float  # per evaluation
    job: float  # per evaluation: the job itself, where its result leaves the stream engine
    aggregate: float  # per tuple of a relation, at each tick
    join_in: float  # per tuple of a join that moves both of its sides
    probe: float  # per tuple of a join that copies the smaller one
    join_out: float
    stored: float  # per stored tuple that is read
    bring: ByWidth  # of a relation that comes from the database
    give: ByWidth  # of a relation that goes into it
    functions: dict[str, float]  # per new tuple that a function of a sliding aggregate takes in
    merge: dict[str, float]  # per pane and group, beside `pane_group`: what a function keeps of a pane, with others


@dataclass(frozen=True, slots=True)
class DbCosts:
    """A database. A DB-op pays `execution` once per run of its SQL, whatever it holds."""

    execution: float
    select: float  # per tuple scanned
    project: float
    aggregate: float
    pane_group: float  # per pane and group, at each tick
    group: float  # per group that comes out
    join_in: float
    join_out: float
    send: Transfer  # new tuples into a window store, per batch
    ship: Transfer  # a relation made by the stream engine, at each tick
    fetch: Transfer  # a result back into the stream engine; fixed per evaluation
    result: ByWidth  # that comes out of a DB-op
    functions: dict[str, float]  # per tuple that a function takes in, beside finding its group


@dataclass(frozen=True, slots=True)
class CalibrationProfile:
    version: int
    name: str
    machine: str
    measured: str  # ISO date
    units: str  # what the runtime runs on its own: operator, engine or loop
    batch_interval: float  # seconds of stream in a micro-batch, at most, for a plan to be called feasible
    spe: SpeCosts
    databases: dict[str, DbCosts]
    basis: dict[str, str] = field(default_factory=dict)


def per_tuple(functions: dict[str, float], called: tuple[str, ...]) -> float:
    """What the functions of an aggregate take per tuple; one that was never measured counts as the dearest.

    >>> per_tuple({"count": 1.0, "avg": 2.0}, ("avg", "count", "median"))
    5.0
    """
    dearest = max(functions.values(), default=0.0)
    return sum(functions.get(name, dearest) for name in called)


class ProfileError(ValueError):
    """A profile file that is missing, malformed or of another version."""


_ADAPTER = TypeAdapter(CalibrationProfile)


def parse_profile(text: str, where: str) -> CalibrationProfile:
    try:
        profile = _ADAPTER.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ProfileError(f"{where}: {place}: {first['msg']}. Write a profile of version {PROFILE_VERSION}.") from None
    if profile.version != PROFILE_VERSION:
        raise ProfileError(f"{where}: version {profile.version} found, version {PROFILE_VERSION} expected.")
    return profile


def load_profile(path: Path) -> CalibrationProfile:
    try:
        return parse_profile(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path}: cannot be read ({error}).") from None


@cache
def default_profile() -> CalibrationProfile:
    """The shipped profile.

    >>> sorted(default_profile().databases)
    ['duckdb', 'postgres']
    """
    return parse_profile((files("costmodel") / "profiles" / "default.json").read_text(), "default profile")
