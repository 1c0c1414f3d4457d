"""What a window that is many times its slide costs: u by size over slide, for each way of running one aggregate.

The average load of every plug, each second, over windows of 1 second to an hour, at one rate. Spark's window() copies
a tuple into every window that holds it, a database reads the whole window at every tick, or combines panes at it, as
Spark does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from service.bench.lab import Job, Lab
from service.bench.plans import ALL_IN_SPARK, Candidate, Kind, Query, candidate, in_spark

RATIOS = (1, 10, 60, 300, 3600)
RATE = 2_000.0
_SQL = """SELECT p.house_id, p.household_id, p.plug_id, AVG(p.value) AS avg_load
FROM plugs [RANGE {seconds} SECONDS SLIDE 1 SECOND] AS p
WHERE p.property = 1
GROUP BY p.house_id, p.household_id, p.plug_id
"""


@dataclass(frozen=True)
class Row:
    database: str
    kind: Kind
    ratio: int
    in_spark: tuple[str, ...]
    u: float | None  # not measured: the budget did not reach
    censored: bool
    filled: bool


@dataclass(frozen=True)
class WindowSlide:
    rate: float
    rows: tuple[Row, ...]
    left_out: tuple[str, ...]


def run(lab: Lab, databases: Sequence[str], ratios: Sequence[int] = RATIOS, rate: float = RATE) -> WindowSlide:
    found: dict[tuple[str, Kind, int], tuple[Query, Candidate]] = {}
    for kind in (Kind.OPTIMAL, Kind.DB, Kind.PANE, Kind.EXPAND, Kind.NATIVE):
        for ratio in ratios:
            query = Query(f"window/slide {ratio}", _SQL.format(seconds=ratio))
            for database in databases[:1] if kind in ALL_IN_SPARK else databases:
                found[database, kind, ratio] = query, candidate(query.optimized(rate, database), kind)
    jobs = [
        Job(f"{kind} {database} {ratio}", partial(_measure, lab, found, database, kind, ratio, rate))
        for database, kind, ratio in found
    ]
    left_out = lab.run("window/slide", jobs)
    rows = []
    for (database, kind, ratio), (query, one) in found.items():
        trial = lab.trials.get((query.sql, one.id, rate))
        measured = (trial.u, trial.censored, trial.filled) if trial else (None, False, False)
        rows.append(Row(database, kind, ratio, in_spark(one.plan), *measured))
    return WindowSlide(rate, tuple(rows), left_out)


def _measure(
    lab: Lab,
    found: dict[tuple[str, Kind, int], tuple[Query, Candidate]],
    database: str,
    kind: Kind,
    ratio: int,
    rate: float,
) -> None:
    """Once a way of running it was given up, longer windows would only be given up later."""
    for (d, k, shorter), (query, one) in found.items():
        known = lab.trials.get((query.sql, one.id, rate))
        if (d, k) == (database, kind) and shorter < ratio and known is not None and known.censored:
            return
    lab.trial(*found[database, kind, ratio], rate)
