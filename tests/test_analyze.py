"""explain --analyze: plans run for a moment, and every operator's rows against a count of the same tuples."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import isfinite
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from connectors.postgres_session import Session
from connectors.spark.sliding import Form
from connectors.spark.smartplug import smartplug_rows
from costmodel.profile import default_profile
from migration.analysis import Analysis, Pair
from migration.analyze import Trial, analyze
from migration.measurements import measurements
from migration.observations import Observation, append, read
from optimizer.errors import PenstockError
from optimizer.hints import Hints
from optimizer.optimize import Options, optimize
from optimizer.physical import PhysicalPlan, Where
from optimizer.sql.ddl import parse_catalog
from service.analyze import render_analysis
from service.cli import app
from tests.postgres_server import postgres_url
from tests.spark_fixture import interpreted

EXAMPLES = Path(__file__).parents[1] / "examples" / "smartplug"
START = datetime(2024, 1, 1)
RATE, SIZE, DELAY = 200, 2, 2  # tuples/s; seconds
ALL = 2000  # tuples
STREAM = f"connector = 'smartplug', rate = {RATE}, pace = 'full', max_per_batch = 400"
CATALOG = (
    (EXAMPLES / "catalog.sql").read_text().replace("connector = 'smartplug', rate = 2000", f"{STREAM}, limit = {ALL}")
)
CQ1 = (EXAMPLES / "cq1.sql").read_text().replace("5 MINUTES", f"{SIZE} SECONDS")
ALL_SPE = dict.fromkeys(("plugs", "agg1", "join1", "agg2"), Where.SPE)
PLANS: dict[str, dict[str, Where]] = {
    "optimal": {},
    "spe": ALL_SPE,
    "crossing": ALL_SPE | {"join1": Where.DB},  # out of Spark into the database and back
}


@dataclass(frozen=True)
class Run:
    plan: PhysicalPlan
    analysis: Analysis
    observation: Observation
    left_behind: list[str]


def measure(
    spark: SparkSession,
    sql: str = CQ1,
    catalog: str = CATALOG,
    force: dict[str, Where] | None = None,
    database: str = "duckdb",
    form: Form = Form.PANE,
    url: str | None = None,
) -> Run:
    """Runs until all tuples are read, however long this machine takes for that."""
    seen: list[int] = []
    trial = Trial(60.0, form, url, on_batch=lambda r: seen.append(r.tuples), enough=lambda: max(seen, default=0) >= ALL)
    optimized = optimize(sql, catalog, Options(database=database, hints=Hints(force or {})))
    with tempfile.TemporaryDirectory(prefix="penstock-test-") as place:
        before, tempfile.tempdir = tempfile.tempdir, place
        try:
            analysis, observation = analyze(spark, optimized, trial)
        finally:
            tempfile.tempdir = before
        left = [name for name in os.listdir(place) if name.startswith("penstock")]
    return Run(optimized.plan, analysis, observation, left)


@pytest.fixture(
    scope="module", params=[p if i == 0 else pytest.param(p, marks=pytest.mark.slow) for i, p in enumerate(PLANS)]
)
def cq1(request: pytest.FixtureRequest, spark: SparkSession) -> Run:
    with interpreted(spark):
        return measure(spark, force=PLANS[request.param])


def counted(spark: SparkSession, tuples: int) -> dict[str, int]:
    """The rows of CQ1's operators at the last tick of so many tuples, in plain SQL."""
    plugs = smartplug_rows(spark, 0, tuples, {"rate": float(RATE)}).toArrow()
    newest: datetime = max(plugs.column("ts").to_pylist())
    tick = newest.replace(microsecond=0) - timedelta(seconds=DELAY)
    with duckdb.connect() as connection:
        connection.register("arrived", plugs)
        window = f"(SELECT * FROM arrived WHERE ts >= TIMESTAMP '{tick - timedelta(seconds=SIZE)}' AND ts < '{tick}')"
        keys = "house_id, household_id, plug_id"
        connection.execute(f"CREATE VIEW w AS SELECT * FROM {window} WHERE property = 1")
        connection.execute(f"CREATE VIEW m AS SELECT {keys}, MAX(value) AS top FROM w GROUP BY ALL")
        connection.execute(f"CREATE VIEW j AS SELECT * FROM w JOIN m USING ({keys}) WHERE value > 0.9 * top")
        queries = {
            "p": f"SELECT * FROM {window} AS p",
            "select.p": "FROM w",
            "agg1": "FROM m",
            "join1": "FROM j",
            "agg2": f"SELECT DISTINCT {keys} FROM j",
        }
        return {name: len(connection.sql(sql).fetchall()) for name, sql in queries.items()}


