"""The penstock command as people type it: every option of explain, every way to get it wrong, and serve."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from optimizer.explain.document import PlanDocument
from service.cli import app
from service.server import running

EXAMPLES = Path(__file__).parents[1] / "examples" / "smartplug"
CATALOG = EXAMPLES / "catalog.sql"


def penstock(*arguments: str | Path, given: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], input=given)


def explain(*arguments: str | Path, query: str | Path = "cq1.sql", catalog: Path = CATALOG) -> Result:
    return penstock("explain", EXAMPLES / query, "--catalog", catalog, *arguments)


def explained(*arguments: str | Path, query: str = "cq1.sql") -> str:
    result = explain(*arguments, query=query)
    assert result.exit_code == 0, result.output
    return result.stdout


def plan(*arguments: str | Path, query: str = "cq1.sql") -> PlanDocument:
    return PlanDocument.model_validate_json(explained("--format", "json", *arguments, query=query))


def failed(result: Result, *words: str) -> None:
    """A message on standard error, exit code 2, nothing on standard output, no traceback."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr


@pytest.mark.parametrize(
    ("format", "start"), [("text", "plan "), ("json", "{\n"), ("mermaid", "flowchart BT"), ("dot", "digraph plan {")]
)
def test_explain_in_every_format(format: str, start: str) -> None:
    assert explained("--format", format).startswith(start)


def test_a_query_from_standard_input() -> None:
    text = (EXAMPLES / "cq5.sql").read_text()
    result = penstock("explain", "-", "--catalog", CATALOG, given=text)
    assert result.exit_code == 0
    assert result.stdout == explained(query="cq5.sql")


def test_why_not_shows_the_plans_that_lost() -> None:
    shown = explained("--why-not")
    for name in ("chosen", "all in spark", "all in duckdb", "second-best placement"):
        assert name in shown
    assert "second-best placement" not in explained()


def test_trace_shows_every_step() -> None:
    shown = explained("--trace")
    assert next(line for line in shown.splitlines() if line.startswith("after: ")) == "after: as written"
    assert "after: phase one" in shown


@pytest.mark.parametrize("written", ["20000", "20k", "0.02M", "20,000", "2e4"])
def test_a_rate_in_every_spelling(written: str) -> None:
    assert plan("--rate", f"plugs={written}").leaves[0].rate == 20_000


def test_the_database() -> None:
    assert plan("--db", "postgres").database == "postgres"
    failed(explain("--db", "oracle"), "no database is called 'oracle'", "duckdb, postgres")


def test_sweep_covers_the_range_without_gaps() -> None:
    intervals = plan("--sweep", "plugs=100..1M").sweep
    assert (intervals[0].low, intervals[-1].high) == (100, 1e6)
    assert all(a.high == b.low for a, b in pairwise(intervals))
    assert "best plan by rate of plugs" in explained("--sweep", "plugs=100..1M")


def test_force_puts_an_operator_where_it_says() -> None:
    for engine in ("spe", "db"):
        operators = {o.id: o.engine for o in plan("--force", f"agg2={engine}").operators}
        assert operators["agg2"] == engine
    selections = plan("--force", "plugs=db").operators
    assert {o.engine for o in selections if o.kind == "select"} == {"db"}


def test_a_join_order_is_kept() -> None:
    forced = plan("--join-order", "((agg3 agg1) agg2)", query="cq6.sql").search.join_orders
    assert forced == ["((agg3 ⋈ agg1) ⋈ agg2)"]


def test_either_phase_can_be_left_out() -> None:
    assert {o.engine for o in plan("--no-phase-two").operators} == {"spe"}
    assert plan("--no-phase-one").search.view == "as written"


@pytest.mark.parametrize("search", ["paper", "decomposed"])
def test_the_other_searches_find_as_good_a_plan(search: str) -> None:
    other = plan("--search", search)
    assert other.search.phase_two == search
    assert other.cost.utilization == pytest.approx(plan().cost.utilization)


def test_without_the_feasibility_check_the_utilization_decides() -> None:
    rate = ("--rate", "plugs=700k")
    assert plan("--no-feasibility-check", *rate).cost.utilization <= plan(*rate).cost.utilization


def test_units_change_what_is_summed() -> None:
    units = {rule: len(plan("--units", rule).units) for rule in ("operator", "engine", "loop")}
    assert units["operator"] > units["loop"]


