"""Every plan of every query gives the oracle's rows at every tick, on real Spark, DuckDB and PostgreSQL."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from connectors.spark.native import native_problem
from connectors.spark.sliding import Form
from optimizer.algebra import operators
from optimizer.engines import SPARK
from optimizer.errors import PenstockError
from optimizer.optimize import Optimized, Options, optimize
from optimizer.physical import PhysicalPlan, Where
from optimizer.pinned import everywhere, placed
from tests.postgres_server import postgres_url
from tests.recorded import START, random_query
from tests.running import DELAY, END, Recording, deploy, differences
from tests.spark_fixture import interpreted

EXAMPLES = Path(__file__).parent.parent / "examples" / "smartplug"
WRITTEN = {
    "rows": "SELECT a.k, sum(a.v) AS x, count(*) AS n FROM s [ROWS 20 SLIDE 3] AS a WHERE a.g > 0 GROUP BY a.k",
    "rows and time": "SELECT a.k, count(*) AS n, max(b.w) AS m FROM s [ROWS 12 SLIDE 4] AS a "
    "JOIN r [RANGE 5 SECONDS SLIDE 2 SECONDS] AS b ON a.k = b.k GROUP BY a.k",
    "every function": "SELECT a.g, count(*) AS n, count(a.v) AS c, sum(a.n) AS s, avg(a.v) AS m, min(a.v) AS lo, "
    "max(a.name) AS hi, stddev(a.v) AS sd, count(DISTINCT a.k) AS d FROM s [RANGE 6 SECONDS SLIDE 2 SECONDS] AS a "
    "GROUP BY a.g",
    "one row a tick": "SELECT count(*) AS n, sum(a.v) AS x FROM s [RANGE 3 SECONDS SLIDE 1 SECONDS] AS a",
    "stored table first": "SELECT d.label, count(a.k) AS n FROM d LEFT JOIN s [RANGE 3 SECONDS SLIDE 2 SECONDS] AS a "
    "ON a.k = d.k GROUP BY d.label",
    "four joins": "SELECT RSTREAM a.v, b.w, d.label, e.title, c.n FROM s [RANGE 2 SECONDS SLIDE 1 SECONDS] AS a "
    "JOIN r [RANGE 3 SECONDS SLIDE 1 SECONDS] AS b ON a.k = b.k JOIN d ON d.k = b.k JOIN e ON e.grp = d.grp "
    "JOIN s [RANGE 1 SECONDS SLIDE 1 SECONDS] AS c ON c.g = b.g",
    "slide beyond the size": "SELECT a.g, max(a.v) AS x FROM s [RANGE 2 SECONDS SLIDE 3 SECONDS] AS a GROUP BY a.g",
}
QUERIES = {
    **{path.stem: path.read_text().replace("MINUTE", "SECOND") for path in sorted(EXAMPLES.glob("cq?.sql"))},
    **WRITTEN,
    **{f"random {seed}": random_query(seed) for seed in range(60)},
}
SOME = ("cq1", "cq3", "rows and time", "every function", "random 2", "random 9")
COMPILED = ("cq1", "every function")  # Spark interprets the others: each plan is run once, on few rows
RANDOM_PLACEMENTS = 5


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return Recording.make(tmp_path_factory.mktemp("recording"))


def plans(optimized: Optimized, seed: str, placements: int) -> list[tuple[str, PhysicalPlan, Form]]:
    """All in one engine, the optimal one, and some at random."""
    found = [
        ("spe pane", everywhere(optimized, Where.SPE), Form.PANE),
        ("spe expand", everywhere(optimized, Where.SPE), Form.EXPAND),
        ("db", everywhere(optimized, Where.DB), Form.PANE),
        ("optimal", optimized.plan, Form.PANE),
    ]
    if placements > 1:
        found.append(("db, windows read anew", without_panes(everywhere(optimized, Where.DB)), Form.PANE))
    for i in range(placements):
        random = Random(f"{seed} {i}")
        nodes = operators(optimized.plan.tree)
        engine = optimized.database
        in_db = [SPARK.lacks(n) is not None or (random.random() < 0.5 and engine.lacks(n) is None) for n in nodes]
        found.append((f"random {i}", placed(optimized, in_db), random.choice(list(Form))))
    once = {
        (plan.id, form if form is Form.EXPAND else "", tuple(o.form for o in plan.operators)): (name, plan, form)
        for name, plan, form in reversed(found)
    }
    return list(once.values())


def without_panes(plan: PhysicalPlan) -> PhysicalPlan:
    """The same plan with windows that the database reads anew at each tick."""
    return replace(plan, operators=tuple(replace(o, form=None) if o.mig else o for o in plan.operators))


def check(name: str, engine: str, spark: SparkSession, recording: Recording, directory: Path, placements: int) -> None:
    sql = QUERIES[name]
    optimized = optimize(sql, recording.catalog, Options(database=engine))
    url = postgres_url() if engine == "postgres" else None
    for number, (how, plan, form) in enumerate(plans(optimized, name, placements)):
        outcome = deploy(spark, recording, optimized, plan, directory / str(number), form, url)
        wrong = differences(recording, sql, outcome.rows)
        assert not wrong, f"{name}, {how}, {form} on {engine}: {wrong}\n{sql}"


def as_worth(name: str, spark: SparkSession) -> AbstractContextManager[None]:
    return nullcontext() if name in COMPILED else interpreted(spark)


@pytest.mark.parametrize("name", SOME)
def test_some_plans_on_duckdb(name: str, spark: SparkSession, recording: Recording, tmp_path: Path) -> None:
    with as_worth(name, spark):
        check(name, "duckdb", spark, recording, tmp_path, placements=1)


@pytest.mark.parametrize("name", ["cq1", "random 2"])
def test_some_plans_on_postgres(name: str, spark: SparkSession, recording: Recording, tmp_path: Path) -> None:
    with interpreted(spark):
        check(name, "postgres", spark, recording, tmp_path, placements=0)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["duckdb", "postgres"])
@pytest.mark.parametrize("name", QUERIES)
def test_every_plan(name: str, engine: str, spark: SparkSession, recording: Recording, tmp_path: Path) -> None:
    with as_worth(name, spark):
        check(name, engine, spark, recording, tmp_path, RANDOM_PLACEMENTS)


@pytest.mark.parametrize("name", ["cq1"])
def test_native(name: str, spark: SparkSession, recording: Recording, tmp_path: Path) -> None:
    check_native(name, spark, recording, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_native_where_it_applies(name: str, spark: SparkSession, recording: Recording, tmp_path: Path) -> None:
    optimized = optimize(QUERIES[name], recording.catalog)
    refused = native_problem(optimized.plan.tree, recording.catalog) is not None
    with as_worth(name, spark), pytest.raises(PenstockError) if refused else nullcontext():
        check_native(name, spark, recording, tmp_path)


def check_native(name: str, spark: SparkSession, recording: Recording, directory: Path) -> None:
    optimized = optimize(QUERIES[name], recording.catalog)
    plan = everywhere(optimized, Where.SPE)
    outcome = deploy(spark, recording, optimized, plan, directory, native=True)
    # Without an aggregate Spark gives a tuple to all its windows as it comes, also to those that are not complete yet.
    complete = {tick: rows for tick, rows in outcome.rows.items() if tick <= END - timedelta(seconds=DELAY)}
    # Spark's watermark follows the tuples that pass the selections: the last ticks may wait for more of them.
    until = END if name == "cq1" else max(complete, default=START)
    wrong = differences(recording, QUERIES[name], complete, until)
    assert not wrong, f"{name}: {wrong}"
