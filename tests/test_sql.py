"""The front end: plans as text, spellings that mean the same, and refusals that say where and what to write."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from optimizer.algebra import Window, WindowSpec, WindowUnit, fingerprint, leaves
from optimizer.errors import SqlError
from optimizer.optimize import read_query, show
from optimizer.sql.ddl import parse_catalog
from tests.fixtures import sections
from tests.recorded import CATALOG

FIXTURES = Path(__file__).parent / "fixtures" / "sql"
EXAMPLES = Path(__file__).parent.parent / "examples" / "smartplug"
PLANS = sections(FIXTURES / "plans.txt")
QUERIES = sections(FIXTURES / "refused_queries.txt")
CATALOGS = sections(FIXTURES / "refused_catalogs.txt")


@pytest.mark.parametrize("name", PLANS)
def test_plan(name: str) -> None:
    sql, _, expected = PLANS[name].partition("\n=>\n")
    plan, _ = read_query(sql, parse_catalog(CATALOG))
    assert show(plan) == expected.strip("\n")


def refusal(error: SqlError) -> str:
    assert error.position is not None
    where = f"{error.position.line}:{error.position.column} '{error.found}'"
    return f"{where}: {error.message}\n   write: {error.hint}"


@pytest.mark.parametrize("name", QUERIES)
def test_refused_query(name: str) -> None:
    sql, _, expected = QUERIES[name].partition("\n=> ")
    with pytest.raises(SqlError) as caught:
        read_query(sql, parse_catalog(CATALOG))
    assert refusal(caught.value) == expected
    assert caught.value.hint


@pytest.mark.parametrize("name", CATALOGS)
def test_refused_catalog(name: str) -> None:
    sql, _, expected = CATALOGS[name].partition("\n=> ")
    with pytest.raises(SqlError) as caught:
        parse_catalog(sql)
    assert refusal(caught.value) == expected
    assert caught.value.hint


SPELLINGS = [
    "SELECT k, count(*) AS n FROM s [RANGE 5 MINUTES SLIDE 1 SECOND] GROUP BY k",
    "SELECT k, count(*) AS n FROM s [range '5 minutes' slide INTERVAL '1' SECOND] AS s GROUP BY k",
    "SELECT k, count(*) AS n FROM S [RANGE 300 SECONDS SLIDE 1000 MILLISECONDS] GROUP BY S.K",
    "SELECT k, count(*) AS n FROM HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '5' MINUTE) GROUP BY k",
    "SELECT k, count(*) AS n FROM HOP(s, ts, INTERVAL '1' SECOND, INTERVAL '5 minutes') GROUP BY window_start, k",
    "SELECT k, count(*) AS n FROM TABLE(HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '5' MINUTE)) "
    "GROUP BY window_start, window_end, k",
    "SELECT k, count(*) AS n FROM s GROUP BY window(ts, '5 minutes', '1 second'), k",
    "SELECT RSTREAM k, count(*) AS n FROM s GROUP BY k, window(s.ts, '300 seconds', INTERVAL '1' SECOND)",
]


@pytest.mark.parametrize("sql", SPELLINGS)
def test_every_spelling_is_one_plan(sql: str) -> None:
    plan, _ = read_query(sql, parse_catalog(CATALOG))
    (window,) = leaves(plan)
    assert isinstance(window, Window)
    assert window.spec == WindowSpec(WindowUnit.TIME, 300_000_000, 1_000_000)
    assert window.time_column == "ts"
    assert fingerprint(plan) == fingerprint(read_query(SPELLINGS[0], parse_catalog(CATALOG))[0])


@pytest.mark.parametrize(
    ("clause", "spec"),
    [
        ("s [ROWS 1000 SLIDE 10]", WindowSpec(WindowUnit.ROWS, 1000, 10)),
        ("TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '2' SECOND)", WindowSpec(WindowUnit.TIME, 2_000_000, 2_000_000)),
        ("s [RANGE 1.5 SECONDS SLIDE 500 MILLISECONDS]", WindowSpec(WindowUnit.TIME, 1_500_000, 500_000)),
    ],
)
def test_window(clause: str, spec: WindowSpec) -> None:
    (window,) = leaves(read_query(f"SELECT count(*) AS n FROM {clause}", parse_catalog(CATALOG))[0])
    assert isinstance(window, Window)
    assert window.spec == spec


@pytest.mark.parametrize("name", ["cq1", "cq2"])
def test_correlated_and_joined_are_one_plan(name: str) -> None:
    catalog = parse_catalog((EXAMPLES / "catalog.sql").read_text())
    plans = [read_query((EXAMPLES / f"{form}.sql").read_text(), catalog)[0] for form in (name, f"{name}_correlated")]
    assert show(plans[0]) == show(plans[1])
    assert fingerprint(plans[0]) == fingerprint(plans[1])


def test_catalog() -> None:
    catalog = parse_catalog((EXAMPLES / "catalog.sql").read_text())
    plugs = catalog.streams["plugs"]
    assert plugs.rate is not None
    assert plugs.rate.value == 2000
    assert plugs.watermark is not None
    assert (plugs.watermark.column, plugs.watermark.delay_us) == ("ts", 2_000_000)
    assert [c.name for c in plugs.columns if c.nullable] == ["value"]
    assert len(plugs.statistics) == 5
    assert plugs.selectivities[0].share.value == 0.5
    other = parse_catalog("CREATE TABLE \"T\" (A INT, b INT, PRIMARY KEY (a, B)) WITH (rows = 5, kafka.servers = 'x')")
    assert other.tables["T"].primary_key == ("a", "b")
    assert other.tables["T"].options == {"rows": 5.0, "kafka.servers": "x"}


def test_messages_do_not_show_sqlglot() -> None:
    texts = [*QUERIES.values(), *CATALOGS.values()]
    assert not [text for text in texts if re.search(r"sqlglot|<class|Expression", text)]
