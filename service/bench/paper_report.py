"""The page on the experiments of paper 001, written from their figures, so that it says what was measured last."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from migration.analysis import SMALLEST_U
from service.bench.accuracy import Accuracy, Spread
from service.bench.crossover import Crossovers
from service.bench.curve import Basis, Reading
from service.bench.figure5 import Figure5
from service.bench.figure6 import Figure6
from service.bench.paper import Run, ratio, read, shown
from service.bench.plans import Kind, label
from service.bench.quick import Quick, rows_of
from service.bench.table2 import PAPER, Report
from service.bench.verdicts import Decision
from service.bench.window_slide import WindowSlide

# What section 8 of the paper says, to be read beside our figures.
CLAIMS = {
    "cq1": "selections in the SPE at all rates; about 8 times the throughput of the pure SPE plan",
    "cq2": "as CQ1",
    "cq3": "selections in the SPE below 20k, the join as well above; the pick misses narrowly at 20k",
    "cq4": "as CQ3, but the pure SPE plan sustains much more",
    "cq5": "the selection in the SPE below 10k, all in the SPE above; the pure SPE plan has the highest maximum",
    "cq6": "the plan changes twice, at 10k and 20k; the pick misses narrowly at 25k",
}
CHECK = {
    "cq1": "equal",
    "cq2": "equal",
    "cq3": "worse above 20k without the check",
    "cq4": "worse above 20k without the check",
    "cq5": "equal",
    "cq6": "worse above 30k without the check",
}
WITHIN = 1.1  # times what the picked plan sustains: as good as the best, in the noise of a measurement
NAMED = 12  # parts that there was no time for; more are only counted
HEAD = """# The experiments of paper 001

This page is written by `penstock bench report` from `benchmarks/results/*.json`; `make bench` measures and writes it.

