"""`penstock explain --analyze`: the plan as explain prints it, and beside every estimate what a short run measured."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from connectors.spark.session import spark_session
from connectors.spark.sliding import Form
from migration.analysis import Analysis, MigAnalysis, Pair
from migration.analyze import Trial, analyze
from migration.observations import append
from optimizer.errors import HintError
from optimizer.explain.api import Format, render
from optimizer.explain.document import document
from optimizer.explain.explanation import Explanation
from optimizer.explain.text import load, number
from service.panel import Panel
from service.run import PLANNED


@dataclass(frozen=True)
class Request:
    """What --analyze was asked for."""

    spe: str = PLANNED
    url: str | None = None
    master: str = "local[*]"
    seconds: float = 15.0
    observations: Path | None = None


def run_and_render(explanation: Explanation, request: Request, to: Format, why_not: bool = False) -> str:
    """Runs the plan, and writes both the explanation and what was measured."""
    if to not in (Format.TEXT, Format.JSON):
        raise HintError(f"--analyze has no {to.value} form; write --format text or --format json")
    if request.spe not in (PLANNED, *Form):
        raise HintError(f"--analyze measures operators, and --spe {request.spe} has none; choose pane or expand")
    if request.seconds <= 0:
        raise HintError("--for must be longer than nothing; write --for 15s")
    if explanation.optimized.plan.database == "postgres" and not request.url:
        raise HintError("--analyze on PostgreSQL needs an address: --url postgresql://user@host:5432/database")
    analysis = _measured(explanation, request)
    if to is Format.TEXT:
        return render(explanation, to, why_not) + "\n" + render_analysis(analysis)
    both = {
        "plan": document(explanation).model_dump(mode="json"),
        "analysis": TypeAdapter(Analysis).dump_python(analysis, mode="json"),
    }
    return json.dumps(both, indent=2) + "\n"


def _measured(explanation: Explanation, request: Request) -> Analysis:
    panel = Panel()
    panel.message("starting Spark")
    spark = spark_session(request.master)
    try:
        with _asked_to_stop() as asked, panel:
            trial = Trial(
                request.seconds,
                None if request.spe == PLANNED else Form(request.spe),
                request.url,
                on_batch=panel.batch,
                on_message=panel.message,
                enough=asked.is_set,
            )
            panel.message(f"running the plan for {request.seconds:g} s; its output is not kept")
            analysis, observation = analyze(spark, explanation.optimized, trial)
    finally:
        spark.stop()
    if request.observations and observation:
        append(request.observations, observation)
    return analysis


@contextmanager
def _asked_to_stop() -> Iterator[threading.Event]:
    """Ctrl-C ends the run before its time; what was measured until then is shown, and the state is removed."""
    asked = threading.Event()
    before = {s: signal.signal(s, lambda *_: asked.set()) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number_, handler in before.items():
            signal.signal(number_, handler)


# -- as text ----------------------------------------------------------------------------------------------------------


def render_analysis(analysis: Analysis) -> str:
    blocks = [_head(analysis), _operators(analysis), _units(analysis)]
    blocks += ["\n".join(map(_mig, analysis.migs))] if analysis.migs else []
    if analysis.remarks:
        blocks.append("\n".join(["remarks", *(f"  - {line}" for line in analysis.remarks)]))
    return "\n\n".join(blocks) + "\n"


def _head(a: Analysis) -> str:
    dropped = f"   {a.late:,} late   {a.malformed:,} malformed" if a.late or a.malformed else ""
    ticks = f"   {a.ticks:,} ticks" if a.ticks else ""
    return (
        f"run for {a.seconds:.1f} s, {a.stream_seconds:.1f} s of stream: {a.tuples:,} tuples in   {a.batches:,} batches"
        f"{ticks}   {a.rows:,} rows out{dropped}"
    )


def _operators(a: Analysis) -> str:
    """A line per operator and leaf; an error is how many times one figure is the other."""
    found = ("measured", "error")
    rows: list[tuple[str, ...]] = [
        ("operator", "engine", "out/s estimated", *found, "size estimated", *found, "u estimated", *found)
    ]
    for leaf in a.leaves:
        rows.append((leaf.id, "", *_cells(leaf.rate, number), *_cells(leaf.size, number), "", "", ""))
    for o in a.operators:
        engine = f"{o.engine} {o.mig or o.form or ''}".rstrip()
        rows.append((o.id, engine, *_cells(o.rate_out, number), *_cells(o.size, number), *_cells(o.u, load)))
    return _aligned(rows, 2)


def _units(a: Analysis) -> str:
    rows: list[tuple[str, ...]] = [("busy share", "estimated", "measured", "error")]
    rows += [(unit.id, *_cells(unit.u, load)) for unit in a.units]
    rows.append(("  the loop itself", *_cells(a.loop, load)))
    note = (
        f"Spark's bookkeeping takes {a.bookkeeping:.3f} s of each batch. Operators in Spark are timed one by one, and "
        "each is given its share of what the run took: there they share jobs."
    )
    return _aligned(rows, 1) + "\n" + note


def _mig(mig: MigAnalysis) -> str:
    parts = (("ship in", mig.send), ("run", mig.run), ("bring back", mig.fetch))
    shown = " + ".join(f"{name} {load(p.estimated)} → {load(p.measured)}" for name, p in parts)
    return f"{mig.id}: u {load(mig.u.estimated)} → {load(mig.u.measured)} = {shown}"


def _cells(pair: Pair, show: Callable[[float], str]) -> tuple[str, str, str]:
    return show(pair.estimated), show(pair.measured), f"{pair.q_error:.1f}x" if pair.q_error < 1e6 else "huge"


def _aligned(rows: list[tuple[str, ...]], left: int) -> str:
    """Columns as wide as their widest cell, the first ones to the left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
