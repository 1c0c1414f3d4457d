"""One call from SQL to an explanation in any format."""

from __future__ import annotations

from enum import StrEnum

from optimizer.catalog import Catalog
from optimizer.errors import HintError
from optimizer.explain.diagram import render_dot, render_mermaid
from optimizer.explain.document import document
from optimizer.explain.explanation import Explanation, SweepRange, explain_plan
from optimizer.explain.text import render_text
from optimizer.optimize import Options, optimize


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"
    MERMAID = "mermaid"
    DOT = "dot"


def render(explanation: Explanation, to: Format, why_not: bool = False) -> str:
    match to:
        case Format.TEXT:
            return render_text(explanation, why_not)
        case Format.JSON:
            return document(explanation).model_dump_json(indent=2) + "\n"
        case Format.MERMAID:
            return render_mermaid(explanation)
        case Format.DOT:
            return render_dot(explanation)


def explain(
    sql: str,
    catalog: Catalog | str,
    options: Options | None = None,
    format: Format | str = Format.TEXT,
    *,
    why_not: bool = False,
    trace: bool = False,
    sweep: SweepRange | None = None,
    ranges: bool = False,
) -> str:
    """Optimizes a query and says why, in one of the formats text, json, mermaid and dot."""
    if format not in list(Format):
        raise HintError(f"no format is called {format!r}; choose one of {', '.join(Format)}")
    optimized = optimize(sql, catalog, options)
    explanation = explain_plan(optimized, why_not, trace, sweep, with_ranges=ranges)
    return render(explanation, Format(format), why_not)
