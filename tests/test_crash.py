"""A process that is killed anywhere leaves every tick in the output once, with the right rows, when it is run again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash import Harness
from tests.crash_points import POINTS

# Point, database and number of the run, which says workload and sink: MIG and DuckDB, Spark's state and Parquet, row
# windows and DuckDB, MIG and PostgreSQL.
FEW = [
    ("after result", "duckdb", 8),
    ("after spark state", "duckdb", 2),
    ("before query", "duckdb", 3),
    ("commit lost", "postgres", 7),
]
REST = [(point, database, 0) for database in ("duckdb", "postgres") for point in POINTS]


@pytest.mark.parametrize(
    ("point", "database", "number"),
    [*FEW, *(pytest.param(*run, marks=pytest.mark.slow) for run in REST if run not in FEW)],
)
def test_every_tick_is_there_once(point: str, database: str, number: int, tmp_path: Path) -> None:
    run = Harness(tmp_path, database).run(point, number)
    assert run.right, run
    assert run.kills >= 1, f"it never was at the point: {run}"
