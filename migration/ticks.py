"""Ticks: the instants at which a slide-driven query is evaluated, and where its windows stand then (design, section 3).

Boundaries of time windows are multiples of their slide. A row window moves with every `slide`-th tuple in order of
(event time, arrival), one microsecond after it; the ticks are the union. All pure arithmetic on microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt

from connectors.tick import EPOCH, Tick
from optimizer.algebra import (
    Aggregate,
    Join,
    JoinKind,
    Node,
    RelationToStream,
    StoredTable,
    Window,
    WindowUnit,
    inputs,
    leaves,
)


@dataclass(frozen=True)
class Numbered:
    """The tuples in a row window's store: event times in microseconds, ascending, after `dropped` earlier ones."""

    times: npt.NDArray[np.int64]
    dropped: int

    def moves(self, slide: int) -> npt.NDArray[np.int64]:
        """The instants at which a window that moves every `slide` tuples does so."""
        return self.times[-(self.dropped + 1) % slide :: slide] + 1

    def last(self, slide: int, at: int) -> int:
        """The number, among those in the store, of the last tuple such a window shows at an instant."""
        seen = self.dropped + int(np.searchsorted(self.times, at, side="left"))
        return seen // slide * slide - self.dropped


def instant(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


def microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


@dataclass(frozen=True)
class Windows:
    """The windows of one query, as the ticks see them."""

    timed: tuple[Window, ...]
    counted: tuple[Window, ...]
    silent: bool  # no tuple in any window: no row in the result

    @staticmethod
    def of(tree: RelationToStream) -> Windows:
        found = [leaf for leaf in leaves(tree) if isinstance(leaf, Window)]
        timed = tuple(w for w in found if w.spec.unit is WindowUnit.TIME)
        counted = tuple(w for w in found if w.spec.unit is WindowUnit.ROWS)
        return Windows(timed, counted, empties(tree.input))

    @property
    def longest(self) -> int:
        """A tuple is in no time window that moves later than this after it."""
        return max((w.spec.size + (w.spec.slide or 0) for w in self.timed), default=0)

    def ticks(self, spans: Sequence[tuple[int, int]], stores: Mapping[str, Numbered]) -> list[Tick]:
        """The ticks in (after, until] of each span; `stores` has the tuples of row windows, by alias."""
        found: set[int] = set()
        for after, until in spans:
            for slide in {w.spec.slide or 1 for w in self.timed}:
                found.update(range(after // slide * slide + slide, until + 1, slide))
            for window in self.counted:
                moved = stores[window.alias].moves(window.spec.slide or 1)
                found.update(int(t) for t in moved[(moved > after) & (moved <= until)])
        return [self.tick(at, stores) for at in sorted(found)]

    def tick(self, at: int, stores: Mapping[str, Numbered]) -> Tick:
        boundaries = {w.alias: instant(boundary(w, at)) for w in self.timed}
        lasts = {w.alias: stores[w.alias].last(w.spec.slide or 1, at) for w in self.counted}
        return Tick(instant(at), boundaries, lasts)

    def previous(self, at: int) -> int | None:
        """The last tick of the time windows up to an instant."""
        slides = {w.spec.slide or 1 for w in self.timed}
        return max((at // slide * slide for slide in slides), default=None)


def boundary(window: Window, at: int) -> int:
    slide = window.spec.slide or 1
    return at // slide * slide


def empties(node: Node) -> bool:
    """Whether no tuples in the windows below mean no rows here."""
    match node:
        case Window():
            return True
        case StoredTable():
            return False
        case Join() if node.kind is JoinKind.INNER:
            return empties(node.left) or empties(node.right)
        case Join():
            return empties(node.left)
        case Aggregate():
            return bool(node.keys) and empties(node.input)
        case _:
            return all(empties(below) for below in inputs(node))
