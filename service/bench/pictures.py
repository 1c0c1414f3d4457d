"""The experiments as pictures, in the manner of the paper's: PNG and SVG, without a display."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from optimizer.placement.problem import Units
from service.bench.crossover import Crossovers
from service.bench.curve import Basis, Reading
from service.bench.figure5 import Figure5, Panel
from service.bench.figure6 import Figure6
from service.bench.plans import ALL_IN_SPARK, Kind
from service.bench.table2 import Report as Table2
from service.bench.verdicts import Decision
from service.bench.window_slide import WindowSlide

BLUE, ORANGE, GREEN, RED, GREY, PURPLE = "#1f5fa8", "#d9822b", "#3a8f4d", "#b8322a", "#8a8a8a", "#7a4fa3"
COLOURS = {
    Kind.OPTIMAL: BLUE,
    Kind.DB: GREEN,
    Kind.PANE: ORANGE,
    Kind.EXPAND: RED,
    Kind.NATIVE: PURPLE,
}
NAMES = {
    Kind.OPTIMAL: "optimal",
    Kind.DB: "all in database",
    Kind.PANE: "all in Spark, panes",
    Kind.EXPAND: "all in Spark, window()",
    Kind.NATIVE: "Spark's own query",
}
MARKERS = ("o", "s", "^", "D", "v", "P")
_STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "svg.fonttype": "none",
    "svg.hashsalt": "penstock",
}


def _save(figure: Figure, directory: Path, name: str) -> list[Path]:
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{name}.{suffix}" for suffix in ("png", "svg")]
    for path in paths:
        metadata = {"Date": None} if path.suffix == ".svg" else None  # the same figures give the same file
        figure.savefig(path, dpi=130, metadata=metadata)
    return paths


def _panels(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[list[Axes]]]:
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, [list(row) for row in figure.subplots(rows, columns, squeeze=False)]


def _grid(count: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """So many small ones, three in a row at most."""
    columns = min(3, count)
    figure, rows = _panels(-(-count // columns), columns, width, height)
    flat = [one for row in rows for one in row]
    for one in flat[count:]:
        one.set_visible(False)
    return figure, flat[:count]


def figure5(found: Figure5, directory: Path) -> list[Path]:
    """One picture per database: requested against actual throughput, and beside it the maxima."""
    paths = []
    with mpl.rc_context(_STYLE):
        for database in dict.fromkeys(p.database for p in found.panels):
            own = [p for p in found.panels if p.database == database]
            figure, axes = _panels(len(own), 2, 4.2, 2.3)
            for panel, (left, right) in zip(own, axes, strict=True):
                _throughputs(left, panel)
                _maxima(right, panel)
            figure.suptitle(f"Spark + {database}: throughput of picked plans (left), maximum throughput (right)")
            paths += _save(figure, directory, f"figure5-{database}")
    return paths


def _throughputs(axes: Axes, panel: Panel) -> None:
    steps = [s for s in panel.steps if s.throughput is not None]
    top = max((s.rate for s in panel.steps), default=1e4)
    axes.plot([1e3, top], [1e3, top], color=GREY, linewidth=0.8, linestyle=":", label="requested")
    for number, plan in enumerate(dict.fromkeys(s.plan for s in steps)):
        marker, own = MARKERS[number % len(MARKERS)], [s for s in steps if s.plan == plan]
        for measured in (True, False):
            some = [s for s in own if (s.throughput is not None and s.throughput.basis is Basis.MEASURED) is measured]
            picked = next((p.in_spark for p in panel.picked if p.plan == plan), ())
            axes.plot(
                [s.rate for s in some],
                [s.throughput.value for s in some if s.throughput],
                linestyle="none",
                marker=marker,
                markersize=4.5,
                color=BLUE,
                markerfacecolor=BLUE if measured else "white",
                label=_short(picked)
                if measured == any(s.throughput and s.throughput.basis is Basis.MEASURED for s in own)
                else None,
            )
    axes.set(
        xscale="log", yscale="log", title=panel.query.upper(), xlabel="requested, tuples/s", ylabel="actual, tuples/s"
    )
    axes.legend(loc="lower right", title="in Spark (hollow: interpolated)", title_fontsize=7)


def _maxima(axes: Axes, panel: Panel) -> None:
    bars: list[tuple[str, Reading | None, str]] = [(NAMES[Kind.OPTIMAL], panel.optimal, COLOURS[Kind.OPTIMAL])]
    bars += [(NAMES[b.kind], b.maximum, COLOURS[b.kind]) for b in panel.baselines]
    names = [name for name, _, _ in bars]
    values = [r.value if r else 0.0 for _, r, _ in bars]
    axes.barh(names, values, color=[colour for _, _, colour in bars], height=0.6)
    for y, (_, reading, _) in enumerate(bars):
        text = "not measured" if reading is None else f"{bound(reading)}{reading.value:,.0f}"
        axes.text(reading.value if reading else 0.0, y, f" {text}", va="center", fontsize=7)
    axes.invert_yaxis()
    axes.set(title=panel.query.upper(), xlabel="maximum throughput, tuples/s", xlim=(0, 1.35 * max([*values, 1.0])))
    axes.grid(visible=False, axis="y")


def bound(reading: Reading) -> str:
    return {Basis.AT_LEAST: "≥ ", Basis.AT_MOST: "≤ "}.get(reading.basis, "")


def _short(operators: Sequence[str], most: int = 4) -> str:
    shown = ", ".join(operators[:most]) or "nothing"
    return shown if len(operators) <= most else f"{shown}, … ({len(operators)})"


def figure6(found: Figure6, directory: Path) -> list[Path]:
    """The paper's rule, under which the check can matter, and whatever differs under another one; no mere bounds."""
    own = [p for p in found.panels if p.units == Units.OPERATOR or p.differences]
    if not own:
        return []
    with mpl.rc_context(_STYLE):
        figure, axes = _grid(len(own), 3.4, 2.5)
        for panel, one in zip(own, axes, strict=True):
            for name, colour, marker, values in (
                ("with the check", BLUE, "o", [s.checked_throughput for s in panel.steps]),
                ("without", RED, "x", [s.unchecked_throughput for s in panel.steps]),
            ):
                known = [(s.rate, v) for s, v in zip(panel.steps, values, strict=True) if v]
                shown = [(rate, v.value) for rate, v in known if v.basis is not Basis.AT_MOST]
                one.plot([r for r, _ in shown], [v for _, v in shown], color=colour, marker=marker, label=name)
            one.set(
                xscale="log",
                yscale="log",
                title=f"{panel.query.upper()}, {panel.database}, units: {panel.units}",
                xlabel="requested, tuples/s",
                ylabel="actual, tuples/s",
            )
            one.legend()
        return _save(figure, directory, "figure6")


