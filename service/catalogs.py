"""Catalogs as the commands read them: the SQL file, and the statistics that stand beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from optimizer.catalog import Catalog
from optimizer.sql.ddl import parse_catalog
from optimizer.statistics import read_statistics, statistics_path, with_statistics
from service.errors import read_text

UseStatistics = Annotated[
    bool, typer.Option("--statistics/--no-statistics", help="Use what penstock analyze found: CATALOG.stats.json.")
]


def read_catalog(path: Path, statistics: bool = True) -> Catalog:
    """The catalog with the figures of its statistics file, where there is one and it is wanted."""
    catalog = parse_catalog(read_text(path, "the catalog"))
    beside = statistics_path(path)
    if not statistics or str(path) == "-" or not beside.exists():
        return catalog
    return with_statistics(catalog, read_statistics(beside), str(beside))
