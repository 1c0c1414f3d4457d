"""The formats of an explanation: diagrams that parse, a JSON document that fits its schema and has only numbers."""

from __future__ import annotations

import json
import re
from typing import NoReturn

import jsonschema_rs
import pytest

from optimizer.errors import HintError
from optimizer.explain.api import Format, explain, render
from optimizer.explain.document import PlanDocument
from optimizer.explain.explanation import Explanation, explain_plan
from optimizer.optimize import Options, optimize
from service.bench.fuzz_seeds import good_catalog
from service.bench.nway import smartplug
from tests.schema_file import PATH, schema_text

CATALOG = good_catalog()
QUERIES = {
    **{f"cq{i}": smartplug(f"cq{i}.sql") for i in range(1, 7)},
    "cross product": "SELECT p.id, w.at FROM plugs [RANGE 1 DAY] p, weather [RANGE 1 DAY] w, alarms [RANGE 1 DAY] a",
    "cross product of aggregates": "SELECT count(*) AS n FROM plugs [RANGE 1 DAY SLIDE 1 MILLISECOND] p, "
    "plugs [RANGE 1 DAY SLIDE 1 MILLISECOND] q, plugs [RANGE 1 DAY SLIDE 1 MILLISECOND] r",
    "no operator": "SELECT * FROM plugs [RANGE 1 SECOND]",
    "quotes": """SELECT w."Sky" || '"<b>&amp;\\n{|}' AS "a ""b"" <c>" FROM weather [RANGE 1 HOUR] w """
    """WHERE w."Sky" <> 'it''s "so" \\ #35;' AND w.temperature < 5 AND w."Sky" <> 'two\nlines'""",
    "stored table": "SELECT h.name, avg(p.value) AS v FROM plugs [RANGE 1 MINUTE SLIDE 1 SECOND] p "
    "JOIN houses h ON h.house_id = p.house_id GROUP BY h.name",
}
VALIDATOR = jsonschema_rs.validator_for(json.loads(PATH.read_text(encoding="utf-8")))


def explanation(name: str, database: str = "duckdb", rate: float | None = None) -> Explanation:
    rates = {} if rate is None else {"plugs": rate, "weather": rate, "alarms": rate}
    return explain_plan(optimize(QUERIES[name], CATALOG, Options(database=database, rates=rates)), why_not=True)


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("database", ["duckdb", "postgres"])
def test_dot_is_well_formed(name: str, database: str) -> None:
    """Outside of quoted strings there are names, brackets in pairs and punctuation only; edges join known boxes."""
    text = render(explanation(name, database), Format.DOT)
    bare = re.sub(r'"(?:[^"\\\n]|\\.)*"', "S", text)
    assert '"' not in bare
    assert re.fullmatch(r"[\w\s\[\]{}=,;>-]*", bare)
    for opening, closing in ("{}", "[]"):
        assert bare.count(opening) == bare.count(closing) > 0
    boxes = set(re.findall(r"^ +(\w+) \[label=", bare, re.MULTILINE))
    edges = re.findall(r"^ +(\w+) -> (\w+) ", bare, re.MULTILINE)
    assert {end for edge in edges for end in edge} == boxes
    assert [start for start, end in edges if end == "out"]


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("database", ["duckdb", "postgres"])
def test_mermaid_is_well_formed(name: str, database: str) -> None:
    """A label is between two double quotes and holds none; what HTML or Mermaid would read is an entity."""
    lines = render(explanation(name, database), Format.MERMAID).splitlines()
    assert lines[0] == "flowchart BT"
    forms = (
        r' +(?P<box>\w+)\["(?P<label>[^"]*)"\]:::\w+',
        r' +subgraph \w+\["(?P<group>[^"]*)"\]',
        r' +(?P<start>\w+) -- "[^"]*" --> (?P<end>\w+)',
        r" +end",
        r" +classDef \w+ fill:#\w{6},stroke:#\w{6}",
    )
    boxes, ends = set(), set()
    for line in lines[1:]:
        matched = next((m for form in forms if (m := re.fullmatch(form, line))), None)
        assert matched, line
        found = matched.groupdict()
        if "label" in found:
            boxes.add(found["box"])
            assert not re.search(r"[&#<>`]", re.sub(r"#(?:\w+);|<br/>", "", found["label"]))
        if "start" in found:
            ends |= {found["start"], found["end"]}
    assert ends == boxes
    assert sum(line.strip().startswith("subgraph") for line in lines) == lines.count("  end")


def _no_constant(name: str) -> NoReturn:
    raise AssertionError(f"{name} in a JSON document")


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("rate", [None, 1e12, 1e-3])
def test_json_fits_its_schema_and_is_json_at_any_rate(name: str, rate: float | None) -> None:
    text = render(explanation(name, rate=rate), Format.JSON)
    found = json.loads(text, parse_constant=_no_constant)
    VALIDATOR.validate(found)
    document = PlanDocument.model_validate_json(text)
    known = {leaf.id for leaf in document.leaves} | {operator.id for operator in document.operators}
    for operator in document.operators:
        assert set(operator.inputs) <= known
    numbers = [n for operator in document.operators for n in (operator.rate_in, operator.rate_out, operator.u)]
    assert all(isinstance(n, float) and n >= 0 for n in numbers)
    assert document.cost.utilization >= document.cost.bottleneck >= 0


def test_the_schema_file_is_up_to_date() -> None:
    assert PATH.read_text(encoding="utf-8") == schema_text(), "run python -m tests.schema_file"


def test_equal_requests_give_equal_documents_but_for_the_times() -> None:
    first, second = (json.loads(render(explanation("cq6"), Format.JSON)) for _ in range(2))
    for found in (first, second):
        for key in ("bind_ms", "phase_one_ms", "phase_two_ms"):
            del found["search"][key]
    assert first == second


def test_explain_takes_the_format_by_name() -> None:
    assert explain(QUERIES["cq1"], CATALOG, format="mermaid").startswith("flowchart")
    with pytest.raises(HintError, match="pdf"):
        explain(QUERIES["cq1"], CATALOG, format="pdf")
