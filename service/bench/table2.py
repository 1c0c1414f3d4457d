"""Optimization times and plans examined for n-way joins and for CQ1 to CQ6 (paper 001, Tables 2 and 3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from json import dumps
from statistics import median
from time import perf_counter

from rich.console import Group
from rich.table import Table

from costmodel.profile import default_profile
from optimizer.costing import Costing
from optimizer.engines import database
from optimizer.hints import Hints
from optimizer.optimize import Options, logical_plans, read_query
from optimizer.physical import placement_problem
from optimizer.placement.enumeration import enumerate_placements
from optimizer.placement.exact import place
from optimizer.placement.problem import Units
from optimizer.sql.ddl import parse_catalog
from service.bench.nway import TABLE2_SHAPES, nway_query, smartplug

PAPER = {2: (0.9, 11, 12.3), 5: (68.5, 312, 908.6), 8: (100.5, 8411, 61335.5)}
RATE = 20_000.0
WIDE = 200
ENUMERABLE = 24  # operators up to which the paper's enumeration is run


@dataclass(frozen=True, slots=True)
class Row:
    """One query: times are medians in milliseconds."""

    query: str
    operators: int
    plans: int  # without pruning, 2^operators
    examined: int | None
    same_optimum: bool | None  # of both searches
    phase_one_ms: float
    paper_search_ms: float | None
    exact_ms: float


@dataclass(frozen=True, slots=True)
class Report:
    runs: int
    rows: tuple[Row, ...]


def run(runs: int = 10) -> Report:
    rows = [_row(f"{n}-way", nway_query(n), TABLE2_SHAPES[n], runs) for n in TABLE2_SHAPES]
    rows.append(_row(f"{WIDE}-way", nway_query(WIDE), None, max(3, runs // 3)))
    rows += [_row(f"CQ{i}", smartplug(f"cq{i}.sql"), None, runs) for i in range(1, 7)]
    return Report(runs, tuple(rows))


def _row(name: str, sql: str, shape: str | None, runs: int) -> Row:
    """Phase one is timed as it is, and then forced into the paper's shape, on which phase two is timed."""
    catalog = parse_catalog(smartplug("catalog.sql")).with_rates({"plugs": RATE})
    written, _ = read_query(sql, catalog)
    options = Options(units=Units.OPERATOR)
    engine = database(options.database)

    def costing() -> Costing:
        return Costing.of(written, catalog, default_profile(), engine)

    phase_one = _median_ms(lambda: logical_plans(written, costing(), catalog, options), runs)
    forced = Options(units=Units.OPERATOR, hints=Hints(join_order=shape))
    model = costing()
    tree = logical_plans(written, model, catalog, forced)[0].logical.plan
    problem = placement_problem(tree, model, Units.OPERATOR)
    exact = place(problem)
    exact_ms = _median_ms(lambda: place(problem), runs)
    count = len(problem.sites)
    if count > ENUMERABLE:
        return Row(name, count, 2**count, None, None, phase_one, None, exact_ms)
    enumerated = enumerate_placements(problem)
    paper_ms = _median_ms(lambda: enumerate_placements(problem), runs)
    same = abs(enumerated.cost.utilization - exact.cost.utilization) <= 1e-9 * exact.cost.utilization
    return Row(name, count, 2**count, enumerated.examined, same, phase_one, paper_ms, exact_ms)


def _median_ms(work: Callable[[], object], runs: int) -> float:
    times = []
    for _ in range(runs):
        started = perf_counter()
        work()
        times.append((perf_counter() - started) * 1000)
    return median(times)


def render(report: Report) -> Group:
    table = Table(title=f"Optimization of n-way joins and CQ1 to CQ6 (medians of {report.runs} runs, ms)")
    for column in ("query", "operators", "plans", "examined", "same optimum", "phase one", "phase two, paper's search"):
        table.add_column(column, justify="left" if column == "query" else "right")
    table.add_column("phase two, exact", justify="right")
    for row in report.rows:
        table.add_row(
            row.query,
            str(row.operators),
            str(row.plans) if row.plans < 10**9 else f"2^{row.operators}",
            "-" if row.examined is None else str(row.examined),
            "-" if row.same_optimum is None else "yes" if row.same_optimum else "NO",
            f"{row.phase_one_ms:.2f}",
            "-" if row.paper_search_ms is None else f"{row.paper_search_ms:.2f}",
            f"{row.exact_ms:.3f}",
        )
    paper = Table(title="The paper's figures (Table 2, ms)")
    for column in ("query", "phase one", "examined", "phase two"):
        paper.add_column(column, justify="right")
    for n, (one, examined, two) in PAPER.items():
        paper.add_row(f"{n}-way", str(one), str(examined), str(two))
    return Group(table, paper)


def to_json(report: Report) -> str:
    return dumps(asdict(report), indent=2, default=str) + "\n"
