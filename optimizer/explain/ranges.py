"""How certain the costs and the choice are, given how far the figures may be off.

One figure at a time goes to either end of its interval, the others stay. For Cb and Cu the changes of the chosen plan
are combined as the root of the sum of squares, which is right for independent errors and costs that are nearly linear
within an interval: 95% intervals of figures make about a 95% interval of the cost. The query is also optimized anew at
each end; where another plan is cheaper there, the value from which on it wins is found by bisection.

Figures of the catalog and overrides are taken at their word. Guesses may be wrong by a factor of three either way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import hypot, inf

from costmodel.cost import PlanCost
from costmodel.flow import Estimate, Source
from costmodel.spread import Spread, guessed
from optimizer.algebra import fingerprint
from optimizer.costing import Costing
from optimizer.explain.alternatives import join_shape
from optimizer.optimize import Optimized, reoptimized
from optimizer.physical import PhysicalPlan, Where, engine_name, placement_problem
from optimizer.placement.problem import evaluate

WORK = 4000  # pairs and operators that all optimizations together may look at; a query of the examples has 2 to 20
MOST, LEAST = 32, 4  # optimizations at ends, whatever that comes to
STEPS = 10  # of a bisection: to a thousandth of the interval
_CLEARLY = 1.001  # a plan that is cheaper by less is no other choice


@dataclass(frozen=True, slots=True)
class Doubt:
    """From a value of one figure on, another plan is cheaper: `other` at a cost of `better`, this one `kept`."""

    figure: str
    is_share: bool
    value: float
    upwards: bool  # whether that holds above the value, or below it
    spread: Spread
    other: PhysicalPlan
    moves: tuple[str, ...]
    better: PlanCost
    kept: PlanCost


@dataclass(frozen=True, slots=True)
class Ranges:
    bottleneck: Spread
    utilization: Spread
    uncertain: int  # figures with an interval
    tried: int  # of them, those at whose ends the query was optimized anew
    doubts: tuple[Doubt, ...]


def spread_of(estimate: Estimate) -> Spread | None:
    """Where the true figure may lie; None where it is taken at its word."""
    if estimate.spread is not None:
        return estimate.spread
    if estimate.source is Source.DEFAULT:
        return guessed(estimate.value, at_most=1.0 if estimate.is_share else inf)
    return None


def ranges(optimized: Optimized) -> Ranges | None:
    """None where no figure is uncertain."""
    figures: dict[str, tuple[Estimate, Spread]] = {}
    for estimate in optimized.estimates:
        spread = spread_of(estimate)
        if spread is not None and spread.low < spread.high:
            figures.setdefault(estimate.name, (estimate, spread))
    if not figures:
        return None
    now = optimized.plan.cost
    ends = {name: [_cost(optimized, name, end) for end in (s.low, s.high)] for name, (_, s) in figures.items()}

    def effect(name: str) -> float:
        return max(abs(cost.utilization - now.utilization) for cost in ends[name])

    search = optimized.search
    size = len(optimized.plan.operators) + sum(region.pairs for region in search.regions)
    most = max(LEAST, min(MOST, WORK // max(size, 1))) // 2
    tried = sorted(figures, key=effect, reverse=True)[:most]
    doubts = [d for name in tried for d in _doubts(optimized, *figures[name], ends[name])]
    return Ranges(
        _combined(now.bottleneck, [[cost.bottleneck for cost in both] for both in ends.values()]),
        _combined(now.utilization, [[cost.utilization for cost in both] for both in ends.values()]),
        len(figures),
        len(tried),
        tuple(doubts),
    )


def _cost(optimized: Optimized, name: str, value: float) -> PlanCost:
    """What the chosen plan costs if a figure has another value."""
    known = optimized.catalog.assuming({name: value})
    options, tree = optimized.options, optimized.plan.tree
    costing = Costing.of(optimized.written, known, options.profile, optimized.database)
    return evaluate(placement_problem(tree, costing, options.unit_rule), optimized.in_db)


def _combined(value: float, ends: list[list[float]]) -> Spread:
    """
    >>> _combined(1.0, [[0.7, 1.3], [1.4, 0.6]])
    Spread(low=0.5, high=1.5, sample=0)
    """
    down = hypot(*(min(0.0, *(end - value for end in both)) for both in ends))
    up = hypot(*(max(0.0, *(end - value for end in both)) for both in ends))
    return Spread(max(value - down, 0.0), value + up)


def _doubts(optimized: Optimized, estimate: Estimate, spread: Spread, ends: list[PlanCost]) -> list[Doubt]:
    found = []

    def rival(value: float) -> Optimized | None:
        """The plan that beats the chosen one if the figure has this value."""
        other = reoptimized(optimized, optimized.catalog.assuming({estimate.name: value}))
        if other.plan.signature() == optimized.plan.signature():
            return None
        return other if _cheaper(other.plan.cost, _cost(optimized, estimate.name, value)) else None

    for end, kept in zip((spread.low, spread.high), ends, strict=True):
        other = rival(end)
        if other is None:
            continue
        value, winner = _border(estimate.value, end, other, rival)
        found.append(
            Doubt(
                estimate.name,
                estimate.is_share,
                value,
                end > estimate.value,
                spread,
                winner.plan,
                tuple(_moves(optimized, winner)),
                other.plan.cost,
                kept,
            )
        )
    return found


def _cheaper(one: PlanCost, other: PlanCost) -> bool:
    if one.feasible != other.feasible:
        return one.feasible
    if one.feasible:
        return one.utilization * _CLEARLY < other.utilization
    return one.bottleneck * _CLEARLY < other.bottleneck


def _border(
    certain: float, end: float, there: Optimized, rival: Callable[[float], Optimized | None]
) -> tuple[float, Optimized]:
    """Where between the figure's value and an end the other plan begins to win, and which one that is."""
    inside, outside, winner = certain, end, there
    for _ in range(STEPS):
        middle = (inside + outside) / 2
        found = rival(middle)
        if found is None:
            inside = middle
        else:
            outside, winner = middle, found
    return outside, winner


def _moves(optimized: Optimized, other: Optimized) -> list[str]:
    """How another plan differs: joins in another order, operators in another engine."""
    before, after = optimized.plan, other.plan
    lines = []
    shapes = join_shape(before.tree), join_shape(after.tree)
    if shapes[0] != shapes[1]:
        lines.append(f"joins are {shapes[1]}")
    elif fingerprint(before.tree) != fingerprint(after.tree):
        lines.append("aggregates move across joins")
    where = {o.text: o.where for o in before.operators}
    moved: dict[Where, list[str]] = {}
    for o in after.operators:
        if where.get(o.text, o.where) is not o.where:
            moved.setdefault(o.where, []).append(o.id)
    names = {o.where: engine_name(o, after.database) for o in after.operators}
    lines += [f"{', '.join(ids)} {'moves' if len(ids) == 1 else 'move'} to {names[to]}" for to, ids in moved.items()]
    return lines
