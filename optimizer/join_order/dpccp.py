"""Phase one's search: bushy System-R dynamic programming over connected pairs of join sets (paper 001, section 6).

The pairs are enumerated as DPccp does (Moerkotte and Neumann, VLDB 2006): every connected set with every connected
complement it joins, once. The paper keeps one plan per set; with ties between infeasible plans broken by utilization
that is not enough, because a later, larger bottleneck can make the cheaper of two infeasible plans the better one. So
each set keeps its front of (bottleneck, utilization), in which all feasible bottlenecks count as 1: a single plan as
long as everything is feasible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from costmodel.cost import PlanCost
from optimizer.join_order.masks import around, members


@dataclass(frozen=True, slots=True)
class JoinTree:
    """A join order: a relation, or a join of two trees."""

    mask: int
    left: JoinTree | None = None
    right: JoinTree | None = None

    def render(self, names: tuple[str, ...]) -> str:
        """
        >>> leaf = lambda i: JoinTree(1 << i)
        >>> JoinTree(7, JoinTree(3, leaf(0), leaf(1)), leaf(2)).render(("a", "b", "c"))
        '((a ⋈ b) ⋈ c)'
        """
        if self.left is None or self.right is None:
            return names[self.mask.bit_length() - 1]
        return f"({self.left.render(names)} ⋈ {self.right.render(names)})"


@dataclass(frozen=True, slots=True)
class Ordered:
    """What was found: the best tree, the best one that differs, and how many pairs were looked at.

    The bottleneck of a feasible tree is given as 1.
    """

    tree: JoinTree
    cost: PlanCost
    pairs: int
    second: tuple[JoinTree, PlanCost] | None = None


class PairBudgetExceeded(Exception):
    """More connected pairs than the budget allows."""


JoinCost = Callable[[int, int], float]  # u of joining two sets
_Entry = tuple[float, float, JoinTree]  # bottleneck (at least 1), utilization, tree


@lru_cache(maxsize=64)
def pairs(neighbours: tuple[int, ...], budget: int) -> tuple[tuple[int, int], ...]:
    """Every connected set and connected complement, the set that holds the lowest relation first in each pair.

    `neighbours` has, for each relation, the set of those it shares a condition with: here a chain of three.

    >>> pairs((0b010, 0b101, 0b010), 100)
    ((2, 4), (1, 2), (3, 4), (1, 6))
    """
    found: list[tuple[int, int]] = []
    for first in _connected_sets(neighbours):
        low = first & -first
        for second in _complements(neighbours, first, low):
            found.append((first, second))
            if len(found) > budget:
                raise PairBudgetExceeded
    # Smaller sets first, as the recursion needs; among equals the plan as written first, which then wins ties.
    found.sort(key=lambda pair: ((pair[0] | pair[1]).bit_count(), pair[1].bit_count(), -pair[1]))
    return tuple(found)


def _connected_sets(neighbours: tuple[int, ...]) -> Iterator[int]:
    for i in reversed(range(len(neighbours))):
        start = 1 << i
        yield start
        yield from _grow(neighbours, start, (start << 1) - 1)


def _grow(neighbours: tuple[int, ...], mask: int, excluded: int) -> Iterator[int]:
    """All connected supersets within what is not excluded."""
    near = around(neighbours, mask) & ~excluded
    subset = near
    while subset:
        yield mask | subset
        subset = (subset - 1) & near
    subset = near
    while subset:
        yield from _grow(neighbours, mask | subset, excluded | near)
        subset = (subset - 1) & near


def _complements(neighbours: tuple[int, ...], mask: int, low: int) -> Iterator[int]:
    excluded = mask | ((low << 1) - 1)
    near = around(neighbours, mask) & ~excluded
    for i in sorted(members(near), reverse=True):
        start = 1 << i
        yield start
        yield from _grow(neighbours, start, excluded | (((start << 1) - 1) & near))


def order(
    relations: int,
    inputs: tuple[PlanCost, ...],
    join_cost: JoinCost,
    enumerated: tuple[tuple[int, int], ...],
    keep: int = 1,
) -> Ordered:
    """The best join tree of a set. `inputs`: what each relation costs by itself; `keep` 2 finds the second best."""
    fronts: dict[int, list[_Entry]] = {
        1 << i: [(max(cost.bottleneck, 1.0), cost.utilization, JoinTree(1 << i))] for i, cost in enumerate(inputs)
    }
    for left, right in enumerated:
        u = join_cost(left, right)
        ceiling = max(u, 1.0)
        front = fronts.setdefault(left | right, [])
        for lb, lu, ltree in fronts[left]:
            for rb, ru, rtree in fronts[right]:
                bottleneck = max(lb, rb, ceiling)
                utilization = lu + ru + u
                if _dominated(front, bottleneck, utilization, keep):
                    continue
                _insert(front, (bottleneck, utilization, JoinTree(left | right, ltree, rtree)), keep)
    best, *others = sorted(fronts[relations], key=lambda entry: (entry[0], entry[1]))
    second = (others[0][2], PlanCost(others[0][0], others[0][1])) if others and keep > 1 else None
    return Ordered(best[2], PlanCost(best[0], best[1]), len(enumerated), second)


_ROUNDING = 1 + 1e-12  # sums in another order are not another cost


def _dominated(front: list[_Entry], bottleneck: float, utilization: float, keep: int) -> bool:
    bottleneck, utilization, better = bottleneck * _ROUNDING, utilization * _ROUNDING, 0
    for b, u, _ in front:
        if b <= bottleneck and u <= utilization:
            better += 1
            if better >= keep:
                return True
    return False


def _insert(front: list[_Entry], entry: _Entry, keep: int) -> None:
    """Adds an entry and drops those that `keep` others are now at least as good as."""
    front.append(entry)
    if len(front) > keep:
        front[:] = [
            e for i, e in enumerate(front) if sum(_as_good(o, e, j < i) for j, o in enumerate(front) if j != i) < keep
        ]


def _as_good(a: _Entry, b: _Entry, first: bool) -> bool:
    if a[1] != b[1]:
        return a[0] <= b[0] * _ROUNDING and a[1] < b[1]
    return a[0] < b[0] or (a[0] == b[0] and first)
