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

PROFILE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Transfer:
    """Moving tuples between the engines, once per batch or execution."""

    fixed: float
    row: float
    byte: float

    def cost(self, executions: float, rate: float, width: float) -> float:
        return executions * self.fixed + rate * (self.row + width * self.byte)


@dataclass(frozen=True, slots=True)
class SpeCosts:
    """The stream engine. Operators on windows pay `stage` once per tick: each is a job of its own."""

    batch: float  # an empty micro-batch
    stage: float
    select: float  # per tuple
    project: float
    expand: float  # per tuple and window that holds it: window() multiplies rows by ceil(size / slide)
    pane_stage: float  # per tick: the jobs of a sliding aggregate by panes
    pane_row: float  # per tuple, into its pane
    pane_group: float  # per pane and group, when a tick combines panes
    aggregate: float  # per tuple of a relation that is new at each tick
    join_in: float
    join_out: float
    stored: float  # per stored tuple read at a tick


@dataclass(frozen=True, slots=True)
class DbCosts:
    """A database. A DB-op pays `execution` once per run of its SQL, whatever it holds."""

    execution: float
    select: float  # per tuple scanned
    project: float
    aggregate: float
    join_in: float
    join_out: float
    send: Transfer
    fetch: Transfer


@dataclass(frozen=True, slots=True)
class CalibrationProfile:
    version: int
    name: str
    machine: str
    measured: str  # ISO date
    units: str  # what the runtime runs on its own: operator, engine or loop
    batch_interval: float  # seconds of stream per micro-batch
    spe: SpeCosts
    databases: dict[str, DbCosts]
    aggregate_weights: dict[str, float]  # by function, relative to count; 1 where absent
    basis: dict[str, str] = field(default_factory=dict)

    def aggregate_weight(self, functions: tuple[str, ...]) -> float:
        """The first function pays its scan, each further one a third of its own: the scan is shared."""
        weights = sorted((self.aggregate_weights.get(name, 1.0) for name in functions), reverse=True)
        return weights[0] + sum(weights[1:]) / 3 if weights else 1.0


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
