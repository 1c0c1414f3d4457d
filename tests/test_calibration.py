"""A calibration runs real deployments, fits a profile to them, and explain plans with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from connectors.spark.sliding import Form
from costmodel.machine import fingerprint
from costmodel.parameters import parameters
from costmodel.profile import default_profile, load_profile
from migration.calibration import calibrated, observation_of, observe
from migration.experiments import CATALOG, Experiment, above, average, compared, full, nested, quick
from migration.measurements import measurements, part_of
from migration.observations import Observation, append
from optimizer.algebra import operators
from optimizer.optimize import Options, optimize
from service.calibrate import WARM_UP_RATE, codes
from service.cli import app
from tests.postgres_server import postgres_url
from tests.spark_fixture import interpreted

RATE = 400.0
CASES = {
    "all in the database": Experiment(average(4), RATE, "all"),
    "aggregates in Spark, the join in the database": Experiment(compared(2, 4), RATE, "above"),
    "aggregates in the database, the join in Spark": Experiment(compared(2, 4), RATE, "aggregates"),
    "all in Spark": Experiment(above(4), RATE, "nothing"),
    "by copies": Experiment(average(4), RATE, "nothing", form=Form.EXPAND),
    "in PostgreSQL": Experiment(nested(4), RATE, "rest", "postgres"),
}


@pytest.fixture(scope="module")
def seen(spark: SparkSession) -> dict[str, Observation]:
    with interpreted(spark):
        return {name: observe(spark, e, default_profile(), postgres_url(), 1, 2) for name, e in CASES.items()}


def kinds(observation: Observation) -> set[str]:
    return {m.kind for m in measurements([observation], default_profile())}


def test_an_experiment_says_where_its_time_went(seen: dict[str, Observation]) -> None:
    for observation in seen.values():
        parts = observation.parts
        assert parts.total > 0
        assert parts.arrival > 0  # reading tuples is never for free
        assert (parts.run > 0) == bool(observation.in_database)
    assert kinds(seen["all in the database"]) == {"arrival", "run"}
    assert kinds(seen["aggregates in Spark, the join in the database"]) == {"arrival", "run", "ticks", "ship"}
    assert kinds(seen["aggregates in the database, the join in Spark"]) == {"arrival", "run", "ticks", "fetch"}
    assert kinds(seen["all in Spark"]) == {"arrival", "ticks"}
    assert seen["by copies"].forms == {"agg1": "expand"}


def test_a_profile_is_fitted_to_what_was_observed(seen: dict[str, Observation]) -> None:
    """With so few experiments there is a number for every one of them: the fit has to be close."""
    before = default_profile()
    found = calibrated(seen.values(), before, "mine")
    numbers, old = parameters(found.profile), parameters(before)
    assert found.profile.machine == fingerprint()
    assert found.experiments == len(CASES)
    assert all(value >= 0 for value in numbers.values())
    touched = {name for name, basis in found.profile.basis.items() if basis == "measured"}
    assert {"spe.batch", "duckdb.execution", "postgres.execution", "duckdb.fetch.fixed"} <= touched
    assert {name for name in numbers if numbers[name] != old[name]} <= touched
    assert "duckdb.functions.count distinct" not in touched
    errors = sorted(r.q_error for r in found.residuals)
    assert errors[len(errors) // 2] < 2


def test_explain_plans_with_a_refitted_profile(seen: dict[str, Observation], tmp_path: Path) -> None:
    lines, output = tmp_path / "seen" / "lines.jsonl", tmp_path / "mine.json"
    for observation in seen.values():
        append(lines, observation)
    arguments = ["calibrate", "--refit", "--observations", str(lines), "--output", str(output), "--name", "mine"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "6 experiments" in done.output
    assert parameters(load_profile(output)) == parameters(calibrated(seen.values(), default_profile(), "mine").profile)
    sql, catalog = seen["all in Spark"].sql, seen["all in Spark"].catalog
    assert optimize(sql, catalog, Options(profile=load_profile(output))).plan.cost.bottleneck > 0


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "no observations"), ("{}\n", "line 1"), ('{"version":1,"plan":"x"}\n', "no observations")],
)
def test_lines_that_cannot_be_used_are_named(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text(text)
    done = CliRunner().invoke(
        app, ["calibrate", "--refit", "--observations", str(path), "--output", str(tmp_path / "p")]
    )
    assert done.exit_code != 0
    assert words in done.output
    assert "Traceback" not in done.output
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize("make", [quick, full])
def test_the_experiments_ask_for_every_number(make: object) -> None:
    """Of both databases and of Spark; what no experiment asks for would stay as it was on another machine."""
    asked: set[str] = set()
    for experiment in make(("duckdb", "postgres")):  # type: ignore[operator]
        asked |= _asked(experiment)
    functions = {n for n in parameters(default_profile()) if ".functions." in n or ".merge." in n}
    unasked = {"spe.project", "spe.stored", "duckdb.project", "postgres.project"}
    unasked.add("postgres.functions.approxquantile")  # it has none
    if make is quick:
        unasked |= functions
    assert set(parameters(default_profile())) - asked <= unasked


def _asked(experiment: Experiment) -> set[str]:
    unrun = observation_of(experiment, default_profile())
    return {name for m in measurements([unrun], default_profile()) for name in m.factors if part_of(name)}


def test_every_code_is_run_before_the_first_experiment_counts() -> None:
    experiments = list(full(("duckdb", "postgres")))
    first = codes(experiments)
    assert {e.code for e in first} == {e.code for e in experiments}
    assert len(first) < len(experiments) / 3
    assert max(e.rate for e in first) <= WARM_UP_RATE
    assert Experiment(above(60), 1_000, "nothing").code == Experiment(above(300), 30_000, "nothing").code
    assert Experiment(above(60), 1_000, "nothing").code != Experiment(above(60), 1_000, "last").code


def test_placements_are_what_their_names_say() -> None:
    tree = optimize(compared(2, 4), CATALOG).plan.tree
    kinds = [type(node).__name__ for node in operators(tree)]

    def chosen(places: str) -> set[str]:
        experiment = Experiment(compared(2, 4), RATE, places)
        return {kind for kind, node in zip(kinds, operators(tree), strict=True) if experiment.places(node)}

    assert chosen("nothing") == set()
    assert chosen("all") == set(kinds)
    assert chosen("rest") == set(kinds) - {"Select"}
    assert chosen("aggregates") == {"Aggregate"}
    assert chosen("above") == set(kinds) - {"Select", "Aggregate"}


def test_placements_that_cut_below_the_last_aggregate() -> None:
    tree = optimize(above(4), CATALOG).plan.tree
    assert [Experiment(above(4), RATE, "joined").places(n) for n in operators(tree)] == [
        False,
        False,
        True,
        True,
        False,
    ]
    assert [Experiment(above(4), RATE, "last").places(n) for n in operators(tree)] == [False] * 4 + [True]