def test_a_profile_of_ones_own(tmp_path: Path) -> None:
    import costmodel

    shipped = Path(costmodel.__file__ or "").parent / "profiles" / "default.json"
    mine = tmp_path / "mine.json"
    mine.write_text(shipped.read_text())
    assert plan("--profile", mine).profile == "mine"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    binary = tmp_path / "binary.sql"
    binary.write_bytes(b"\x80\x81\xfe\xff")
    missing = tmp_path / "missing.sql"
    failed(explain(query=missing), "the query", str(missing), "cannot be read: No such file")
    failed(explain(query=binary), "it is not UTF-8 text")
    failed(explain(query=tmp_path), "Is a directory")
    failed(explain(catalog=missing), "the catalog", "cannot be read")
    failed(explain(catalog=binary), "it is not UTF-8 text")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--rate", "plugs"), "write --rate plugs=20000"),
        (("--rate", "plugs=fast"), "'fast' is not a positive number"),
        (("--rate", "plugs=-1"), "'-1' is not a positive number"),
        (("--rate", "plugs=nan"), "not a positive number"),
        (("--rate", "plugs=1e13"), "at most 1e+12"),
        (("--rate", "pulgs=5"), "no such stream or table (it has: plugs)"),
        (("--sweep", "plugs=5"), "write --sweep plugs=1000..40000"),
        (("--sweep", "plugs=5..2"), "from a smaller to a larger"),
        (("--sweep", "other=1..2"), "no stream of the catalog"),
        (("--force", "agg1=gpu"), "the engine is spe or db"),
        (("--force", "agg9=db"), "agg9"),
        (("--join-order", "((agg1"), "join order"),
        (("--join-order", "(agg1 nothing)"), "nothing"),
        (("--search", "random"), "random"),
        (("--format", "pdf"), "pdf"),
        (("--units", "core"), "core"),
        (("--nonsense",), "nonsense"),
    ],
)
def test_arguments_that_cannot_hold(arguments: Sequence[str], words: str) -> None:
    failed(explain(*arguments), words)


@pytest.mark.parametrize(
    ("text", "words"), [("", "the file"), ("{}", "version"), ("[1]", "the file"), ('{"version": 99}', "mine.json")]
)
def test_profiles_that_cannot_be_used(tmp_path: Path, text: str, words: str) -> None:
    profile = tmp_path / "mine.json"
    profile.write_text(text)
    failed(explain("--profile", profile), "mine.json", words)
    failed(explain("--profile", tmp_path / "none.json"), "none.json")


def test_an_error_in_the_query_shows_its_line(tmp_path: Path) -> None:
    query = tmp_path / "bad.sql"
    query.write_text("SELECT plug_id, avg(valeu) AS mean\nFROM plugs [RANGE 1 MINUTE SLIDE 1 SECOND]\nGROUP BY plug_id")
    failed(explain(query=query), f"error: {query}:1:21: no column is called valeu", "^^^^^", "write: value")


def test_an_error_in_the_catalog_names_the_catalog(tmp_path: Path) -> None:
    catalog = tmp_path / "bad_catalog.sql"
    catalog.write_text("CREATE STREAM plugs (ts TIMESTAMP, ts INT)")
    failed(explain(catalog=catalog), f"error: {catalog}:1:36: column ts is declared twice")


def test_the_installed_command_prints_nothing_but_the_error(tmp_path: Path) -> None:
    """In a process of its own: libraries that log or warn would show here."""
    query = tmp_path / "drop.sql"
    query.write_text("DROP everything [RANGE 1 SECOND]")
    command = [sys.executable, "-c", "from service.cli import main; main()", "explain", str(query)]
    done = subprocess.run([*command, "--catalog", str(CATALOG)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"error: {query}")


def test_a_reader_that_closes_early_is_no_error() -> None:
    command = [sys.executable, "-c", "from service.cli import main; main()", "explain", str(EXAMPLES / "cq1.sql")]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*command, "--catalog", str(CATALOG)], stdout=write, stderr=subprocess.PIPE, text=True, timeout=60
    )
    os.close(write)
    assert "Traceback" not in done.stderr


def test_serve_answers_and_stops() -> None:
    with running("--catalog", f"smartplug={CATALOG}") as (host, port):
        connection = HTTPConnection(host, port, timeout=30)
        body = json.dumps({"sql": (EXAMPLES / "cq1.sql").read_text(), "catalog_name": "smartplug"})
        connection.request("POST", "/v1/plans", body, {"content-type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        connection.close()
        assert PlanDocument.model_validate(answer["plan"]).cost.feasible
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, port), timeout=5)


def test_serve_on_a_taken_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failed(penstock("serve", "--port", str(port)), f"cannot listen on 127.0.0.1, port {port}")


def test_serve_with_catalogs_that_are_not_there(tmp_path: Path) -> None:
    failed(penstock("serve", "--port", "0", "--catalog", f"mine={tmp_path / 'none.sql'}"), "none.sql cannot be read")
    failed(penstock("serve", "--port", "0", "--catalog", str(tmp_path)), "write --catalog smartplug=catalog.sql")
    (tmp_path / "bad.sql").write_text("CREATE NONSENSE")
    failed(penstock("serve", "--port", "0", "--catalog", f"mine={tmp_path / 'bad.sql'}"), "bad.sql:1:")


def test_the_command_starts_without_spark() -> None:
    """Spark's Python takes longer to import than a plan takes to find."""
    words = "import sys, service.cli; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", words], check=False).returncode == 0
