"""From when until when panes are there, by name: what has to be made for a tick, and what may go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from connectors.database import Panes

OLD_PANES = 8  # panes that no window holds are dropped when they are the eighth part of one
Range = Callable[[Panes, datetime, datetime], None]


@dataclass
class PaneSpans:
    make: Range  # anew, those of a range alone
    add: Range  # those of a range, to the ones that are there
    drop: Callable[[Panes, datetime], None]  # those before an instant
    _known: dict[str, tuple[datetime, datetime]] = field(default_factory=dict)

    def reach(self, panes: Panes, first: datetime, until: datetime) -> None:
        since, end = self._known.get(panes.name, (until, first))
        if not since <= first <= end:
            self.make(panes, first, until)
            since, end = first, until
        elif until > end:
            self.add(panes, end, until)
            end = until
        self._known[panes.name] = since, end
        if (first - since) * OLD_PANES > until - first:
            self.drop(panes, first)
            self._known[panes.name] = first, end

    def forget(self) -> None:
        """What is not known to be there is made anew."""
        self._known.clear()
