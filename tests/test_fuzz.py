"""A part of the fuzz bench: mutated texts are planned or refused, never a crash, never a hang."""

from __future__ import annotations

from service.bench import fuzz
from service.bench.fuzz_seeds import queries


def test_mutated_texts_are_planned_or_refused() -> None:
    report = fuzz.run(texts=1_500, seed=2024)
    assert report.crashes == ()
    assert report.hangs == ()
    assert report.accepted + report.refused == 1_500
    # A mix that only ever fails in the parser would test nothing else.
    assert report.accepted > 100
    assert report.with_position > 0.97 * report.refused


def test_a_text_follows_from_its_seed_and_number() -> None:
    one, two = fuzz.Samples(1), fuzz.Samples(2)
    assert one[5] == fuzz.Samples(1)[5]
    assert len({samples[i].text for samples in (one, two) for i in range(20)}) > 30
    assert len(queries()) > 40


def test_the_report_counts_crashes_and_hangs() -> None:
    outcomes = [
        fuzz.Outcome(0, 1.0, accepted=True),
        fuzz.Outcome(1, 2.0, position=True),
        fuzz.Outcome(2, 3.0, cause="KeyError at x.py:1", crash="Traceback …"),
        fuzz.Outcome(3, 4.0, cause="KeyError at x.py:1", crash="Traceback …"),
    ]
    report = fuzz._report(5, 7, 1.0, outcomes, [4])
    assert (report.accepted, report.refused, report.with_position, report.crashed) == (1, 1, 1, 2)
    assert [(crash.index, crash.count) for crash in report.crashes] == [(2, 2)]
    assert [hang.index for hang in report.hangs] == [4]
    assert report.slowest_ms == 4.0
