"""Everything explain has to say about one query, gathered once and rendered in any format."""

from __future__ import annotations

from dataclasses import dataclass, replace

from optimizer.explain.advice import advice
from optimizer.explain.alternatives import Alternative, pure_plans, rejected_plans
from optimizer.explain.sweep import Interval, sweep
from optimizer.maximum import MaxRate, max_rate
from optimizer.optimize import Optimized


@dataclass(frozen=True, slots=True)
class SweepRange:
    stream: str
    low: float
    high: float


@dataclass(frozen=True)
class Explanation:
    optimized: Optimized
    max_rate: MaxRate
    alternatives: tuple[Alternative, ...]
    advice: tuple[str, ...]
    sweep: tuple[Interval, ...] = ()
    sweep_range: SweepRange | None = None
    trace: bool = False


def explain_plan(
    optimized: Optimized, why_not: bool = False, trace: bool = False, over: SweepRange | None = None
) -> Explanation:
    """`why_not` adds the rejected plans, `over` the sweep; the pure plans are always among the alternatives."""
    plan = optimized.plan
    limit = max_rate(plan.tree, optimized.in_db, optimized.costing, plan.units_are)
    others = pure_plans(optimized, limits=why_not) + (rejected_plans(optimized) if why_not else [])
    explanation = Explanation(optimized, limit, tuple(others), tuple(advice(optimized, limit)), trace=trace)
    if over is None:
        return explanation
    return replace(explanation, sweep=tuple(sweep(optimized, over.stream, over.low, over.high)), sweep_range=over)
