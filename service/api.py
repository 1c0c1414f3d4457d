"""The REST API: plan requests in, plans out; errors as problem+json with the line and column of the text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from json import dumps
from typing import Annotated, Literal

from fastapi import Body, FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field, Strict, StrictBool
from starlette.exceptions import HTTPException

from costmodel.profile import CalibrationProfile, default_profile
from optimizer.catalog import MAX_RATE, Catalog
from optimizer.errors import PenstockError, SqlError
from optimizer.explain.api import Format, render
from optimizer.explain.document import PlanDocument, document
from optimizer.explain.explanation import Explanation, ProfileNote, SweepRange, explain_plan
from optimizer.hints import Hints
from optimizer.optimize import Options, Search, optimize
from optimizer.physical import Where
from optimizer.placement.problem import Units
from optimizer.sql.ddl import parse_catalog
from optimizer.sql.parse import MAX_TEXT
from service.body_limit import BodyLimit
from service.plan_cache import Kept, PlanCache, content_hash

PROBLEM = "application/problem+json"
MAX_BODY = 8 * MAX_TEXT  # bytes: a query and a catalog of the greatest length, in UTF-8
Rate = Annotated[float, Strict(), Field(gt=0, le=MAX_RATE)]
Profile = tuple[CalibrationProfile, str, str | None]  # with its name, and why it may not fit


@dataclass(frozen=True)
class Registered:
    """What the service was started with."""

    catalogs: Mapping[str, Catalog]
    profile: CalibrationProfile
    profile_name: str
    warning: str | None


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SweepRequest(_Model):
    stream: str
    low: Rate
    high: Rate


class HintsRequest(_Model):
    force: dict[str, Literal["spe", "db"]] = Field(
        default={}, description="an operator's id, or a stream's name for its selections, to an engine"
    )
    join_order: str | None = Field(default=None, max_length=10_000, examples=["((agg1 agg2) agg3)"])
    phase_one: StrictBool = True
    phase_two: StrictBool = True


class PlanRequest(_Model):
    sql: str = Field(max_length=MAX_TEXT, description="one continuous query")
    catalog: str | None = Field(default=None, max_length=MAX_TEXT, description="the catalog's text")
    catalog_name: str | None = Field(default=None, description="or the name of a registered catalog")
    database: Literal["duckdb", "postgres"] = "duckdb"
    rates: dict[str, Rate] = Field(default={}, description="what if: rates of streams, rows of tables")
    format: Format = Format.JSON
    why_not: StrictBool = Field(default=False, description="add the best rejected placement and join order")
    trace: StrictBool = Field(default=False, description="add the plan after each step")
    sweep: SweepRequest | None = None
    hints: HintsRequest = HintsRequest()
    search: Search = Search.EXACT
    feasibility_check: StrictBool = True
    units: Units | None = None
    ranges: StrictBool = Field(default=False, description="add how certain the costs and the choice are")


class PlanResponse(_Model):
    id: str = Field(description="the hash of the request: ask for the plan again by it")
    cached: bool
    plan: PlanDocument | None = Field(default=None, description="with format json")
    text: str | None = Field(default=None, description="with any other format")


class Problem(BaseModel):
    """RFC 9457, with the place in the text where there is one."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    source: str | None = Field(default=None, description="query or catalog")
    line: int | None = None
    column: int | None = None
    found: str | None = None
    hint: str | None = None


class Health(BaseModel):
    status: Literal["ok"] = "ok"
    catalogs: list[str]
    plans: int


