"""Malformed records are kept as they came and counted once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connectors.dead_letter import DeadLetters
from optimizer.errors import PenstockError


def malformed(*records: str | None) -> pa.Table:
    reasons = ["no number"] * len(records)
    return pa.table({"_raw": pa.array(records, pa.string()), "_malformed": pa.array(reasons, pa.string())})


def kept(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(directory.glob("*.jsonl")) for line in file.read_text().splitlines()]


def test_records_are_kept_with_batch_and_reason(tmp_path: Path) -> None:
    DeadLetters(tmp_path).write("plugs", 12, malformed('{"a": "ü\n', None))
    assert [p.name for p in sorted((tmp_path / "plugs").iterdir())] == ["batch-000000000012.jsonl", "count.json"]
    assert kept(tmp_path / "plugs") == [
        {"batch": 12, "reason": "no number", "record": '{"a": "ü\n'},
        {"batch": 12, "reason": "no number", "record": None},
    ]


def test_the_count_survives_a_restart_and_a_replay(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path)
    assert letters.count("plugs") == 0
    letters.write("plugs", 0, malformed("a", "b"))
    letters.write("plugs", 1, malformed())
    letters.write("plugs", 2, malformed("c"))
    letters.write("plugs", 2, malformed("c"))
    letters.write("houses", 2, malformed("d"))
    assert letters.count("plugs") == 3

    again = DeadLetters(tmp_path)
    assert again.count("plugs") == 3
    again.write("plugs", 2, malformed("c"))
    again.write("plugs", 3, malformed("e"))
    assert (again.count("plugs"), again.count("houses")) == (4, 1)
    assert [line["record"] for line in kept(tmp_path / "plugs")] == ["a", "b", "c", "e"]


def test_a_crash_between_the_file_and_the_count_counts_once(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path)
    letters.write("plugs", 0, malformed("a"))
    before = (tmp_path / "plugs" / "count.json").read_text()
    letters.write("plugs", 1, malformed("b", "c"))
    (tmp_path / "plugs" / "count.json").write_text(before)

    again = DeadLetters(tmp_path)
    assert again.count("plugs") == 1
    again.write("plugs", 1, malformed("b", "c"))
    assert again.count("plugs") == 3
    assert [line["record"] for line in kept(tmp_path / "plugs")] == ["a", "b", "c"]


def test_bytes_that_are_no_text_are_kept(tmp_path: Path) -> None:
    raw = pa.array([b"a\xffb"]).view(pa.string())
    DeadLetters(tmp_path).write("plugs", 0, pa.table({"_raw": raw, "_malformed": ["encoding"]}))
    assert [line["record"] for line in kept(tmp_path / "plugs")] == ["a\\xffb"]


@pytest.mark.parametrize("stream", ["..", "a/b", ".", "größe"])
def test_any_name_of_a_stream_stays_inside(tmp_path: Path, stream: str) -> None:
    letters = DeadLetters(tmp_path / "dead")
    letters.write(stream, 0, malformed("a"))
    assert letters.count(stream) == 1
    assert len(list((tmp_path / "dead").glob("*/batch-*.jsonl"))) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["dead"]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "dead").write_text("")
    with pytest.raises(PenstockError, match="malformed records"):
        DeadLetters(tmp_path / "dead").write("plugs", 0, malformed("a"))


def test_a_damaged_count_is_said(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path)
    letters.write("plugs", 0, malformed("a"))
    (tmp_path / "plugs" / "count.json").write_text("{")
    with pytest.raises(PenstockError, match=r"count\.json cannot be read"):
        letters.count("plugs")