def window_slide(found: WindowSlide, directory: Path) -> list[Path]:
    databases = list(dict.fromkeys(r.database for r in found.rows))
    with mpl.rc_context(_STYLE):
        figure, axes = _panels(1, len(databases), 4.6, 3.4)
        for database, one in zip(databases, axes[0], strict=True):
            for kind, colour in COLOURS.items():
                # All in Spark is the same beside any database, and measured beside one.
                own = [r for r in found.rows if r.database == database or kind in ALL_IN_SPARK]
                rows = [r for r in own if r.kind is kind and r.u is not None]
                one.plot(
                    [r.ratio for r in rows], [r.u for r in rows if r.u], color=colour, marker="o", label=NAMES[kind]
                )
                given_up = [r for r in rows if r.censored]
                one.plot([r.ratio for r in given_up], [r.u for r in given_up if r.u], "^", color=colour, markersize=9)
            one.axhline(1.0, color=GREY, linestyle=":", linewidth=0.8)
            one.set(
                xscale="log",
                yscale="log",
                title=f"Spark + {database}, {found.rate:,.0f} tuples/s (triangle: given up)",
                xlabel="window size / slide",
                ylabel="u, seconds of work per second",
            )
            one.legend()
        return _save(figure, directory, "window-slide")


def crossover(found: Crossovers, directory: Path) -> list[Path]:
    """u of the two plans by rate, where they cross, and where they should; what was not measured is not drawn."""
    own = [c for c in found.found if c.points_before and c.points_after]
    if not own:
        return []
    with mpl.rc_context(_STYLE):
        figure, axes = _grid(len(own), 3.6, 2.7)
        for change, one in zip(own, axes, strict=True):
            for points, operators, colour in (
                (change.points_before, change.before, GREEN),
                (change.points_after, change.after, ORANGE),
            ):
                label = f"in Spark: {_short(operators, 3)}"
                one.plot([p.rate for p in points], [p.u for p in points], color=colour, marker="o", label=label)
            one.axvline(change.predicted, color=GREY, linestyle=":", label="predicted")
            if change.measured is not None:
                one.axvline(change.measured, color=BLUE, linewidth=0.8, label="measured")
            title = f"{change.query.upper()}, {change.database}"
            highest = max(p.u for p in (*change.points_before, *change.points_after))
            one.set(xscale="log", title=title, xlabel="tuples/s", ylabel="u", ylim=(0, 1.6 * highest))
            one.xaxis.set_major_formatter("{x:,.0f}")
            one.xaxis.set_minor_formatter("{x:,.0f}")  # often less than a decade is shown
            one.tick_params(axis="x", which="both", labelrotation=40)
            one.legend(loc="upper left")
        return _save(figure, directory, "crossover")


