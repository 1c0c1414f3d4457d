"""The join graph of one join region: what phase one enumerates over.

Sets of relations are bit masks. The size of a set does not depend on how it is joined, which is what makes dynamic
programming right (paper 001, section 6). A `KeyClass` is a composite key that several relations share through
transitive equalities: in any set, all but its smallest count of distinct values divide the size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import exp, log

from costmodel.flow import LARGEST, Drive, Flow

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
            for i in bits(mask):
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
        members = list(bits(mask))
        if len(members) == 1:
            return self.flows[members[0]]
        flows = [self.flows[i] for i in members]
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
                counts = [key.logs[i] for i in bits(inside)]
                share -= sum(counts) - min(counts)
        return share

    def neighbourhood(self, mask: int) -> int:
        found = 0
        for i in bits(mask):
            found |= self.neighbours[i]
        return found & ~mask


def bits(mask: int) -> Iterator[int]:
    """
    >>> list(bits(0b1011))
    [0, 1, 3]
    """
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def connected(graph: JoinGraph) -> list[int]:
    """The connected components, as masks."""
    left, found = graph.all, []
    while left:
        component = left & -left
        while grown := graph.neighbourhood(component):
            component |= grown
        found.append(component)
        left &= ~component
    return found
