"""What a person could do better: one line each, with the reason."""

from __future__ import annotations

from costmodel.flow import Drive, Source
from optimizer.algebra import Join, Window, WindowSpec, leaves, post_order
from optimizer.estimate import drive_of
from optimizer.hints import Hints
from optimizer.maximum import MaxRate
from optimizer.optimize import Optimized

SMALL_SLIDE = 300


def advice(optimized: Optimized, limit: MaxRate) -> list[str]:
    lines = []
    plan, catalog = optimized.plan, optimized.catalog
    windows = [leaf for leaf in leaves(plan.tree) if isinstance(leaf, Window)]
    drive = drive_of(plan.tree)
    by_spec: dict[WindowSpec, list[str]] = {}
    for w in windows:
        by_spec.setdefault(w.spec, []).append(w.alias)
    for spec, names in by_spec.items():
        who = " and ".join(names)
        if spec.slide and drive is Drive.SLIDE and spec.size / spec.slide >= SMALL_SLIDE:
            ratio = round(spec.size / spec.slide)
            lines.append(
                f"the slide of {who} is {ratio} times smaller than the window: Spark's window() would copy every tuple "
                f"{ratio} times, and a database reads the whole window {ratio} times before a tuple leaves it"
            )
        if spec.slide and drive is Drive.SLIDE and spec.slide > spec.size:
            lines.append(
                f"the slide of {who} is longer than the window, so tuples in between are never seen; were size and "
                f"slide meant the other way round? HOP takes the slide first, window() the size"
            )
        if spec.slide and drive is Drive.TUPLE:
            lines.append(f"the SLIDE of {who} has no effect: the query is tuple-driven; RSTREAM evaluates it at ticks")
    for stream in dict.fromkeys(w.stream for w in windows):
        declared = catalog.streams[stream]
        if declared.watermark is None:
            lines.append(f"stream {stream} has no watermark: a tick cannot know that its tuples are complete")
        if declared.rate is None:
            lines.append(
                f"stream {stream} has no rate in the catalog; {_rate(optimized, stream):,.0f} tuples/s is a guess"
            )
        if not declared.statistics and not declared.selectivities:
            lines.append(f"stream {stream} has no statistics: CREATE STATISTICS ON {stream} (…) WITH (distinct = …)")
    if any(isinstance(node, Join) and not node.keys and not node.residue for node in post_order(plan.tree)):
        lines.append("the query has a cross product: relations without a join condition between them")
    guesses = [e.what for e in optimized.estimates if e.source is Source.DEFAULT and not e.what.startswith("rate of")]
    if guesses:
        lines.append(f"guessed, not known: {'; '.join(guesses[:4])}" + (" …" if len(guesses) > 4 else ""))
    if not plan.cost.feasible:
        rate = f" and holds up to {limit.total:,.0f} tuples/s" if limit.total else ""
        slides = [w.spec for w in windows if w.spec.slide and drive is Drive.SLIDE]
        hint = f"; a slide longer than that of {slides[0]} would help most" if slides else ""
        under = " under these hints" if optimized.options.hints != Hints() else ""
        lines.append(f"no plan keeps up at this rate{under}; this one comes closest{rate}{hint}")
    return lines


def _rate(optimized: Optimized, stream: str) -> float:
    return optimized.costing.estimator.rate(stream).value