def decision(found: Decision, directory: Path) -> list[Path]:
    """Predicted against measured u; what lies left above or right below of the cross at 1 is a wrong verdict."""
    databases = list(dict.fromkeys(c.database for c in found.cases))
    if not databases:
        return []
    with mpl.rc_context(_STYLE):
        figure, axes = _panels(1, len(databases), 4.6, 4.0)
        for database, one in zip(databases, axes[0], strict=True):
            rows = [m for c in found.cases if c.database == database for at in c.rates for m in at.placements if m.u]
            for picked, colour, size, name in ((False, GREY, 4, "other placements"), (True, BLUE, 7, "picked")):
                for basis, marker in ((Basis.MEASURED, "o"), (Basis.AT_LEAST, "^")):
                    some = [m for m in rows if m.picked is picked and m.basis is basis]
                    shown = name if basis is Basis.MEASURED else f"{name}, given up" if some else None
                    one.plot(
                        [m.predicted for m in some],
                        [m.u for m in some if m.u],
                        marker,
                        color=colour,
                        markersize=size,
                        alpha=0.8,
                        label=shown,
                    )
            one.axhline(1.0, color=RED, linewidth=0.8)
            one.axvline(1.0, color=RED, linewidth=0.8)
            one.axline((1.0, 1.0), slope=1.0, color=GREY, linestyle=":", linewidth=0.8)
            one.set(xscale="log", yscale="log", title=f"Spark + {database}", xlabel="predicted u", ylabel="measured u")
            one.legend()
        return _save(figure, directory, "decision")


def table2(found: Table2, directory: Path) -> list[Path]:
    """Optimization times, by query: the paper's search against the exact one."""
    with mpl.rc_context(_STYLE):
        figure, axes = _panels(1, 1, 7.0, 3.2)
        one, rows = axes[0][0], found.rows
        for offset, (name, colour, values) in enumerate(
            (
                ("phase one", GREY, [r.phase_one_ms for r in rows]),
                ("phase two, the paper's search", ORANGE, [r.paper_search_ms or 0.0 for r in rows]),
                ("phase two, exact", BLUE, [r.exact_ms for r in rows]),
            )
        ):
            one.bar([i + 0.27 * (offset - 1) for i in range(len(rows))], values, 0.25, color=colour, label=name)
        one.set_xticks(range(len(rows)), [r.query for r in rows])
        one.set(yscale="log", ylabel="ms", title="Optimization time (the 200-way join is beyond the paper's search)")
        one.grid(visible=False, axis="x")
        one.legend()
        return _save(figure, directory, "table2")
