"""How a running query shows itself: a live panel on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from migration.metrics import BatchReport, Share
from optimizer.optimize import Optimized
from optimizer.physical import PhysicalPlan, Where

LINE_EVERY = 2.0  # seconds, where there is no terminal
REMEMBERED = 10.0  # seconds over which rates and shares are shown


class Panel:
    """Rates and shares are those of the last seconds; counts are since the deployment began."""

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self.quiet = quiet
        self.reports: list[BatchReport] = []
        self._recent: deque[BatchReport] = deque()
        self._note = ""
        self._printed = 0.0
        self._live: Live | None = None
        self._ticks = self._rows = 0

    # -- what happens ------------------------------------------------------------------------------------------------

    def plan(self, optimized: Optimized, plan: PhysicalPlan, how: str) -> None:
        spark = ", ".join(o.id for o in plan.operators if o.where is Where.SPE) or "nothing"
        database = ", ".join(o.id for o in plan.operators if o.where is Where.DB) or "nothing"
        self._say(f"plan {plan.id} ({how})   spark: {spark}   {plan.database}: {database}")

    def message(self, text: str) -> None:
        self._note = text
        if self._live is None:
            self._say(text)
        else:
            self._live.update(self._render())

    def warn(self, text: str) -> None:
        self._say(f"warning: {text}", "yellow")

    def batch(self, report: BatchReport) -> None:
        self.reports.append(report)
        del self.reports[:-10_000]
        self._recent.append(report)
        while report.finished - self._recent[0].finished > REMEMBERED:
            self._recent.popleft()
        self._ticks += report.ticks
        self._rows += report.rows
        self._note = f"no tuples of {', '.join(report.silent)}: its ticks wait" if report.silent else ""
        if self._live is not None:
            self._live.update(self._render())
        elif time.monotonic() - self._printed >= LINE_EVERY:
            self._printed = time.monotonic()
            self._say(self.line())

    # -- how it looks ------------------------------------------------------------------------------------------------

    def rate(self) -> float:
        """Tuples per second, of the last seconds."""
        if len(self._recent) < 2:
            return 0.0
        first, last = self._recent[0], self._recent[-1]
        return (last.tuples - first.tuples) / max(last.finished - first.finished, 1e-9)

    def shares(self) -> dict[str, float]:
        """Of the time in batches: where it went; `other` is Spark's bookkeeping around them."""
        span = self._recent[-1].finished - self._recent[0].finished if len(self._recent) > 1 else 0.0
        if span <= 0:
            return {}
        later = list(self._recent)[1:]
        found = {share.value: sum(r.shares[share] for r in later) / span for share in Share}
        return found | {"other": max(0.0, sum(r.seconds for r in later) / span - sum(found.values()))}

    def line(self) -> str:
        last = self._recent[-1]
        behind = f"{last.behind:.1f} s behind the stream" if last.behind is not None else "no tick yet"
        shares = "  ".join(f"{name} {share:.0%}" for name, share in self.shares().items())
        parts = [f"{self.rate():,.0f} tuples/s", behind, f"{self._ticks:,} ticks, {self._rows:,} rows out", shares]
        if last.late or last.malformed:
            parts.append(f"{last.late:,} late, {last.malformed:,} malformed")
        return "   ".join(part for part in parts if part)

    def _render(self) -> RenderableType:
        if not self._recent:
            return Text(self._note)
        last, table = self._recent[-1], Table.grid(padding=(0, 3))
        behind = f"{last.behind:.1f} s" if last.behind is not None else "-"
        cells = {
            "tuples/s": f"{self.rate():,.0f}",
            "behind the stream": behind,
            "ticks out": f"{self._ticks:,}",
            "rows out": f"{self._rows:,}",
            "late": f"{last.late:,}",
            "malformed": f"{last.malformed:,}",
        } | {name: f"{share:.0%}" for name, share in self.shares().items()}
        table.add_row(*(Text(name, style="dim") for name in cells))
        table.add_row(*cells.values())
        return Group(table, Text(self._note, style="yellow")) if self._note else table

    def _say(self, text: str, style: str | None = None) -> None:
        if not self.quiet:
            self.console.print(text, style=style if self.console.is_terminal else None, markup=False)

    def __enter__(self) -> Panel:
        if self.console.is_terminal and not self.quiet:
            self._live = Live(self._render(), console=self.console, refresh_per_second=4, transient=False)
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, value, trace)
            self._live = None
        elif self._recent and kind is None:
            self._say(self.line())
        sys.stdout.flush()
