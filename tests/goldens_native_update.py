"""The scripts of the native emission for CQ1 to CQ6. `python -m tests.goldens_native_update` writes them anew."""

from __future__ import annotations

from pathlib import Path

from connectors.spark.native import native_script
from optimizer.optimize import read_query
from optimizer.sql.ddl import parse_catalog
from tests.goldens import EXAMPLES

DIRECTORY = Path(__file__).parent / "goldens_native"
NAMES = [f"cq{i}" for i in range(1, 7)]


def script(name: str) -> str:
    sql, catalog = (EXAMPLES / f"{name}.sql").read_text(), parse_catalog((EXAMPLES / "catalog.sql").read_text())
    plan, _ = read_query(sql, catalog)
    return native_script(plan, catalog, sql)


def path(name: str) -> Path:
    return DIRECTORY / f"{name}.py.txt"


if __name__ == "__main__":
    DIRECTORY.mkdir(exist_ok=True)
    for each in NAMES:
        path(each).write_text(script(each))
    print(f"{len(NAMES)} scripts written to {DIRECTORY.name}/")
