"""The plan goldens: CQ1 to CQ6 at four rates on both databases, as text. `make goldens` writes them anew."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from optimizer.explain.api import explain
from optimizer.optimize import Options

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples" / "smartplug"
DIRECTORY = Path(__file__).parent / "goldens"
RATES = {"1k": 1_000.0, "10k": 10_000.0, "20k": 20_000.0, "40k": 40_000.0}


@dataclass(frozen=True)
class Golden:
    query: str
    database: str
    rate: str

    @property
    def path(self) -> Path:
        return DIRECTORY / f"{self.query}_{self.database}_{self.rate}.txt"

    def text(self) -> str:
        options = Options(database=self.database, rates={"plugs": RATES[self.rate]})
        sql = (EXAMPLES / f"{self.query}.sql").read_text()
        return explain(sql, (EXAMPLES / "catalog.sql").read_text(), options, why_not=True)


def goldens() -> Iterator[Golden]:
    for i in range(1, 7):
        for database in ("duckdb", "postgres"):
            for rate in RATES:
                yield Golden(f"cq{i}", database, rate)


if __name__ == "__main__":
    DIRECTORY.mkdir(exist_ok=True)
    for golden in goldens():
        golden.path.write_text(golden.text())
    print(f"{len(list(goldens()))} plans written to {DIRECTORY.name}/")
