"""Everything explain has to say about one query, gathered once and rendered in any format."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date

from optimizer.explain.advice import advice
from optimizer.explain.alternatives import Alternative, pure_plans, rejected_plans
from optimizer.explain.ranges import Ranges, ranges
from optimizer.explain.sweep import Interval, sweep
from optimizer.maximum import MaxRate, max_rate
from optimizer.optimize import Optimized


@dataclass(frozen=True, slots=True)
class SweepRange:
    stream: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ProfileNote:
    """What to know of the calibration profile beside its name: how old it is, and why it may not fit."""

    age: int | None = None  # days
    warning: str | None = None

    @staticmethod
    def of(measured: str, today: date, warning: str | None) -> ProfileNote:
        """
        >>> ProfileNote.of("2026-11-01", date(2026, 11, 15), None).age
        14
        """
        try:
            age = (today - date.fromisoformat(measured[:10])).days
        except ValueError:
            return ProfileNote(None, warning)
        return ProfileNote(max(age, 0), warning)


@dataclass(frozen=True)
class Explanation:
    optimized: Optimized
    max_rate: MaxRate
    alternatives: tuple[Alternative, ...]
    advice: tuple[str, ...]
    sweep: tuple[Interval, ...] = ()
    sweep_range: SweepRange | None = None
    trace: bool = False
    uncertain: bool = False  # whether ranges were asked for; there are none where every figure is certain
    ranges: Ranges | None = None
    profile: ProfileNote = ProfileNote()


def explain_plan(
    optimized: Optimized,
    why_not: bool = False,
    trace: bool = False,
    over: SweepRange | None = None,
    *,
    with_ranges: bool = False,
    profile: ProfileNote | None = None,
) -> Explanation:
    """`why_not` adds the rejected plans, `over` the sweep, `with_ranges` how certain costs and choice are; the pure
    plans are always among the alternatives."""
    plan = optimized.plan
    limit = max_rate(plan.tree, optimized.in_db, optimized.costing, plan.units_are)
    others = pure_plans(optimized, limits=why_not) + (rejected_plans(optimized) if why_not else [])
    explanation = Explanation(
        optimized,
        limit,
        tuple(others),
        tuple(advice(optimized, limit)),
        trace=trace,
        uncertain=with_ranges,
        ranges=ranges(optimized) if with_ranges else None,
        profile=profile or ProfileNote(),
    )
    if over is None:
        return explanation
    return replace(explanation, sweep=tuple(sweep(optimized, over.stream, over.low, over.high)), sweep_range=over)