The quantity is u(plan, rate): seconds of work per second of stream. Windows are full from the start, the stream is read
as fast as it goes in batches of B seconds until they get no faster, and u is what the last of them take over B. The
loop is serial, so a plan keeps up exactly if u ≤ 1. At a requested rate r the actual throughput is the smaller of r and
r/u. The maximum throughput is the rate at which u is 1, interpolated between two neighbouring measured rates (log-log;
steps of at most 1.43; of 2.5 for window() and Spark's own query, which are orders of magnitude behind). A batch that
takes several times B is given up: then only a bound is known, and `≥` or `≤` says so. Spark's own query (`native`)
starts with empty windows, and its u only grows from there: its maximum is an upper bound. The paper's machine had 24
cores and its engines were others: orders and shapes can be compared, figures cannot.
"""


def render(results: Path, page: Path) -> str:
    """`page` is the directory that the text will be in, which links to pictures start from."""
    parts = [HEAD]
    if about := read(results, "paper", Run):
        parts.append(_about(about))
    if times := read(results, "table2", Report):
        parts.append(_table2(times, results, page))
    if five := read(results, "figure5", Figure5):
        parts.append(_figure5(five, results, page))
    if six := read(results, "figure6", Figure6):
        parts.append(_figure6(six, results, page))
    if slides := read(results, "window-slide", WindowSlide):
        parts.append(_window_slide(slides, results, page))
    if changes := read(results, "crossover", Crossovers):
        parts.append(_crossover(changes, results, page))
    if decided := read(results, "decision", Decision):
        parts.append(_decision(decided, results, page))
    if errors := read(results, "accuracy", Accuracy):
        parts.append(_accuracy(errors))
    if quick := read(results, "quick", Quick):
        parts.append(_quick(quick))
    return "\n".join(part.rstrip() + "\n" for part in parts)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _picture(results: Path, page: Path, name: str, text: str) -> str:
    path = results / f"{name}.svg"
    return f"![{text}]({os.path.relpath(path, page)})\n\n" if path.exists() else ""


def _left_out(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"\nThere was no time for {len(names)} parts: {'; '.join(names[:NAMED])}{more}.\n" if names else ""


def _rate(reading: Reading | None) -> str:
    return shown(reading, "{:,.0f}")


def _about(run: Run) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in sorted(run.versions.items()))
    failed = [f"- {f.what}: {f.why}" for f in run.failures]
    filled = "".join(f", with windows in {name} up to {rate:,.0f}" for name, rate in run.filled.items())
    text = (
        f"Measured {run.begun} on {run.cores} cores ({run.machine}; {versions}), in {run.minutes:.0f} minutes of "
        f"{run.budget:.0f} with {run.trials} trials of {run.trial_minutes:.0f} minutes together; where a file kept the "
        f"trials of runs before this one, they are among them. B = {run.batch:g} s, {run.measured_batches} batches "
        f"each, given up after {run.give_up:g} B. Maxima are looked for up to {run.highest:,.0f} tuples/s{filled}.\n"
    )
    return text + ("\nTrials that failed:\n" + "\n".join(failed) + "\n" if failed else "")


def _table2(found: Report, results: Path, page: Path) -> str:
    rows = []
    for r in found.rows:
        ways = r.query.removesuffix("-way")
        paper = PAPER.get(int(ways)) if ways.isdigit() else None
        search = "-" if r.paper_search_ms is None else f"{r.paper_search_ms:.2f}"
        theirs = (f"{paper[0]}", f"{paper[1]:,}", f"{paper[2]:,}") if paper else ("-", "-", "-")
        examined = "-" if r.examined is None else f"{r.examined:,}"
        rows.append(
            (r.query, f"{r.phase_one_ms:.2f}", theirs[0], examined, theirs[1], search, f"{r.exact_ms:.3f}", theirs[2])
        )
    head = (
        "query",
        "phase one",
        "paper",
        "plans examined",
        "paper",
        "phase two, paper's search",
        "phase two, exact",
        "paper",
    )
    return (
        f"## Optimization time (Tables 2 and 3)\n\nMedians of {found.runs} runs, in ms.\n\n"
        + _picture(results, page, "table2", "optimization times")
        + _table(head, rows)
    )


def _figure5(found: Figure5, results: Path, page: Path) -> str:
    text = "## Picked plans and maximum throughput (Figure 5)\n\n"
    for database in dict.fromkeys(p.database for p in found.panels):
        own = [p for p in found.panels if p.database == database]
        text += f"### Spark + {database}\n\n" + _picture(
            results, page, f"figure5-{database}", f"throughputs on {database}"
        )
        rows = []
        for p in own:
            pure = {b.kind: b.maximum for b in p.baselines}
            spe = max((r for k, r in pure.items() if k is not Kind.DB and r), key=lambda r: r.value, default=None)
            maxima = [
                _rate(r) for r in (p.optimal, *(pure.get(k) for k in (Kind.DB, Kind.PANE, Kind.EXPAND, Kind.NATIVE)))
            ]
            ratios = [shown(ratio(p.optimal, other), "{:.1f}") for other in (spe, pure.get(Kind.DB))]
            rows.append((p.query.upper(), *maxima, *ratios, CLAIMS[p.query]))
        head = (
            "query",
            "picked",
            "all in database",
            "Spark, panes",
            "Spark, window()",
            "Spark's own query",
            "× best Spark",
            "× database",
            "the paper",
        )
        text += "Maximum throughput, tuples/s:\n\n" + _table(head, rows) + "\n"
        text += "Plans picked, and what came of them:\n\n"
        picked = [
            (p.query.upper(), _span(one.since, one.until), label(one.in_spark), one.how, _rate(one.maximum))
            for p in own
            for one in p.picked
        ]
        text += _table(("query", "picked at", "in Spark", "aggregates", "maximum"), picked) + "\n"
        steps = []
        for p in own:
            for s in p.steps:
                mark = "" if s.u is None or s.u.basis is Basis.MEASURED else "*"
                u = "-" if s.u is None else f"{shown(s.u, '{:.2f}')}{mark}"
                steps.append(
                    (p.query.upper(), f"{s.rate:,.0f}", f"{s.predicted:.2f}", u, f"{_rate(s.throughput)}{mark}")
                )
        text += (
            _table(("query", "requested", "predicted u", "u", "actual"), steps)
            + "\n`*`: not measured at this rate.\n\n"
        )
    return text + _left_out(found.left_out)


def _span(since: float, until: float | None) -> str:
    return f"from {since:,.0f}" if until is None else f"{since:,.0f} to {until:,.0f}"


def _figure6(found: Figure6, results: Path, page: Path) -> str:
    rows = []
    for p in found.panels:
        if not p.differences:
            rows.append((p.query.upper(), p.database, p.units, "all", "equal", "", "", CHECK[p.query]))
        for d in p.differences:
            through = (_rate(d.checked_throughput), _rate(d.unchecked_throughput))
            picks = f"{label(d.checked)} / {label(d.unchecked)}"
            rows.append((p.query.upper(), p.database, p.units, f"{d.rate:,.0f}", picks, *through, CHECK[p.query]))
    head = (
        "query",
        "database",
        "units",
        "rate",
        "in Spark with / without",
        "actual with",
        "actual without",
        "the paper",
    )
    return (
        "## With and without the feasibility check (Figure 6)\n\nWhere all shares one loop (`loop`), the bottleneck is "
        "the utilization and the check cannot change a pick. Under the paper's rule (`operator`) it can; what is "
        "picked then runs in the same loop.\n\n"
        + _picture(results, page, "figure6", "with and without the check")
        + _table(head, rows)
        + _left_out(found.left_out)
    )


def _window_slide(found: WindowSlide, results: Path, page: Path) -> str:
    ratios = list(dict.fromkeys(r.ratio for r in found.rows))
    rows = []
    for database, kind in dict.fromkeys((r.database, r.kind) for r in found.rows):
        own = {r.ratio: r for r in found.rows if (r.database, r.kind) == (database, kind)}
        cells = []
        for times in ratios:
            r = own.get(times)
            known = r is not None and r.u is not None
            cells.append(f"{'≥ ' if r.censored or not r.filled else ''}{r.u:.2f}" if r and known else "-")
        rows.append((database, kind.value, *cells))
    head = ("database", "plan", *(f"{times:,}" for times in ratios))
    return (
        f"## Window over slide\n\nu at {found.rate:,.0f} tuples/s, by window size over slide. After a plan was given "
        "up, longer windows are not tried.\n\n"
        + _picture(results, page, "window-slide", "u by window over slide")
        + _table(head, rows)
        + _left_out(found.left_out)
    )


def _crossover(found: Crossovers, results: Path, page: Path) -> str:
    rows = []
    for c in found.found:
        measured = "-" if c.measured is None else f"{c.measured:,.0f}"
        off = "-" if c.measured is None else f"{c.measured / c.predicted - 1:+.0%}"
        rows.append(
            (c.query.upper(), c.database, label(c.before), label(c.after), f"{c.predicted:,.0f}", measured, off)
        )
    head = ("query", "database", "in Spark below", "in Spark above", "predicted", "measured", "measured is off by")
    return (
        "## Where the best plan changes\n\nThe rates at which `explain --sweep` says that another plan becomes the "
        "best, as far as the plans keep up there, and the rates at which it does: both plans in turns, medians. "
        "Changes at rates whose windows take minutes to fill are only predicted.\n\n"
        + _picture(results, page, "crossover", "u of two plans by rate")
        + _table(head, rows)
        + _left_out(found.left_out)
    )


def _decision(found: Decision, results: Path, page: Path) -> str:
    rows = []
    for c in found.cases:
        for at in c.rates:
            known = [m for m in at.placements if m.u is not None]
            regret = "-" if at.regret is None else f"{at.regret:.2f}"
            best = "-" if at.best is None else label(at.best)
            pure = "-" if at.pure_regret is None else f"{at.pure_regret:.2f}"
            more = "-" if c.throughput_regret is None else f"{c.throughput_regret:.2f}"
            count = f"{len(known)} of {len(at.placements)}{'' if c.complete else ' (sample)'}"
            exact = sum(m.basis is Basis.MEASURED for m in known)
            rows.append((c.query.upper(), c.database, f"{at.rate:,.0f}", count, f"{exact}", regret, pure, more, best))
    head = (
        "query",
        "database",
        "rate",
        "placements known",
        "measured here",
        "regret in u",
        "against pure plans",
        "regret in maximum",
        "best measured: in Spark",
    )
    share = f"{found.right / found.decided:.1%}" if found.decided else "-"
    misses = "\n".join(f"- {line}" for line in found.misses)
    regrets = [c.throughput_regret for c in found.cases if c.throughput_regret is not None]
    close = sum(regret <= WITHIN for regret in regrets)
    decided = [m for c in found.cases for at in c.rates for m in at.placements if m.right is not None]
    at_the_rate = [m for m in decided if m.basis is Basis.MEASURED]
    return (
        "## Decision quality\n\nu grows with the rate: a placement that keeps up with a higher rate, or fails at a "
        "lower one, is known without a trial at the rate itself. Regret in u: u of the picked plan over the smallest u "
        "measured at that rate; against pure plans: over the smaller u of all in Spark and all in the database. Regret "
        "in maximum: the largest maximum throughput over the picked plan's, each interpolated from the measured "
        "rates.\n\n"
        + _picture(results, page, "decision", "predicted against measured u")
        + _table(head, rows)
        + f"\nMaximum throughput within {WITHIN - 1:.0%} of the best placement measured: {close} of {len(regrets)} "
        "queries and databases.\n"
        + f"\nFeasibility verdicts: {found.right} of {found.decided} right ({share}); {found.undecided} of these with "
        f"a measured u within 5% of 1. {len(at_the_rate)} were measured at the rate itself, with "
        f"{sum(bool(m.right) for m in at_the_rate)} right; the other plans keep up with a higher "
        "rate, fail at a lower one, or were given up.\n"
        + (f"\nWrong verdicts:\n\n{misses}\n" if misses else "")
        + _left_out(found.left_out)
    )


def _accuracy(found: Accuracy) -> str:
    def row(name: str, spread: Spread | None) -> tuple[str, ...]:
        return (
            (name, *(f"{v:.2f}" for v in (spread.median, spread.p95, spread.worst)))
            if spread
            else (name, "-", "-", "-")
        )

    rows = [row("rate out", found.rates), row("size", found.sizes), row("u", found.u)]
    worst = sorted(found.operators, key=lambda o: -o.u_error)[:10]
    named = [
        (
            o.query.upper(),
            o.database,
            o.kind.value,
            o.operator,
            o.engine,
            f"{o.u_estimated:.4f}",
            f"{o.u_measured:.4f}",
            f"{o.u_error:.1f}",
        )
        for o in worst
    ]
    return (
        f"## Estimates per operator\n\nq-errors over {len(found.operators)} operators with full windows; "
        f"those of u over the {found.working} that are estimated or measured at more than {SMALLEST_U:g}.\n\n"
        + _table(("figure", "median", "95%", "worst"), rows)
        + "\nThe largest errors of u:\n\n"
        + _table(("query", "database", "plan", "operator", "engine", "estimated", "measured", "q-error"), named)
        + _left_out(found.left_out)
    )


def _quick(found: Quick) -> str:
    head = (
        "query",
        "database",
        "rate",
        "u picked",
        "u all in Spark",
        "u all in database",
        "Spark / picked",
        "database / picked",
    )
    return f"## The quick run\n\n`make bench QUICK=1`, {found.run.begun}.\n\n" + _table(head, rows_of(found))
