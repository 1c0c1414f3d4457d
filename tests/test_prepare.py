"""The archive of Spark's classes: made once, used where it is there, done without where it is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from connectors.spark.class_archive import OPTIONS, archive, recording, with_archive
from connectors.spark.session import java
from optimizer.errors import PenstockError
from service.prepare import make


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "an environment"))
    archive().parent.mkdir(parents=True)
    return archive()


def test_there_is_nothing_to_say_without_an_archive(environment: Path) -> None:
    assert with_archive({"spark.master": "local[1]"}) == {"spark.master": "local[1]"}


def test_java_is_told_of_the_archive_and_of_what_it_was_told_before(environment: Path) -> None:
    environment.touch()
    found = with_archive({OPTIONS: "-Xss4m"})[OPTIONS]
    assert found.startswith(f'-XX:SharedArchiveFile="{environment}" ')
    assert found.endswith(" -Xss4m")


def test_a_run_that_makes_an_archive_does_without_one(environment: Path) -> None:
    environment.touch()
    settings = {OPTIONS: recording(environment)}
    assert with_archive(settings) == settings


def test_java_starts_quietly_with_an_archive_that_is_none(environment: Path) -> None:
    environment.write_text("no archive")
    words = with_archive({})[OPTIONS].replace('"', "").replace(str(environment), "FILE").split()
    command = [java(), *(word.replace("FILE", str(environment)) for word in words), "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("openjdk")
    assert done.stderr == ""


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "share").touch()
    with pytest.raises(PenstockError, match=f"{tmp_path}/share/penstock cannot be made: Not a directory"):
        make(tmp_path / "share" / "penstock" / "spark-classes.jsa")


@pytest.mark.slow
def test_a_made_archive_is_what_spark_starts_with(environment: Path) -> None:
    make(environment)
    assert environment.stat().st_size > 1 << 20
    command = [java(), "-Xshare:auto", f"-XX:SharedArchiveFile={environment}", "--version"]
    subprocess.run(command, check=True, capture_output=True)
