"""How fast MIGs in DuckDB are on this machine: the smart-plug queries over full five-minute windows.

Two questions per query. At a given rate in real time: does the loop keep up, and how busy is it? And with tuples as
fast as they are read, at what rate of event time does it still process a second of stream in less than a second? The
second is asked at rising rates until the answer is no. CQ1 also runs as Spark's own query in the same session.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass

from pyspark.sql import SparkSession
from rich.table import Table

from connectors.spark.session import spark_session
from migration.metrics import BatchReport
from optimizer.physical import PhysicalPlan, Where
from optimizer.pinned import everywhere
from service.bench.live import Measured, Workload, deployed, measure

QUERIES = ("cq1", "cq3", "cq4", "cq5", "cq6")
WINDOW = 300.0  # seconds, filled beforehand
RATE = 100_000.0
TRIGGER = 2.0  # seconds between batches in real time
LADDER = (250_000.0, 400_000.0, 600_000.0)
NATIVE_RATES = (400.0, 100.0)


@dataclass(frozen=True)
class Step:
    rate: float
    speed: float  # tuples per second processed, windows as full as they are at `rate`
    sustained: bool


@dataclass(frozen=True)
class Row:
    query: str
    in_spark: tuple[str, ...]
    real: Measured
    ladder: tuple[Step, ...]

    @property
    def highest(self) -> float:
        return _highest(self.ladder)


@dataclass(frozen=True)
class Report:
    rows: tuple[Row, ...]
    native: tuple[Step, ...]  # CQ1 as one Spark query

    @property
    def native_highest(self) -> float:
        return _highest(self.native)

    @property
    def ratio(self) -> float | None:
        first = next((row for row in self.rows if row.query == "cq1"), None)
        return first.highest / self.native_highest if first and self.native_highest else None


def _highest(steps: tuple[Step, ...]) -> float:
    """The highest rate known to be sustained. A speed below the rate is one as well: its windows would be smaller."""
    return max((min(s.rate, s.speed) for s in steps), default=0.0)


def run(
    queries: tuple[str, ...], seconds: float, highest: float, with_native: bool, say: Callable[[str], None]
) -> Report:
    """`highest` is where the search for the highest rate ends, because filling its windows takes minutes."""
    spark = spark_session("local[*]", {"spark.sql.streaming.numRecentProgressUpdates": "1000"})
    try:
        rows = []
        _step(spark, queries[0], LADDER[0], seconds)  # warms the engines up, and the memory they are given
        for name in queries:
            ladder = _ladder(spark, name, seconds, highest, say)
            workload = Workload.example(name, RATE)
            plan = workload.optimized().plan
            reports: list[BatchReport] = []
            with deployed(spark, workload, plan, reports, WINDOW, TRIGGER) as deployment:
                real = measure(deployment, workload, reports, warm_up=12.0, seconds=seconds)
            say(f"{name}: {RATE:,.0f} tuples/s in real time: busy {real.busy:.0%}")
            rows.append(Row(name, _in_spark(plan), real, ladder))
        native = _native(spark, seconds, say) if with_native else ()
        return Report(tuple(rows), native)
    finally:
        spark.stop()


def _in_spark(plan: PhysicalPlan) -> tuple[str, ...]:
    return tuple(o.id for o in plan.operators if o.where is Where.SPE)


def _ladder(
    spark: SparkSession, name: str, seconds: float, highest: float, say: Callable[[str], None]
) -> tuple[Step, ...]:
    steps: list[Step] = []
    for rate in (r for r in LADDER if r <= highest):
        steps.append(_step(spark, name, rate, seconds))
        say(f"{name}: windows of {rate:,.0f} tuples/s processed at {steps[-1].speed:,.0f} tuples/s")
        if not steps[-1].sustained:
            break
    return tuple(steps)


def _step(spark: SparkSession, name: str, rate: float, seconds: float) -> Step:
    workload = Workload.example(name, rate, "full")
    reports: list[BatchReport] = []
    with deployed(spark, workload, workload.optimized().plan, reports, WINDOW, trigger=0.0) as deployment:
        found = measure(deployment, workload, reports, warm_up=12.0, seconds=seconds)
    return Step(rate, found.tuples_per_second, found.tuples_per_second >= rate)


def _native(spark: SparkSession, seconds: float, say: Callable[[str], None]) -> tuple[Step, ...]:
    """CQ1 by Spark's window(); from rates it falls behind at, down to one that it keeps up with."""
    steps: list[Step] = []
    for rate in NATIVE_RATES:
        workload = Workload.example("cq1", rate, "full")
        optimized = workload.optimized()
        plan = everywhere(optimized, Where.SPE)
        reports: list[BatchReport] = []
        with deployed(spark, workload, plan, reports, trigger=0.0, native=True) as deployment:
            found = measure(deployment, workload, reports, warm_up=5.0, seconds=2 * seconds)
        steps.append(Step(rate, found.tuples_per_second, found.tuples_per_second >= rate))
        say(f"cq1 native: windows of {rate:,.0f} tuples/s processed at {found.tuples_per_second:,.0f} tuples/s")
        if steps[-1].sustained:
            break
    return tuple(steps)


def render(report: Report) -> Table:
    table = Table(title="MIGs in DuckDB, windows of 5 minutes filled beforehand")
    for column in (
        "query",
        "in Spark",
        f"busy at {RATE:,.0f}/s, a batch every {TRIGGER:g} s",
        "behind",
        "spark",
        "transfer",
        "database",
        "sustained",
    ):
        table.add_column(column, justify="left" if column in ("query", "in Spark") else "right")
    for row in report.rows:
        shares = [f"{row.real.shares[name]:.0%}" for name in ("spark", "transfer", "database")]
        behind = f"{row.real.behind_first:.1f} → {row.real.behind_last:.1f} s"
        table.add_row(
            row.query, ", ".join(row.in_spark), f"{row.real.busy:.0%}", behind, *shares, f"{row.highest:,.0f}/s"
        )
    if report.ratio is not None:
        table.caption = f"CQ1 as one Spark query: {report.native_highest:,.0f} tuples/s, {report.ratio:,.0f} times less"
    return table


def to_json(report: Report) -> str:
    more = {"native_highest": report.native_highest, "ratio": report.ratio}
    highest = {row.query: row.highest for row in report.rows}
    return json.dumps(asdict(report) | more | {"highest": highest}, indent=2)
