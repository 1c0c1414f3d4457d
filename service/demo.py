"""`penstock demo`: CQ1 on the smart-plug stream, planned, running on both engines, and against Spark alone.

First it runs for twenty seconds in real time and shows some results. Then the chosen plan, the all-Spark plan and
Spark's own query each take tuples as fast as they can, over windows filled beforehand, in the same session.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from connectors.spark.session import spark_session
from connectors.spark.sliding import Form
from migration.deployment import Deployment
from migration.metrics import BatchReport
from optimizer.explain.api import Format, render
from optimizer.explain.explanation import explain_plan
from optimizer.optimize import Optimized
from optimizer.physical import PhysicalPlan, Where
from optimizer.pinned import everywhere
from service.bench.live import Workload, deployed, measure
from service.panel import Panel

RATE = 20_000.0
WINDOW = 300.0  # seconds
NATIVE_RATE = 100.0  # Spark's own query copies every tuple 300 times: it would not end a batch at more
SHOWN = 5  # rows of a result


def demo(seconds: float) -> None:
    console = Console(highlight=False)
    workload = Workload.example("cq1", RATE)
    optimized = workload.optimized()
    console.print(f"CQ1 on the smart-plug stream at {RATE:,.0f} tuples/s:\n\n{workload.sql}", markup=False)
    sys.stdout.write(render(explain_plan(optimized, False, False, None), Format.TEXT, False))
    console.print("\nstarting Spark; the windows are filled with five minutes of tuples", markup=False)
    spark = spark_session("local[*]")
    try:
        _live(spark, workload, optimized, seconds, console)
        _compare(spark, optimized, console)
    finally:
        spark.stop()


def _live(spark: SparkSession, workload: Workload, optimized: Optimized, seconds: float, console: Console) -> None:
    reports: list[BatchReport] = []
    panel = Panel()
    panel.plan(optimized, optimized.plan, "optimal")
    with deployed(spark, workload, optimized.plan, reports, WINDOW, trigger=0.5) as deployment:
        assert isinstance(deployment, Deployment)
        deployment.start()
        deadline, shown = monotonic() + seconds, 0
        with panel:
            while monotonic() < deadline and not deployment.wait(0.1):
                for report in reports[shown:]:
                    panel.batch(report)
                shown = len(reports)
        deployment.stop()
        _result(deployment, console)


def _result(deployment: Deployment, console: Console) -> None:
    """A few rows of the last tick."""
    table = Table(title="the last tick, plugs with the most high loads")
    directory = deployment.settings.sink.removeprefix("parquet:")
    found = sorted(Path(directory).glob("*.parquet"))
    if not found:
        console.print("no tick has fired yet; run it for longer")
        return
    rows = pq.read_table(found[-1])
    newest = rows.filter(pc.field("tick") == pc.max(rows["tick"])).sort_by([("high_loads", "descending")])
    for name in rows.column_names:
        table.add_column(name, justify="right")
    for row in newest.slice(0, SHOWN).to_pylist():
        table.add_row(*map(str, row.values()))
    console.print(table)


def _compare(spark: SparkSession, optimized: Optimized, console: Console) -> None:
    spe = everywhere(optimized, Where.SPE)
    console.print("\nas fast as it goes, over the same full windows:")
    chosen = _speed(spark, optimized.plan, RATE)
    console.print(f"  the chosen plan         {chosen:>10,.0f} tuples/s")
    panes = _speed(spark, spe, RATE)
    console.print(f"  all in Spark, by panes  {panes:>10,.0f} tuples/s   {chosen / panes:,.0f} times less")
    native = _speed(spark, spe, NATIVE_RATE, native=True)
    console.print(f"  Spark's own query       {native:>10,.0f} tuples/s   {chosen / native:,.0f} times less")


def _speed(spark: SparkSession, plan: PhysicalPlan, rate: float, native: bool = False) -> float:
    workload = replace(Workload.example("cq1", rate, "full"), batch_seconds=1.0)  # one tick a batch
    reports: list[BatchReport] = []
    filled = 0.0 if native else WINDOW
    with deployed(spark, workload, plan, reports, filled, 0.0, native, Form.PANE) as deployment:
        return measure(deployment, workload, reports, warm_up=2.0, seconds=6.0, at_most=30.0).tuples_per_second
