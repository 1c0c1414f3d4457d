"""What one operator costs per second of stream, in either engine (paper 001, section 5.1, equation 4).

Each function gives u, seconds of work per second of stream. For the database it is the operator's *part* of a DB-op:
the fixed part of an execution and the transfers at the borders are added once per DB-op, by `placement`. Departing
from equation (4), work that a tick repeats over a whole window is charged on the window's size, not on its arrivals.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import ceil

from costmodel.flow import Drive, Flow
from costmodel.profile import CalibrationProfile, DbCosts


class AggregateForm(StrEnum):
    """How the stream engine runs an aggregate.

    `EXPAND` copies a tuple into every window that holds it, `PANE` combines partial aggregates of one slide each,
    `RELATION` aggregates a relation that is new at each tick.
    """

    EXPAND = "expand"
    PANE = "pane"
    RELATION = "relation"


@dataclass(frozen=True, slots=True)
class SpeCost:
    u: float
    form: AggregateForm | None = None


@dataclass(frozen=True, slots=True)
class Engines:
    """The two engines of one deployment, and how often they run: ticks and micro-batches per second of stream."""

    profile: CalibrationProfile
    db: DbCosts
    drive: Drive
    ticks: float

    @property
    def batches(self) -> float:
        return 1.0 / self.profile.batch_interval

    @property
    def executions(self) -> float:
        """How often a MIG runs its SQL: once per tick, or per batch where no slide drives the query."""
        return self.ticks if self.drive is Drive.SLIDE else self.batches

    @property
    def loop(self) -> float:
        return self.batches * self.profile.spe.batch

    @property
    def db_fixed(self) -> float:
        return self.executions * self.db.execution

    def _scanned(self, flow: Flow) -> float:
        """Tuples a database reads per second when each execution reads the whole relation."""
        return self.executions * flow.size

    def send(self, flow: Flow) -> float:
        return self.db.send.cost(self.batches, flow.rate, flow.width)

    def fetch(self, flow: Flow) -> float:
        return self.db.fetch.cost(self.executions, flow.rate, flow.width)

    def spe_select(self, flow: Flow, predicates: int) -> float:
        return flow.rate * self.profile.spe.select * (1 + 0.2 * (predicates - 1)) + self._stage(flow)

    def spe_project(self, flow: Flow) -> float:
        return flow.rate * self.profile.spe.project + self._stage(flow)

    def _stage(self, *inputs: Flow) -> float:
        """Stateless operators on new tuples run inside the source's own stage; all others are a job per tick."""
        if self.drive is Drive.TUPLE or all(flow.incremental for flow in inputs):
            return 0.0
        return self.ticks * self.profile.spe.stage

    def spe_join(self, left: Flow, right: Flow, out: Flow) -> float:
        spe = self.profile.spe
        if self.drive is Drive.TUPLE:
            return (left.rate + right.rate) * spe.join_in + out.rate * spe.join_out
        arriving = self.ticks * (left.size + right.size)
        return self.ticks * spe.stage + arriving * spe.join_in + out.rate * spe.join_out

    def spe_aggregate(
        self, flow: Flow, out: Flow, functions: tuple[str, ...], window_over_slide: float | None
    ) -> SpeCost:
        """`window_over_slide` is known where the aggregate stands on one window; the cheaper form is taken."""
        spe, weight = self.profile.spe, self.profile.aggregate_weight(functions)
        if window_over_slide is None or not flow.incremental:
            arriving = self.ticks * flow.size
            return SpeCost(self.ticks * spe.stage + arriving * spe.aggregate * weight, AggregateForm.RELATION)
        expand = flow.rate * ceil(window_over_slide) * spe.expand * weight
        panes = self.ticks * (spe.pane_stage + ceil(window_over_slide) * out.size * spe.pane_group * weight)
        pane = panes + flow.rate * spe.pane_row * weight
        if expand <= pane:
            return SpeCost(expand, AggregateForm.EXPAND)
        return SpeCost(pane, AggregateForm.PANE)

    def spe_stored(self, flow: Flow) -> float:
        """Reading a stored table into the stream engine: at each tick, or once per batch."""
        return self.executions * flow.size * self.profile.spe.stored

    def db_select(self, flow: Flow, predicates: int) -> float:
        return self._scanned(flow) * self.db.select * (1 + 0.2 * (predicates - 1))

    def db_project(self, flow: Flow) -> float:
        return self._scanned(flow) * self.db.project

    def db_join(self, left: Flow, right: Flow, out: Flow) -> float:
        emitted = self.executions * out.size if self.drive is Drive.SLIDE else out.rate
        return (self._scanned(left) + self._scanned(right)) * self.db.join_in + emitted * self.db.join_out

    def db_aggregate(self, flow: Flow, functions: tuple[str, ...]) -> float:
        return self._scanned(flow) * self.db.aggregate * self.profile.aggregate_weight(functions)