def pairs(analysis: Analysis) -> list[Pair]:
    found = [p for o in analysis.operators for p in (o.rate_in, o.rate_out, o.size, o.u)]
    found += [p for leaf in analysis.leaves for p in (leaf.rate, leaf.size)] + [unit.u for unit in analysis.units]
    return found + [p for mig in analysis.migs for p in (mig.u, mig.send, mig.run, mig.fetch)] + [analysis.loop]


def test_rows_are_those_that_plain_sql_counts(cq1: Run, spark: SparkSession) -> None:
    expected, operators = counted(spark, cq1.analysis.tuples), {o.id: o for o in cq1.analysis.operators}
    for name in ("agg1", "join1", "agg2"):
        assert operators[name].size.measured == expected[name] > 0, name
        assert operators[name].rate_out.measured == pytest.approx(expected[name], rel=0.2)  # a tick a second
    for name in ("select.p", "select.q"):
        select = operators[name]
        assert select.rate_out.measured == pytest.approx(select.rate_in.measured / 2, rel=0.01)
        assert select.rate_in.measured == pytest.approx(RATE, rel=0.01)
        assert select.size.measured == pytest.approx(expected["select.p"], rel=0.02)
    for leaf in cq1.analysis.leaves:
        assert leaf.size.measured == pytest.approx(expected["p"], rel=0.02)
        assert leaf.filled == 1.0


def test_every_figure_is_finite_and_every_unit_is_there(cq1: Run) -> None:
    found = pairs(cq1.analysis)
    assert all(isfinite(p.estimated) and p.measured >= 0 and 1 <= p.q_error < 1e9 for p in found), found
    assert [u.id for u in cq1.analysis.units] == [u.id for u in cq1.plan.units]
    assert all(u.u.measured > 0 for u in cq1.analysis.units)
    assert [o.id for o in cq1.analysis.operators] == [o.id for o in cq1.plan.operators]
    assert [m.id for m in cq1.analysis.migs] == [m.id for m in cq1.plan.migs]
    busy = {u.id: u.u.measured for u in cq1.analysis.units}["loop"]
    assert 0 < cq1.analysis.loop.measured <= busy * 1.001
    for mig in cq1.analysis.migs:
        assert mig.u.measured == pytest.approx(mig.send.measured + mig.run.measured + mig.fetch.measured)
    timed = {o.id: o.u.measured for o in cq1.analysis.operators if o.engine == "spark" and o.kind != "select"}
    assert all(u > 0 for u in timed.values())


def test_nothing_is_left_behind(cq1: Run) -> None:
    assert cq1.left_behind == []


def test_the_text_has_a_line_per_operator_and_unit(cq1: Run) -> None:
    text = render_analysis(cq1.analysis)
    head, operators, units, *_ = text.split("\n\n")
    assert head.startswith("run for ")
    assert f"{cq1.analysis.tuples:,} tuples in" in head
    title, *lines = operators.split("\n")
    assert title.split()[:2] == ["operator", "engine"]
    assert [line.split()[0] for line in lines] == ["p", "q", *(o.id for o in cq1.plan.operators)]
    assert all(line.rstrip().endswith("x") for line in lines)
    for line, o in zip(lines[2:], cq1.plan.operators, strict=True):
        assert ("spark" if o.where is Where.SPE else f"duckdb {o.mig}") in line
    assert [line.split()[0] for line in units.split("\n")[1:-2]] == [u.id for u in cq1.plan.units]
    assert ("mig1: u " in text) == bool(cq1.plan.migs)


def test_observations_are_lines_that_can_be_read_again(cq1: Run, tmp_path: Path) -> None:
    path = tmp_path / "seen.jsonl"
    append(path, cq1.observation)
    append(path, cq1.observation)
    lines = path.read_text().splitlines()
    assert [Observation.model_validate_json(line) for line in lines] == [cq1.observation] * 2
    assert list(read(path)) == [cq1.observation] * 2
    seen, where = cq1.observation, {o.id: o.where for o in cq1.plan.operators}
    assert set(seen.in_database) == {name for name, engine in where.items() if engine is Where.DB}
    assert seen.forms == ({"agg1": "pane"} if where["agg1"] is Where.SPE else {})
    assert seen.parts.total > seen.parts.run + seen.parts.ticks
    assert (seen.parts.run > 0) == bool(seen.in_database)
    known = measurements([seen], default_profile())
    assert {m.kind for m in known} >= ({"arrival", "run"} if seen.in_database else {"arrival", "ticks"})
    (tmp_path / "file").write_text("")
    with pytest.raises(PenstockError, match="cannot be written"):
        append(tmp_path / "file" / "such", cq1.observation)


