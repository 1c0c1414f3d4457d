"""What one operator costs per second of stream, in either engine (paper 001, section 5.1, equation 4).

Each function gives u, seconds of work per second of stream. For the database it is the operator's *part* of a DB-op:
the fixed part of an execution and the transfers at the borders are added once per DB-op, by `placement`. Departing
from equation (4), work that a tick repeats over a whole window is charged on the window's size, not on its arrivals,
and what a job costs by itself is charged per batch, because all ticks of a batch go through one job.

Every cost is a sum of profile numbers times rates and sizes; a calibration fits the numbers to what was measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import ceil

from costmodel.flow import Drive, Flow, distinct
from costmodel.profile import CalibrationProfile, DbCosts, per_tuple

_COPIED = 50_000  # tuples: a side of a join that is no larger is copied to where the tuples of the other one are
_FURTHER_PREDICATE = 0.2  # of the first one
_WORTH_PANES = 0.5  # of a window's tuples: panes in a database are kept where less than that is read instead


class AggregateForm(StrEnum):
    """How an aggregate is run.

    `EXPAND` copies a tuple into every window that holds it, `PANE` combines partial aggregates of one slide each,
    `RELATION` aggregates a relation that is new at each tick. A database has panes, or reads the relation anew.
    """

    EXPAND = "expand"
    PANE = "pane"
    RELATION = "relation"


class Side(StrEnum):
    """Of a join."""

    LEFT = "left"
    RIGHT = "right"


def copied_side(left: float, right: float, outer: bool = False) -> Side | None:
    """The side of a join, by tuples, that the stream engine copies instead of moving both; an outer join keeps its
    left one where it is.

    >>> copied_side(1e6, 2_000), copied_side(2_000, 1e6), copied_side(2_000, 1e6, outer=True), copied_side(1e6, 1e6)
    (<Side.RIGHT: 'right'>, <Side.LEFT: 'left'>, None, None)
    """
    if right <= _COPIED and (right <= left or outer):
        return Side.RIGHT
    return Side.LEFT if left <= _COPIED and not outer else None


@dataclass(frozen=True, slots=True)
class AggregateCost:
    u: float
    form: AggregateForm | None  # None: the database reads the relation at each tick


@dataclass(frozen=True, slots=True)
class Engines:
    """The two engines of one deployment, and how often they run: ticks and micro-batches per second of stream."""

    profile: CalibrationProfile
    db: DbCosts
    drive: Drive
    ticks: float
    form: AggregateForm | None = None  # of sliding aggregates; the cheaper one, where not given

    @property
    def batches(self) -> float:
        return 1.0 / self.profile.batch_interval

    @property
    def executions(self) -> float:
        """How often a relation is made anew: at each tick, or per batch where no slide drives the query."""
        return self.ticks if self.drive is Drive.SLIDE else self.batches

    @property
    def evaluations(self) -> float:
        """How often the stream engine starts a job for relations: ticks of one batch share it."""
        return min(self.executions, self.batches)

    @property
    def loop(self) -> float:
        return self.batches * self.profile.spe.batch

    @property
    def db_fixed(self) -> float:
        return self.executions * self.db.execution

    def read(self, rate: float) -> float:
        """Bringing a stream's tuples in, whatever is done with them."""
        return rate * self.profile.spe.read

    def _made(self, flow: Flow) -> float:
        """Tuples per second of a relation that is gone through at each execution."""
        return self.executions * flow.size

    # -- across the border --------------------------------------------------------------------------------------------

    def send(self, flow: Flow) -> float:
        """New tuples into a window store."""
        return self.db.send.cost(self.batches, flow.rate, flow.width)

    def ship(self, flow: Flow) -> float:
        """A relation of the stream engine into the database, at each execution."""
        spe, made = self.profile.spe, self._made(flow)
        given = self.evaluations * spe.job + spe.give.cost(made, flow.width)
        return given + self.db.ship.cost(self.executions, made, flow.width)

    def fetch(self, flow: Flow) -> float:
        """A relation of the database into the stream engine."""
        made = self._made(flow)
        fetched = self.db.fetch.cost(self.evaluations, made, flow.width)
        return fetched + self.profile.spe.bring.cost(made, flow.width) + self.result(flow)

    def result(self, flow: Flow) -> float:
        """The query's result out of the database: it does not go through the stream engine."""
        return self.db.result.cost(self._made(flow), flow.width)

    def collect(self) -> float:
        """The query's result out of the stream engine."""
        return self.evaluations * self.profile.spe.job

    # -- the stream engine --------------------------------------------------------------------------------------------

    def spe_select(self, flow: Flow, predicates: int) -> float:
        """New tuples are seen once, on their way in; those of a relation at each execution."""
        seen = flow.rate if flow.incremental else self._made(flow)
        return seen * self.profile.spe.select * (1 + _FURTHER_PREDICATE * (predicates - 1))

    def spe_project(self, flow: Flow) -> float:
        return self._made(flow) * self.profile.spe.project

    def spe_keep(self, flow: Flow) -> float:
        """A window's tuples kept in the stream engine, and read again."""
        spe = self.profile.spe
        kept = self.batches * spe.keep + flow.rate * spe.keep_row
        return kept + self.evaluations * spe.window + self._made(flow) * spe.window_row

    def spe_join(self, left: Flow, right: Flow, out: Flow, outer: bool = False) -> float:
        spe = self.profile.spe
        arriving = self._made(left) + self._made(right)
        each = spe.join_in if copied_side(left.size, right.size, outer) is None else spe.probe
        return self.evaluations * spe.join + arriving * each + self._emitted(out) * spe.join_out

    def _emitted(self, out: Flow) -> float:
        return self._made(out) if self.drive is Drive.SLIDE else out.rate

    def spe_aggregate(
        self, flow: Flow, out: Flow, functions: tuple[str, ...], window_over_slide: float | None
    ) -> AggregateCost:
        """`window_over_slide` is known where the aggregate stands on one window; the cheaper form is taken."""
        spe = self.profile.spe
        calls = per_tuple(spe.functions, functions)
        if window_over_slide is None or not flow.incremental:
            u = self.evaluations * spe.stage + self._made(flow) * spe.aggregate
            return AggregateCost(u, AggregateForm.RELATION)
        forms = {
            AggregateForm.EXPAND: self._expand(flow, out, calls, ceil(window_over_slide)),
            AggregateForm.PANE: self._pane(flow, out, functions, ceil(window_over_slide)),
        }
        form = self.form or min(forms, key=lambda f: forms[f])
        return AggregateCost(forms[form], form)

    def _pane(self, flow: Flow, out: Flow, functions: tuple[str, ...], panes: int) -> float:
        spe = self.profile.spe
        calls, merged = per_tuple(spe.functions, functions), spe.pane_group + per_tuple(spe.merge, functions)
        fixed = self.batches * spe.partial + self.evaluations * spe.combine
        combined = self.ticks * panes * distinct(flow.size / panes, out.size)
        return fixed + flow.rate * (spe.pane_row + calls) + combined * merged

    def _expand(self, flow: Flow, out: Flow, calls: float, windows: int) -> float:
        """Every batch keeps a partial aggregate for each window it reaches into, until that window is gone.

        Those of one window are a relation to aggregate.
        """
        spe = self.profile.spe
        fixed = self.batches * spe.partial + self.evaluations * spe.stage
        copied = flow.rate * windows
        covered = windows / self.ticks if self.ticks else 0.0  # seconds that a window covers
        per_batch = min(copied / self.batches, (windows + self.ticks / self.batches) * out.size)
        kept = self.evaluations * covered * self.batches * per_batch
        return fixed + copied * (spe.expand + calls) + kept * spe.expand_group

    def spe_stored(self, flow: Flow) -> float:
        """Reading a stored table into the stream engine, once per evaluation."""
        return self.evaluations * flow.size * self.profile.spe.stored

    # -- the database -------------------------------------------------------------------------------------------------

    def db_select(self, flow: Flow, predicates: int) -> float:
        return self._made(flow) * self.db.select * (1 + _FURTHER_PREDICATE * (predicates - 1))

    def db_project(self, flow: Flow) -> float:
        return self._made(flow) * self.db.project

    def db_join(self, left: Flow, right: Flow, out: Flow) -> float:
        return (self._made(left) + self._made(right)) * self.db.join_in + self._emitted(out) * self.db.join_out

    def db_shared(self, left: Flow, right: Flow) -> float:
        """What a join saves where the ticks of a batch look for the partners of their tuples once."""
        return (self.executions - self.evaluations) * (left.size + right.size) * self.db.join_in

    def db_arriving(self, flow: Flow, predicates: int) -> float:
        """A selection below an aggregate in pane form: it sees new tuples once."""
        return flow.rate * self.db.select * (1 + _FURTHER_PREDICATE * (predicates - 1))

    def db_aggregate(
        self, flow: Flow, out: Flow, functions: tuple[str, ...], window_over_slide: float | None
    ) -> AggregateCost:
        """`window_over_slide` is known where the database can make the aggregate from panes.

        Which form is taken depends on sizes alone: whatever the profile's numbers are, a plan runs in the same way.
        """
        each = self.db.aggregate + per_tuple(self.db.functions, functions)
        groups, read = self._made(out) * self.db.group, self._made(flow)
        if window_over_slide is not None and flow.incremental:
            panes = ceil(window_over_slide)
            combined = self.executions * panes * min(out.size, flow.size / panes)
            if flow.rate + combined < _WORTH_PANES * read:
                made = self.db_fixed + flow.rate * each  # one more statement, for the new pane
                return AggregateCost(made + combined * self.db.pane_group + groups, AggregateForm.PANE)
        return AggregateCost(read * each + groups, None)
