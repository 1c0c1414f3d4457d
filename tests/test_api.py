"""The REST API, asked in process: plans in every format, every kind of refusal, and schemathesis over its OpenAPI."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance
from starlette.testclient import TestClient

from optimizer.explain.document import PlanDocument
from optimizer.sql.ddl import parse_catalog
from optimizer.sql.parse import MAX_TEXT
from service.api import MAX_BODY, PROBLEM, create_app
from service.bench.nway import smartplug

CATALOG = "CREATE STREAM s (ts TIMESTAMP, k INT, v DOUBLE, WATERMARK FOR ts AS ts) WITH (rate = 5000);"
SQL = "SELECT k, avg(v) AS mean FROM s [RANGE 1 MINUTE SLIDE 1 SECOND] GROUP BY k"
GOOD = {"sql": SQL, "catalog": CATALOG}

APP = create_app({"smartplug": parse_catalog(smartplug("catalog.sql"))})
SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", APP)


@pytest.fixture
def client() -> Iterator[TestClient]:
    with TestClient(create_app({"smartplug": parse_catalog(smartplug("catalog.sql"))})) as found:
        yield found


def refused(client: TestClient, status: int, **request: Any) -> dict[str, Any]:
    """The problem a request ends in."""
    response = client.post("/v1/plans", json={**GOOD, **request})
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == PROBLEM
    problem: dict[str, Any] = response.json()
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    return problem


def test_a_plan_as_json(client: TestClient) -> None:
    answer = client.post("/v1/plans", json={**GOOD, "rates": {"s": 20_000}}).json()
    plan = PlanDocument.model_validate(answer["plan"])
    assert plan.leaves[0].rate == 20_000
    assert plan.estimates[0].source == "override"
    assert "text" not in answer


@pytest.mark.parametrize(
    ("format", "start"), [("text", "plan "), ("mermaid", "flowchart BT\n"), ("dot", "digraph plan {\n")]
)
def test_a_plan_in_other_formats(client: TestClient, format: str, start: str) -> None:
    answer = client.post("/v1/plans", json={**GOOD, "format": format}).json()
    assert answer["text"].startswith(start)
    assert "plan" not in answer


def test_the_same_request_is_answered_from_the_cache(client: TestClient) -> None:
    first = client.post("/v1/plans", json=GOOD).json()
    again = client.post("/v1/plans", json=GOOD).json()
    as_text = client.post("/v1/plans", json={**GOOD, "format": "text"}).json()  # new: it has to be written
    as_text_again = client.post("/v1/plans", json={**GOOD, "format": "text"}).json()
    other = client.post("/v1/plans", json={**GOOD, "rates": {"s": 7}}).json()
    assert (first["cached"], again["cached"], other["cached"]) == (False, True, False)
    assert (as_text["cached"], as_text_again["cached"]) == (False, True)
    assert first["id"] == again["id"] == as_text["id"] != other["id"]
    assert first["plan"] == again["plan"]
    assert client.get("/healthz").json() == {"status": "ok", "catalogs": ["smartplug"], "plans": 2}


def test_the_cache_forgets_the_least_recently_used() -> None:
    from service.plan_cache import Kept, PlanCache

    cache, kept = PlanCache[str](capacity=2), Kept("asked")
    for key in ("a", "b"):
        cache.put(key, kept)
    cache.get("a")
    cache.put("c", kept)
    assert (cache.get("a"), cache.get("b"), len(cache)) == (kept, None, 2)


def test_a_plan_by_its_id(client: TestClient) -> None:
    posted = client.post("/v1/plans", json={**GOOD, "why_not": True}).json()
    got = client.get(f"/v1/plans/{posted['id']}").json()
    assert got == {**posted, "cached": True}
    text = client.get(f"/v1/plans/{posted['id']}", params={"format": "text"}).json()["text"]
    assert "second-best placement" in text


def test_an_id_that_is_not_kept(client: TestClient) -> None:
    response = client.get("/v1/plans/0123456789abcdef")
    assert response.status_code == 404
    assert response.headers["content-type"] == PROBLEM
    assert response.json()["detail"] == "no plan 0123456789abcdef is kept; POST it again"
    assert client.get("/v1/plans/NOT-AN-ID").status_code == 422


def test_a_registered_catalog(client: TestClient) -> None:
    request = {"sql": smartplug("cq6.sql"), "catalog_name": "smartplug", "database": "postgres"}
    answer = client.post("/v1/plans", json=request).json()
    assert answer["plan"]["database"] == "postgres"
    problem = refused(client, 404, catalog=None, catalog_name="nothing")
    assert problem["detail"] == "no catalog is registered as nothing; registered: smartplug"


@pytest.mark.parametrize("both", [True, False])
def test_either_a_catalog_or_its_name(client: TestClient, both: bool) -> None:
    given = {"catalog_name": "smartplug"} if both else {"catalog": None}
    assert "either catalog" in refused(client, 422, **given)["detail"]


def test_options_reach_the_optimizer(client: TestClient) -> None:
    request = {
        **GOOD,
        "hints": {"force": {"agg1": "spe"}},
        "search": "paper",
        "units": "operator",
        "feasibility_check": False,
        "trace": True,
        "why_not": True,
        "sweep": {"stream": "s", "low": 10, "high": 1e6},
    }
    plan = client.post("/v1/plans", json=request).json()["plan"]
    assert [o["engine"] for o in plan["operators"]] == ["spe"]
    assert plan["search"]["phase_two"] == "paper"
    assert plan["search"]["examined"] > 0
    assert plan["trace"][0]["name"] == "as written"
    assert plan["sweep"][0]["low"] == 10
    assert plan["sweep"][-1]["high"] == 1e6


def test_an_error_in_the_query_has_its_place(client: TestClient) -> None:
    problem = refused(client, 422, sql="SELECT k,\n  avg(speed) AS mean\nFROM s [RANGE 1 MINUTE SLIDE 1 SECOND]")
    assert problem["source"] == "query"
    assert (problem["line"], problem["column"], problem["found"]) == (2, 7, "speed")
    assert problem["hint"]


def test_an_error_in_the_catalog_has_its_place(client: TestClient) -> None:
    problem = refused(client, 422, catalog="CREATE STREAM s (ts TIMESTAMP,\n ts INT)")
    assert problem["source"] == "catalog"
    assert (problem["line"], problem["column"], problem["found"]) == (2, 2, "ts")
    assert problem["hint"] == "one definition per column"


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"rates": {"nothing": 5}}, "the catalog has no such stream or table"),
        ({"rates": {"s": -5}}, "body.rates.s: Input should be greater than 0"),
        ({"rates": {"s": 1e13}}, "body.rates.s: Input should be less than or equal to"),
        ({"hints": {"force": {"agg9": "db"}}}, "agg9"),
        ({"hints": {"force": {"agg1": "gpu"}}}, "body.hints.force.agg1: Input should be 'spe' or 'db'"),
        ({"hints": {"join_order": "((a b) c)"}}, "join"),
        ({"sweep": {"stream": "t", "low": 1, "high": 2}}, "no stream of the catalog"),
        ({"sweep": {"stream": "s", "low": 2, "high": 1}}, "from a smaller to a larger"),
        ({"database": "oracle"}, "body.database: Input should be 'duckdb' or 'postgres'"),
        ({"format": "pdf"}, "body.format"),
        ({"colour": "red"}, "body.colour: Extra inputs are not permitted"),
        ({"sql": "x" * (MAX_TEXT + 1)}, "body.sql: String should have at most"),
        ({"sql": 7}, "body.sql: Input should be a valid string"),
        ({"sql": ""}, "expected one SELECT, found no statement"),
        ({"sql": "(" * 5000}, ""),
        ({"sql": SQL + "; DROP TABLE s"}, "expected one SELECT, found 2 statements"),
    ],
)
def test_refusals(client: TestClient, request_: dict[str, Any], words: str) -> None:
    assert words in refused(client, 422, **request_)["detail"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"{", 422),
        (b"[]", 422),
        (b"null", 422),
        (b"\xff\xfe", 422),
        (b"[" * 100_000, 400),
        (json.dumps({**GOOD, "sql": "\ud800"}).encode(), 422),
        (json.dumps({**GOOD, "rates": {"\ud800": 5}}).encode(), 422),
        (json.dumps({**GOOD, "hints": {"force": {"\ud800": "db"}}}).encode(), 422),
        (b'{"sql": "' + b"x" * MAX_BODY + b'"}', 413),
    ],
)
def test_bodies_that_cannot_be_read(client: TestClient, body: bytes, status: int) -> None:
    response = client.post("/v1/plans", content=body, headers={"content-type": "application/json"})
    assert response.status_code == status
    assert response.headers["content-type"] == PROBLEM
    assert response.json()["detail"]


def test_a_body_of_unknown_length_is_bounded_too(client: TestClient) -> None:
    def chunks() -> Iterator[bytes]:
        yield b'{"sql": "'
        for _ in range(20):
            yield b"x" * (MAX_BODY // 10)

    response = client.post("/v1/plans", content=chunks(), headers={"content-type": "application/json"})
    assert response.status_code == 413
    assert response.headers["content-type"] == PROBLEM


def test_unknown_paths_and_methods_are_problems(client: TestClient) -> None:
    for response, status in ((client.get("/nothing"), 404), (client.delete("/v1/plans"), 405)):
        assert response.status_code == status
        assert response.headers["content-type"] == PROBLEM
    assert client.delete("/v1/plans").headers["allow"] == "POST"


def test_a_defect_is_a_problem_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr("service.api.optimize", broken)
    response = TestClient(create_app(), raise_server_exceptions=False).post("/v1/plans", json=GOOD)
    assert response.status_code == 500
    assert response.headers["content-type"] == PROBLEM
    assert "secret" not in response.text


def test_the_openapi_document_has_examples_and_problems() -> None:
    document = APP.openapi()
    post = document["paths"]["/v1/plans"]["post"]
    examples = post["requestBody"]["content"]["application/json"]["examples"]
    assert set(examples) == {"averages", "flink"}
    for status in ("400", "404", "413", "422"):
        assert PROBLEM in post["responses"][status]["content"]
    assert {"line", "column", "found", "hint"} <= set(document["components"]["schemas"]["Problem"]["properties"])
    with TestClient(APP) as client:
        for example in examples.values():
            assert client.post("/v1/plans", json=example["value"]).status_code == 200


@SCHEMA.parametrize()
@settings(
    max_examples=80,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_whatever_is_asked_the_answer_conforms(case: schemathesis.Case[Any]) -> None:
    """No 5xx, and every answer has a status, a content type and a body that the OpenAPI document describes.

    A schema cannot say what is good SQL, so a request that fits it may be refused.
    """
    case.call_and_validate(excluded_checks=[positive_data_acceptance])
