"""Which profile explain takes, and what it says of one that was measured elsewhere."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from typer.testing import CliRunner

from costmodel.machine import fingerprint, hardware
from costmodel.profile import CalibrationProfile, default_profile
from optimizer.explain.api import Format, render
from optimizer.explain.explanation import ProfileNote, explain_plan
from optimizer.optimize import optimize
from service.cli import app
from service.profile_lookup import find_profile, own_profile_path
from tests.goldens import EXAMPLES

CATALOG = "CREATE STREAM s (ts TIMESTAMP, v INT, WATERMARK FOR ts AS ts) WITH (rate = 1000)"
QUERY = "SELECT MAX(v) AS top FROM s [RANGE 1 MINUTE SLIDE 1 SECOND]"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def write(path: Path, name: str, machine: str) -> Path:
    adapter = TypeAdapter(CalibrationProfile)
    document = adapter.dump_python(default_profile(), mode="json") | {"name": name, "machine": machine}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(adapter.dump_json(adapter.validate_python(document)))
    return path


ELSEWHERE = "96 cores, 512 GiB, arm64; pyspark 4.3.0"


def test_the_shipped_one_where_there_is_no_other() -> None:
    profile, name, _ = find_profile(None)
    assert (profile, name) == (default_profile(), "default")


def test_a_profile_of_another_machine_is_taken_with_a_warning(home: Path) -> None:
    _, name, warning = find_profile(write(home / "lab.json", "lab", ELSEWHERE))
    assert name == "lab"
    assert warning is not None
    assert "measured on another machine (96 cores, 512 GiB, arm64)" in warning
    assert "penstock calibrate" in warning


def test_this_machines_own(home: Path) -> None:
    assert own_profile_path() == home / "penstock" / "profile.json"
    write(own_profile_path(), "mine", fingerprint())
    profile, name, warning = find_profile(None)
    assert (profile.name, name, warning) == ("mine", "mine", None)


def test_one_of_another_machine_is_passed_over() -> None:
    write(own_profile_path(), "mine", ELSEWHERE)
    profile, name, warning = find_profile(None)
    assert (profile, name) == (default_profile(), "default")
    assert warning is not None
    assert "96 cores, 512 GiB, arm64" in warning


def test_other_versions_of_the_engines_are_told() -> None:
    write(own_profile_path(), "mine", f"{hardware(fingerprint())}; pyspark 1.0, duckdb 1.0")
    _, name, warning = find_profile(None)
    assert name == "mine"
    assert warning is not None
    assert "instead of 1.0" in warning


def test_the_one_that_is_named_wins(home: Path) -> None:
    write(own_profile_path(), "mine", fingerprint())
    other = write(home / "lab.json", "lab", fingerprint())
    profile, name, warning = find_profile(other)
    assert (profile.name, name, warning) == ("lab", "lab", None)


def test_one_that_cannot_be_read_is_passed_over() -> None:
    own_profile_path().parent.mkdir(parents=True)
    own_profile_path().write_text("{")
    _, name, warning = find_profile(None)
    assert name == "default"
    assert warning is not None
    assert "profile.json" in warning


def test_explain_names_it_its_age_and_the_warning() -> None:
    note = ProfileNote.of("2026-11-01", date(2026, 11, 8), "measured elsewhere")
    text = render(explain_plan(optimize(QUERY, CATALOG), profile=note), Format.TEXT)
    assert f"profile default of {default_profile().measured}, 7 days old\n" in text
    assert "\nwarning: measured elsewhere\n" in text
    bare = render(explain_plan(optimize(QUERY, CATALOG)), Format.TEXT)
    assert "days old" not in bare
    assert "warning" not in bare


def test_the_command_says_so_once(home: Path) -> None:
    words = ["explain", str(EXAMPLES / "cq3.sql"), "--catalog", str(EXAMPLES / "catalog.sql")]
    text = CliRunner().invoke(app, [*words, "--profile", str(write(home / "lab.json", "lab", ELSEWHERE))]).output
    assert text.count("penstock calibrate") == 1
    write(own_profile_path(), "mine", fingerprint())
    text = CliRunner().invoke(app, words).output
    assert "profile mine of" in text
    assert "penstock calibrate" not in text