@pytest.mark.slow
def test_wrong_statistics_are_told_with_what_to_write(spark: SparkSession) -> None:
    wrong = CATALOG.replace("WITH (selectivity = 0.5)", "WITH (selectivity = 0.05)").replace(
        "distinct = 2125", "distinct = 9"
    )
    sql = CQ1.split("JOIN (")[1].split("\n) AS m")[0]
    run = measure(spark, sql, wrong, {"plugs": Where.SPE}, form=Form.EXPAND)
    cures = [remark.split(": ", 1)[1] for remark in run.analysis.remarks if "CREATE STATISTICS" in remark]
    expected = "CREATE STATISTICS ON plugs WHERE property = 1 WITH (selectivity = 0.5)"
    assert expected in cures
    assert any(cure.startswith("CREATE STATISTICS ON plugs (house_id, household_id, plug_id)") for cure in cures)
    assert parse_catalog(CATALOG.split("CREATE STATISTICS")[0] + "; ".join(cures)).streams["plugs"].selectivities


@pytest.mark.slow
def test_estimates_are_for_windows_as_full_as_they_were(spark: SparkSession) -> None:
    run = measure(spark, CQ1.replace(f"{SIZE} SECONDS", "1 HOUR"))
    p = run.analysis.leaves[0]
    assert p.filled < 0.01
    assert p.size.q_error == pytest.approx(1, rel=0.05)
    assert any("of the window of p" in remark for remark in run.analysis.remarks)


@pytest.mark.slow
@pytest.mark.parametrize("force", [{"join1": Where.DB}, {"plugs": Where.SPE, "join1": Where.SPE}])
def test_a_tuple_driven_query(force: dict[str, Where], spark: SparkSession) -> None:
    sql = f"""SELECT ISTREAM p.id, q.value FROM plugs [RANGE {SIZE} SECONDS] AS p
        JOIN plugs [RANGE {SIZE} SECONDS] AS q ON p.id = q.id WHERE p.property = 1"""
    run = measure(spark, sql, force=force)
    join = {o.id: o for o in run.analysis.operators}["join1"]
    assert join.rate_out.measured == pytest.approx(RATE / 2, rel=0.05)  # every tuple meets itself, half are selected
    assert join.u.measured > 0
    assert run.analysis.rows == pytest.approx(run.analysis.tuples / 2 - DELAY * RATE / 2, abs=2)


@pytest.mark.slow
def test_in_postgres_the_schema_is_dropped(spark: SparkSession) -> None:
    def schemas() -> pa.Table:
        session = Session(postgres_url(), "public")
        try:
            return session.fetch("SELECT nspname::text FROM pg_namespace ORDER BY 1", [])
        finally:
            session.close()

    before = schemas()
    run = measure(spark, database="postgres", url=postgres_url(), force={"agg1": Where.DB})
    assert "postgres" in {o.engine for o in run.analysis.operators}
    sizes = {o.id: o.size.measured for o in run.analysis.operators}
    assert sizes["agg1"] == counted(spark, run.analysis.tuples)["agg1"]
    assert schemas() == before
    assert run.left_behind == []


def test_a_run_without_a_tick_says_why(spark: SparkSession) -> None:
    optimized = optimize(CQ1, CATALOG.replace(f"limit = {ALL}", "limit = 100"))
    with pytest.raises(PenstockError, match=r"nothing was evaluated .* --for"):
        analyze(spark, optimized, Trial(0.2))


# -- the command ------------------------------------------------------------------------------------------------------


def arguments(directory: Path, *more: str) -> list[str]:
    (directory / "catalog.sql").write_text(CATALOG)
    (directory / "cq1.sql").write_text(CQ1)
    return ["explain", str(directory / "cq1.sql"), "--catalog", str(directory / "catalog.sql"), "--analyze", *more]


def test_the_command_prints_plan_and_analysis(tmp_path: Path) -> None:
    seen = tmp_path / "seen.jsonl"
    more = ["--for", "3s", "--master", "local[2]", "--format", "json", "--observations", str(seen)]
    command = [sys.executable, "-c", "from service.cli import main; main()", *arguments(tmp_path, *more)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    both = json.loads(done.stdout)
    assert list(both) == ["plan", "analysis"]
    assert both["analysis"]["plan"] == both["plan"]["id"]
    assert [o["id"] for o in both["analysis"]["operators"]] == [o["id"] for o in both["plan"]["operators"]]
    assert Observation.model_validate_json(seen.read_text()).plan == both["plan"]["id"]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--format", "dot"), "--analyze has no dot form"),
        (("--spe", "native"), "choose pane or expand"),
        (("--for", "0s"), "--for must be longer"),
        (("--for", "soon"), "--for is a time"),
        (("--db", "postgres"), "--url"),
    ],
)
def test_what_cannot_be_analyzed_is_said_before_anything_runs(
    more: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_POSTGRES", raising=False)
    result = CliRunner().invoke(app, arguments(tmp_path, *more))
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert words in result.stderr
    assert "starting Spark" not in result.stderr
