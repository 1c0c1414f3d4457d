"""Plans as text files a reviewer can read; a changed plan shows up as a diff."""

from __future__ import annotations

from datetime import date

import pytest

from optimizer.explain.api import Format, render
from optimizer.explain.explanation import ProfileNote, explain_plan
from optimizer.optimize import Options, optimize
from tests.goldens import DIRECTORY, EXAMPLES, ROOT, Golden, goldens


@pytest.mark.parametrize("golden", list(goldens()), ids=lambda g: g.path.stem)
def test_the_plan_is_the_golden_one(golden: Golden) -> None:
    assert golden.text() == golden.path.read_text(), "the plan changed: make goldens, and read the diff"


def test_no_golden_is_left_over() -> None:
    assert {p.name for p in DIRECTORY.iterdir()} == {g.path.name for g in goldens()}


def test_the_plan_in_the_readme_is_real() -> None:
    """As the command printed it on the day and the machine of the profile."""
    sql, catalog = (EXAMPLES / "cq1.sql").read_text(), (EXAMPLES / "catalog.sql").read_text()
    optimized = optimize(sql, catalog, Options(rates={"plugs": 20_000.0}))
    measured = optimized.options.profile.measured
    note = ProfileNote.of(measured, date.fromisoformat(measured), None)
    explanation = explain_plan(optimized, why_not=True, with_ranges=True, profile=note)
    assert render(explanation, Format.TEXT, why_not=True) in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("query", ["cq1", "cq2"])
def test_the_correlated_form_gives_the_same_plan(query: str) -> None:
    assert Golden(query, "duckdb", "20k").text() == Golden(f"{query}_correlated", "duckdb", "20k").text()
    assert (EXAMPLES / f"{query}.sql").read_text() != (EXAMPLES / f"{query}_correlated.sql").read_text()