_EXAMPLE = {
    "summary": "Averages per key",
    "value": {
        "sql": "SELECT k, avg(v) AS mean FROM s [RANGE 1 MINUTE SLIDE 1 SECOND] GROUP BY k",
        "catalog": "CREATE STREAM s (ts TIMESTAMP, k INT, v DOUBLE, WATERMARK FOR ts AS ts) WITH (rate = 5000);",
        "database": "duckdb",
        "rates": {"s": 20000},
    },
}
_FLINK = {
    "summary": "Flink's HOP, as text",
    "value": {
        "sql": "SELECT k, max(v) AS top FROM HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '5' MINUTE) "
        "GROUP BY window_start, window_end, k",
        "catalog": _EXAMPLE["value"]["catalog"],  # type: ignore[index]
        "database": "postgres",
        "format": "text",
        "why_not": True,
    },
}


def _problem_doc(description: str) -> dict[str, object]:
    return {"description": description, "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}}


class ProblemError(Exception):
    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def create_app(catalogs: Mapping[str, Catalog] | None = None, profile: Profile | None = None) -> FastAPI:
    """An application of its own, with its own cache; `catalogs` are the registered ones."""
    registered = Registered(dict(catalogs or {}), *(profile or (default_profile(), "default", None)))
    cache: PlanCache[PlanRequest] = PlanCache()
    app = FastAPI(
        title="Penstock",
        version="1",
        description="Continuous SQL, placed operator by operator on Spark or a database.",
        responses={422: _problem_doc("The request, its SQL or its catalog cannot be accepted.")},
    )

    @app.post(
        "/v1/plans",
        response_model=PlanResponse,
        summary="Plan a continuous query",
        responses={
            200: {"description": "The best plan, new or kept."},
            400: _problem_doc("The body cannot be read."),
            404: _problem_doc("No catalog of that name."),
            413: _problem_doc("The body is too large."),
        },
    )
    def plan(
        request: Annotated[PlanRequest, Body(openapi_examples={"averages": _EXAMPLE, "flink": _FLINK})],
    ) -> Response:
        key = content_hash(request.model_dump_json(exclude={"format"}))
        kept = cache.get(key) or Kept(request)
        cached = request.format in kept.texts
        text = _text(kept, request.format, registered)
        cache.put(key, kept)
        return _response(key, cached, text, request.format)

    @app.get(
        "/v1/plans/{id}",
        response_model=PlanResponse,
        summary="A plan that was asked for before",
        responses={200: {"description": "The plan."}, 404: _problem_doc("No plan of that id is kept.")},
    )
    def kept_plan(
        id: Annotated[str, Path(pattern="^[0-9a-f]{16}$")],
        format: Annotated[Format, Query()] = Format.JSON,
    ) -> Response:
        kept = cache.get(id)
        if kept is None:
            raise ProblemError(Problem(title="No such plan", status=404, detail=f"no plan {id} is kept; POST it again"))
        return _response(id, True, _text(kept, format, registered), format)

    @app.get("/healthz", summary="Whether the service answers")
    def healthz() -> Health:
        return Health(catalogs=sorted(registered.catalogs), plans=len(cache))

    app.add_middleware(BodyLimit, limit=MAX_BODY, refusal=_answer(_TOO_LARGE))
    _install_errors(app)
    _document_problems(app)
    return app


def _text(kept: Kept[PlanRequest], to: Format, registered: Registered) -> str:
    """The plan as it was written for an earlier request, or planned once more for a format that is new."""
    if to not in kept.texts:
        explanation = _explain(kept.request, registered)
        written = document(explanation).model_dump_json() if to is Format.JSON else None
        kept.texts[to] = written or render(explanation, to, kept.request.why_not)
    return kept.texts[to]


def _explain(request: PlanRequest, registered: Registered) -> Explanation:
    catalog = _catalog(request, registered.catalogs)
    hints = request.hints
    options = Options(
        database=request.database,
        rates=request.rates,
        hints=Hints({k: Where(v) for k, v in hints.force.items()}, hints.join_order, hints.phase_one, hints.phase_two),
        search=request.search,
        feasibility_check=request.feasibility_check,
        units=request.units,
        profile=registered.profile,
        profile_name=registered.profile_name,
    )
    over = SweepRange(request.sweep.stream, request.sweep.low, request.sweep.high) if request.sweep else None
    optimized = optimize(request.sql, catalog, options)
    note = ProfileNote(warning=registered.warning)
    return explain_plan(optimized, request.why_not, request.trace, over, with_ranges=request.ranges, profile=note)


def _catalog(request: PlanRequest, registered: Mapping[str, Catalog]) -> Catalog:
    if (request.catalog is None) == (request.catalog_name is None):
        detail = "give either catalog, the text, or catalog_name, one of: " + (
            ", ".join(registered) or "none registered"
        )
        raise ProblemError(Problem(title="Which catalog?", status=422, detail=detail))
    if request.catalog_name is not None:
        if request.catalog_name not in registered:
            detail = (
                f"no catalog is registered as {request.catalog_name}; registered: {', '.join(registered) or 'none'}"
            )
            raise ProblemError(Problem(title="No such catalog", status=404, detail=detail))
        return registered[request.catalog_name]
    assert request.catalog is not None
    try:
        return _read_catalog(request.catalog)
    except SqlError as error:
        raise ProblemError(sql_problem(error, "catalog")) from None


_read_catalog = lru_cache(maxsize=32)(parse_catalog)  # a client sends the same catalog with each of its queries


def _response(key: str, cached: bool, written: str, to: Format) -> Response:
    """A `PlanResponse`, put together as text: the plan was written when it was made."""
    body = f'"plan":{written}' if to is Format.JSON else f'"text":{dumps(written)}'
    content = f'{{"id":"{key}","cached":{dumps(cached)},{body}}}'
    return Response(content, media_type="application/json")


def sql_problem(error: SqlError, source: str) -> Problem:
    place = error.position
    return Problem(
        title=f"The {source} cannot be accepted",
        status=422,
        detail=error.message,
        source=source,
        line=place.line if place else None,
        column=place.column if place else None,
        found=error.found or None,
        hint=error.hint or None,
    )


_TOO_LARGE = Problem(title="The request is too large", status=413, detail=f"a request has at most {MAX_BODY:,} bytes")


def _answer(problem: Problem) -> Response:
    # A name in the detail may hold half a surrogate pair, which is JSON and is not UTF-8.
    content = problem.model_dump(exclude_none=True)
    clean = {k: v.encode(errors="replace").decode() if isinstance(v, str) else v for k, v in content.items()}
    return JSONResponse(clean, problem.status, media_type=PROBLEM)


def _install_errors(app: FastAPI) -> None:
    @app.exception_handler(ProblemError)
    def on_problem(_: Request, error: ProblemError) -> Response:
        return _answer(error.problem)

    @app.exception_handler(PenstockError)
    def on_refusal(_: Request, error: PenstockError) -> Response:
        if isinstance(error, SqlError):
            return _answer(sql_problem(error, "query"))
        return _answer(Problem(title="The request cannot hold", status=422, detail=str(error)))

    @app.exception_handler(RequestValidationError)
    def on_invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return _answer(Problem(title="The request is malformed", status=422, detail=f"{place}: {first['msg']}"))

    @app.exception_handler(HTTPException)
    def on_http(_: Request, error: HTTPException) -> Response:
        response = _answer(Problem(title=str(error.detail), status=error.status_code, detail=str(error.detail)))
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(Exception)
    def on_defect(_: Request, error: Exception) -> Response:
        """The server's log has the traceback."""
        detail = f"a defect of the service ({type(error).__name__}); its log says more"
        return _answer(Problem(title="Internal error", status=500, detail=detail))


def _document_problems(app: FastAPI) -> None:
    """Puts the problem's schema into the OpenAPI document, which FastAPI does only for response models."""
    original = app.openapi

    def openapi() -> dict[str, object]:
        schema = original()
        components = schema.setdefault("components", {}).setdefault("schemas", {})
        components["Problem"] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
