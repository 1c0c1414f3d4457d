"""The join graph of one join region: what phase one enumerates over.

Sets of relations are bit masks. The size of a set does not depend on how it is joined, which is what makes dynamic
programming right (paper 001, section 6). A `KeyClass` is a composite key that several relations share through
transitive equalities: in any set, all but its smallest count of distinct values divide the size.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import exp, log

from costmodel.flow import LARGEST, Drive, Flow
from optimizer.join_order.masks import members

_LOG_MAX = log(LARGEST)


@dataclass(frozen=True)
class KeyClass:
    """Distinct values of the composite key, by relation; 0 where a relation does not have it."""

    distinct: tuple[float, ...]

    @cached_property
    def members(self) -> int:
        return sum(1 << i for i, d in enumerate(self.distinct) if d > 0)

    @cached_property
    def logs(self) -> tuple[float, ...]:
        return tuple(log(d) if d > 0 else 0.0 for d in self.distinct)


@dataclass(frozen=True, slots=True)
class Condition:
    """A predicate over two or more relations and the share of combinations it keeps."""

    relations: int
    share: float


@dataclass(frozen=True)
class JoinGraph:
    flows: tuple[Flow, ...]
    classes: tuple[KeyClass, ...]
    conditions: tuple[Condition, ...]
    drive: Drive
    ticks: float
    neighbours: tuple[int, ...] = field(init=False)
    _sets: dict[int, Flow] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        adjacent = [0] * len(self.flows)
        for mask in (*(c.members for c in self.classes), *(c.relations for c in self.conditions)):
            for i in members(mask):
                adjacent[i] |= mask & ~(1 << i)
        object.__setattr__(self, "neighbours", tuple(adjacent))

    @property
    def all(self) -> int:
        return (1 << len(self.flows)) - 1

    def flow(self, mask: int) -> Flow:
        """Rate and size of a joined set (equation 2 applied as often as there are joins, in any order)."""
        known = self._sets.get(mask)
        if known is None:
            known = self._sets[mask] = self._joined(mask)
        return known

    def _joined(self, mask: int) -> Flow:
        flows = [self.flows[i] for i in members(mask)]
        if len(flows) == 1:
            return flows[0]
        source = min(flow.source for flow in flows)
        width = sum(flow.width for flow in flows)
        if any(flow.size <= 0 for flow in flows):
            return Flow(0.0, 0.0, width, False, source)
        # In logarithms: the product of many sizes overflows long before their join does.
        size = exp(min(sum(log(flow.size) for flow in flows) + self.log_selectivity(mask), _LOG_MAX))
        if self.drive is Drive.TUPLE:  # every relation's arrivals meet what all the others hold
            rate = size * sum(flow.rate / flow.size for flow in flows)
        else:
            rate = self.ticks * size
        return Flow(rate, size, width, False, source)

    def log_selectivity(self, mask: int) -> float:
        """The logarithm of the share of combinations that all conditions within a set keep."""
        share = 0.0
        for condition in self.conditions:
            if condition.relations & mask == condition.relations:
                share += log(condition.share) if condition.share > 0 else -_LOG_MAX
        for key in self.classes:
            inside = mask & key.members
            if inside & (inside - 1):  # two or more
                counts = [key.logs[i] for i in members(inside)]
                share -= sum(counts) - min(counts)
        return share
