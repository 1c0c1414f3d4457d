"""The plan as a person reads it first: a tree with the engine, the rates, u and the share of the bottleneck."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from costmodel.cost import FULL
from costmodel.flow import Drive, Source
from costmodel.spread import Spread
from optimizer.algebra import Aggregate, Tree, brief, duration, inputs
from optimizer.explain.alternatives import Alternative
from optimizer.explain.explanation import Explanation
from optimizer.explain.ranges import Doubt, Ranges, spread_of
from optimizer.explain.sweep import Interval
from optimizer.maximum import MaxRate
from optimizer.optimize import Optimized, show
from optimizer.physical import Mig, PhysicalPlan, PlanOperator, Where, engine_name, one_tick, operator_ids, pane_name
from optimizer.placement.problem import Units
from optimizer.sql.panes import pane_length, window_of
from optimizer.sql.several import compared

_WIDTH = 110


def render_text(explanation: Explanation, why_not: bool = False) -> str:
    """The whole explanation. Times are left out, so that equal plans are equal texts."""
    plan = explanation.optimized.plan
    blocks = [_head(explanation), _tree(plan)]
    blocks += [_mig(mig, plan) for mig in plan.migs]
    if why_not:
        blocks.append(_why_not(explanation))
    if explanation.sweep:
        blocks.append(_sweep(explanation))
    blocks.append(_estimates(explanation))
    if explanation.advice:
        blocks.append("\n".join(["advice", *(f"  - {line}" for line in explanation.advice)]))
    if explanation.trace:
        blocks.append(_trace(explanation.optimized))
    return "\n\n".join(blocks) + "\n"


def number(value: float) -> str:
    """
    >>> number(2125), number(1_000_000), number(0.5)
    ('2,125', '1.00M', '0.5')
    """
    if value >= 1e15:
        return f"{value:.1e}"
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= size:
            return f"{value / size:.2f}{unit}"
    if value >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def load(u: float) -> str:
    """
    >>> load(0.27693), load(1234.5)
    ('0.277', '1234')
    """
    return f"{u:.4f}" if u < 0.1 else f"{u:.3f}" if u < 100 else f"{u:.0f}"


def _head(explanation: Explanation) -> str:
    optimized = explanation.optimized
    plan, options = optimized.plan, optimized.options
    drive = "slide-driven, " + _count(plan.ticks, "tick") + "/s" if plan.drive is Drive.SLIDE else "tuple-driven"
    busiest = max(plan.units, key=lambda unit: unit.u)
    verdict = "feasible" if plan.cost.feasible else "NOT FEASIBLE"
    profile = f"profile {options.profile_name} of {options.profile.measured}{_age(explanation.profile.age)}"
    search = optimized.search
    orders = [
        f"{r.order} by {r.algorithm}" + (f", {_count(r.pairs, 'pair')}" if r.pairs else "") for r in search.regions
    ]
    proven = "optimal" if search.proven else "not proven optimal"
    examined = f", {search.examined:,} plans examined" if search.examined else ""
    found = explanation.ranges
    lines = [
        f"plan {plan.id}   {drive}   spark + {plan.database}   {profile}",
        f"{verdict}   Cb {load(plan.cost.bottleneck)}{_range(found.bottleneck if found else None)} ({busiest.id})   "
        f"Cu {load(plan.cost.utilization)}{_range(found.utilization if found else None)}   "
        + limit_words(explanation.max_rate),
        "phase one  " + _phase_one(optimized, orders),
        "phase two  " + (f"{search.phase_two}, {proven}{examined}" if options.hints.phase_two else "off, all in spark"),
    ]
    if explanation.profile.warning:
        lines.append(f"warning: {explanation.profile.warning}")
    return "\n".join([*lines, *(certainty(found, plan.cost.feasible) if found else [])])


def _age(days: int | None) -> str:
    return "" if days is None else ", measured today" if days == 0 else f", {_count(days, 'day')} old"


def _range(spread: Spread | None) -> str:
    return f" ({load(spread.low)} … {load(spread.high)})" if spread else ""


def certainty(found: Ranges, feasible: bool) -> list[str]:
    """A line for every figure on which the choice hangs, or one that says that it hangs on none."""
    lines = []
    if feasible and found.bottleneck.high > FULL:
        lines.append(f"not certain: Cb may exceed 1, up to {load(found.bottleneck.high)}: the plan may fall behind")
    if not feasible and found.bottleneck.low <= FULL:
        lines.append(f"not certain: Cb may stay below 1, down to {load(found.bottleneck.low)}: the plan may keep up")
    lines += [f"not certain: {doubt_words(doubt)}" for doubt in found.doubts]
    if not lines:
        lines.append(f"certain    the same plan wins at both ends of {_each(found.tried)}")
    if found.tried < found.uncertain:
        lines.append(f"not tried  {_count(found.uncertain - found.tried, 'figure')} with less effect on Cu")
    return lines


def _each(count: int) -> str:
    return "the one uncertain figure" if count == 1 else f"each of {count} uncertain figures"


def doubt_words(doubt: Doubt) -> str:
    def shown(value: float) -> str:
        return share(value) if doubt.is_share else number(value)

    verb = "keeps" if doubt.is_share else "is"
    side = "more" if doubt.upwards else "less"
    spread = f"{shown(doubt.spread.low)} … {shown(doubt.spread.high)}"
    return (
        f"if {doubt.figure} {verb} {shown(doubt.value)} or {side} (it may: {spread}), {'; '.join(doubt.moves)}: "
        f"Cu {load(doubt.better.utilization)} instead of {load(doubt.kept.utilization)} at {_end(doubt, shown)}"
    )


def _end(doubt: Doubt, shown: Callable[[float], str]) -> str:
    return shown(doubt.spread.high if doubt.upwards else doubt.spread.low)


def share(value: float) -> str:
    """
    >>> share(0.004), share(0.5)
    ('0.4%', '50%')
    """
    return f"{value * 100:.3g}%"


def _phase_one(optimized: Optimized, orders: list[str]) -> str:
    if not optimized.options.hints.phase_one:
        return "off, as written"
    return "; ".join(orders) if orders else "nothing to order"


def _count(value: float, noun: str) -> str:
    return f"{number(value)} {noun}" + ("" if value == 1 else "s")


def limit_words(limit: MaxRate) -> str:
    if limit.total is None:
        return limit.note
    streams = ", ".join(f"{name} {number(rate)}" for name, rate in limit.streams.items())
    return f"feasible up to {streams} tuples/s"


def _tree(plan: PhysicalPlan) -> str:
    ids = operator_ids(plan.tree)
    by_id = {o.id: o for o in plan.operators}
    leaf_of = {leaf.id: leaf for leaf in plan.leaves}
    busiest = plan.cost.bottleneck or 1.0
    rows: list[tuple[str, ...]] = [("engine", "in/s", "out/s", "u", "share", "plan")]
    for prefix, node in _walk(plan.tree):
        name = ids.get(id(node), "")
        label = prefix + brief(node)
        if name in by_id:
            o = by_id[name]
            engine = " ".join(filter(None, (engine_name(o, plan.database), o.mig, o.form)))
            guess = "~" if o.source is Source.DEFAULT else ""
            share = f"{o.u / busiest:.1%}"
            rows.append((engine, number(o.rate_in), guess + number(o.rate_out), load(o.u), share, f"{label}   {o.id}"))
        elif name in leaf_of:
            leaf = leaf_of[name]
            rows.append(("", "", number(leaf.rate), "", "", f"{label}   {number(leaf.size)} tuples"))
        else:
            rows.append(("", "", "", "", "", label))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in range(1, 5)), row[5]]
        lines.append("  ".join(cells).rstrip())
    loads = "   ".join(f"{unit.id} {load(unit.u)}" for unit in sorted(plan.units, key=lambda unit: -unit.u)[:6])
    if plan.units_are is not Units.LOOP:
        loads += f"   (Spark's batches take {load(plan.loop)} of the loop, whatever runs in them)"
    lines.append(f"busy share of each unit that runs on its own: {loads}")
    return "\n".join(lines)


def _walk(tree: Tree) -> Iterator[tuple[str, Tree]]:
    """Every node with the lines that connect it to its parent."""
    stack: list[tuple[Tree, str, str]] = [(tree, "", "")]
    while stack:
        node, own, below = stack.pop()
        yield own, node
        children = inputs(node)
        for i, child in reversed(list(enumerate(children))):
            last = i == len(children) - 1
            stack.append((child, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  ")))


def _mig(mig: Mig, plan: PhysicalPlan) -> str:
    run = mig.u - mig.send - mig.fetch
    lines = [
        f"{mig.id} in {mig.engine}: {', '.join(mig.operators)}",
        f"  u {load(mig.u)} = ship in {load(mig.send)} + run {load(run)} + bring back {load(mig.fetch)}"
        + (f"; ships in {', '.join(mig.ships)}" if mig.ships else ""),
    ]
    inside = [o for o in plan.operators if o.mig == mig.id]
    lines += [_panes(o) for o in inside if o.form]
    parts = compared(inside[-1].node, {id(o.node): pane_name(o.id) for o in inside if o.form})
    if parts is not None and one_tick(plan.tree):
        lines.append(
            f"  ticks of one batch share a run: the tuples of {parts.window.alias} are joined once for all of them"
        )
    return "\n".join(lines + ["    " + line for line in mig.sql.split("\n")])


def _panes(o: PlanOperator) -> str:
    assert isinstance(o.node, Aggregate)
    window, length = window_of(o.node), pane_length(o.node)
    assert window is not None
    assert length is not None
    each = duration(length).lower().removeprefix("1 ")
    return f"  {pane_name(o.id)} keeps {o.id} of each {each} of {window.alias}, made once when a tick has reached it"


def _why_not(explanation: Explanation) -> str:
    plan = explanation.optimized.plan
    chosen = Alternative(
        "chosen",
        plan.cost,
        explanation.max_rate,
        tuple(o.id for o in plan.operators if o.where is Where.SPE),
        tuple(o.id for o in plan.operators if o.where is Where.DB),
    )
    rows = [("why not", "Cb", "Cu", "", "feasible up to", "in spark")]
    for other in (chosen, *explanation.alternatives):
        if other.cost is None or other.max_rate is None:
            rows.append((other.name, "-", "-", other.note, "", ""))
            continue
        verdict = "feasible" if other.cost.feasible else "infeasible"
        limit = f"{number(other.max_rate.total)}/s" if other.max_rate.total else other.max_rate.note
        spark = ", ".join(other.in_spark) or "nothing"
        where = spark + (f"; joins {other.note}" if other.note else "")
        rows.append((other.name, load(other.cost.bottleneck), load(other.cost.utilization), verdict, limit, where))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row[:5], widths, strict=True)), row[5]]).rstrip()
        for row in rows
    )


def _sweep(explanation: Explanation) -> str:
    over = explanation.sweep_range
    assert over is not None
    lines = [f"best plan by rate of {over.stream} (tuples/s)"]
    for interval in explanation.sweep:
        lines.append(f"  {number(interval.low):>9} .. {number(interval.high):>9}  {sweep_words(interval)}")
    return "\n".join(lines)


def sweep_words(interval: Interval) -> str:
    plan = interval.optimized.plan
    spark = ", ".join(o.id for o in plan.operators if o.where is Where.SPE) or "nothing"
    database = ", ".join(o.id for o in plan.operators if o.where is Where.DB) or "nothing"
    verdict = "" if interval.feasible else "   INFEASIBLE"
    return f"spark: {spark}   {plan.database}: {database}{verdict}"


def _estimates(explanation: Explanation) -> str:
    lines = ["estimates"]
    for estimate in explanation.optimized.estimates:
        what = estimate.what if len(estimate.what) <= _WIDTH else estimate.what[: _WIDTH - 1] + "…"
        spread = spread_of(estimate) if explanation.uncertain else estimate.spread
        lines.append(f"  {number(estimate.value):>9}  {estimate.source.label:<8}  {what}{_interval(spread)}")
    return "\n".join(lines)


def _interval(spread: Spread | None) -> str:
    if spread is None:
        return ""
    basis = f"{spread.sample:,} tuples" if spread.sample else "a guess"
    return f"   ({number(spread.low)} … {number(spread.high)}, {basis})"


def _trace(optimized: Optimized) -> str:
    blocks, last = [], ""
    for step in optimized.steps:
        shown = show(step.tree)
        blocks.append(f"after: {step.name}\n" + ("  (no change)" if shown == last else shown))
        last = shown
    return "\n\n".join(blocks)
