"""From batches, clocks and probes to figures per second of stream, beside the estimates for the same figures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from connectors.spark.sliding import Form
from costmodel.flow import Drive
from costmodel.operators import AggregateForm
from migration.analysis import (
    SMALLEST_U,
    Analysis,
    LeafAnalysis,
    MigAnalysis,
    OperatorAnalysis,
    Pair,
    UnitAnalysis,
    pair,
)
from migration.deployment import Deployment
from migration.metrics import Share
from migration.observer import Sample
from migration.probes import READING, ArrivalProbe, OperatorProbe, stream_selects
from migration.remarks import remarks
from migration.ticks import microseconds
from optimizer.algebra import (
    Aggregate,
    Node,
    Project,
    RelationToStream,
    Select,
    Window,
    WindowUnit,
    inputs,
    transform,
)
from optimizer.costing import Costing
from optimizer.optimize import Optimized
from optimizer.physical import (
    LOOP,
    Mig,
    PhysicalPlan,
    PlanLeaf,
    PlanOperator,
    Where,
    engine_name,
    physical_plan,
    placement_problem,
)
from optimizer.placement.problem import Units

_COLD = 2  # first batches, in which the JVM and the database warm up


@dataclass(frozen=True)
class MigTimes:
    """Seconds per second of stream."""

    send: float
    run: float
    fetch: float

    @property
    def u(self) -> float:
        return self.send + self.run + self.fetch


@dataclass
class Measured:
    deployment: Deployment
    samples: list[Sample]
    bookkeeping: float
    arrivals: ArrivalProbe
    probe: OperatorProbe
    earlier: int = 0  # microseconds of stream that were in the windows when the run began

    def __post_init__(self) -> None:
        self.plan: PhysicalPlan = self.deployment.plan
        self._selects = stream_selects(self.plan)
        self._kept = self.deployment.kept
        self._partials = {id(p.aggregate): p for p in self._kept.partials}
        migs = self.deployment.batches.evaluator.migs
        self._shared = {id(mig.together.parts.join) for mig in migs if mig.together is not None}
        progress = self.deployment.batches.progress
        assert progress.oldest is not None
        assert progress.evaluated is not None
        self._oldest, self._evaluated = progress.oldest, progress.evaluated
        first = min(_COLD, len(self.samples) // 3)
        self._settled = self.samples[first:]
        self._before = self.samples[first - 1] if first else Sample(self.samples[0].report, self._oldest, {})

    # -- time --------------------------------------------------------------------------------------------------------

    @cached_property
    def stream_seconds(self) -> float:
        """In the batches whose times count."""
        return max((self._settled[-1].newest - self._before.newest) / 1e6, 1e-6)

    @cached_property
    def batches(self) -> float:
        """Per second of stream."""
        return len(self._settled) / self.stream_seconds

    @cached_property
    def ticks(self) -> float:
        """Per second of stream; of a tuple-driven query, the batches."""
        if self.plan.drive is Drive.TUPLE:
            return self.batches
        seconds = max((self._evaluated - self._oldest) / 1e6, 1e-6)
        return sum(s.report.ticks for s in self.samples) / seconds

    def _part(self, name: str) -> float:
        """Seconds per second of stream of a part that the clock knows."""
        return (self._settled[-1].parts.get(name, 0.0) - self._before.parts.get(name, 0.0)) / self.stream_seconds

    @cached_property
    def _stored(self) -> float:
        """What a relation shipped into the stores takes: they are written in one transaction."""
        shipped = sum(len(mig.ships) for mig in self.plan.migs)
        return self._part("store") / shipped if shipped else 0.0

    @cached_property
    def migs(self) -> dict[str, MigTimes]:
        found = {}
        for mig in self.plan.migs:
            work = self.probe.migs[mig.id]
            run = self._part(f"{mig.id} run")
            back = min(run, max(0.0, work.whole - work.counted) * self.ticks)
            send = self._stored * len(mig.ships) + self._part(f"{mig.id} send") + self._in_spark(work.given)
            fetch = back + self._part(f"{mig.id} fetch") + self._in_spark(work.taken)
            found[mig.id] = MigTimes(send, run - back, fetch)
        return found

    # Probes run operators by themselves, over inputs that are in memory; in the run they share jobs, and Spark plans
    # them together. So probes say how the time of the run is divided, and its clock how much there was.

    def _in_spark(self, seconds: float) -> float:
        """What a probe of so many seconds per execution stands for, of the work at ticks per second of stream."""
        return seconds * self.ticks * self._longer_at_ticks

    @cached_property
    def _borders(self) -> float:
        """Spark's seconds per execution at the borders of MIGs."""
        return sum(work.given + work.taken for work in self.probe.migs.values())

    @cached_property
    def _longer_at_ticks(self) -> float:
        own = [o.id for o in self.plan.operators if o.where is Where.SPE and o.id in self.probe.work]
        probed = (sum(self.probe.work[name].seconds for name in own) + self._borders) * self.ticks
        return self._part("ticks") / probed if probed and self._part("ticks") else 1.0

    @cached_property
    def _longer_on_arrival(self) -> float:
        stores = [k.name for k in self._kept.in_spark] + [p.name for p in self._kept.partials]
        names = (READING, *self._selects, *stores)
        probed = sum(map(self.arrivals.per_batch, names)) * self.batches
        return self._part("arrivals") / probed if probed and self._part("arrivals") else 1.0

    @cached_property
    def loop_unit(self) -> float:
        """Everything in Spark's loop that is neither a MIG's nor the sink's."""
        busy = sum(s.report.seconds - s.probing + self.bookkeeping for s in self._settled)
        sink = sum(s.report.shares[Share.SINK] for s in self._settled)
        return max(0.0, (busy - sink) / self.stream_seconds - sum(m.u for m in self.migs.values()))

    @cached_property
    def loop(self) -> float:
        """The same without the operators."""
        on_arrival = sum(self._on_arrival(o) for o in self.plan.operators)
        at_ticks = max(0.0, self._part("ticks") - self._in_spark(self._borders))
        return max(self.bookkeeping * self.batches, self.loop_unit - at_ticks - on_arrival)

    # -- rows --------------------------------------------------------------------------------------------------------

    def _lasted(self, stream: str) -> float:
        newest = self.deployment.batches.progress.newest.get(stream, self._oldest)
        return max((newest - self._oldest) / 1e6, 1e-6)

    def filled(self, window: Window) -> int:
        """How much of a window there was at the last instant, in its own unit."""
        if window.spec.unit is WindowUnit.ROWS:
            return max(1, min(window.spec.size, self.arrivals.tuples.get(window.stream, 0)))
        instant = microseconds(self.probe.ticks[-1].boundaries[window.alias]) if self.probe.ticks else self._evaluated
        return max(1, min(window.spec.size, instant - self._oldest + self.earlier))

    @cached_property
    def flows(self) -> dict[str, tuple[float, float]]:
        """Rate and size of what every leaf and operator puts out, by id."""
        found: dict[str, tuple[float, float]] = {}
        for leaf in self.plan.leaves:
            if isinstance(leaf.node, Window):
                rate = self.arrivals.tuples.get(leaf.node.stream, 0) / self._lasted(leaf.node.stream)
                filled = self.filled(leaf.node)
                found[leaf.id] = rate, rate * filled / 1e6 if leaf.node.spec.unit is WindowUnit.TIME else float(filled)
            else:
                rows = float(self.probe.stored[leaf.id])
                found[leaf.id] = (self.ticks * rows if self.plan.drive is Drive.SLIDE else 0.0), rows
        for o in self.plan.operators:
            found[o.id] = self._flow(o, found)
        return found

    def _flow(self, o: PlanOperator, found: dict[str, tuple[float, float]]) -> tuple[float, float]:
        rate, size = found[o.inputs[0]]
        if o.id in self._selects:
            share = self.arrivals.passed[o.id] / max(self.arrivals.came[o.id], 1)
            return rate * share, size * share
        work = self.probe.work[o.id]
        if self.plan.drive is Drive.TUPLE:
            seconds = (self.probe.span.until - self.probe.span.since).total_seconds()
            return work.rows / max(seconds, 1e-6), work.size
        if _brings_new(o.node):
            return rate * work.size / size if size else 0.0, work.size
        return self.ticks * work.size, work.size

    # -- work --------------------------------------------------------------------------------------------------------

    def _batch_seconds(self, o: PlanOperator) -> float:
        """What an operator in Spark does with a batch's tuples as they arrive."""
        if o.where is Where.DB:
            return 0.0
        seconds = self.arrivals.per_batch(o.id)
        if (partial := self._partials.get(id(o.node))) is not None:
            return seconds + self.arrivals.per_batch(partial.name)
        if o.id not in self._selects:
            for window in map(_window_below, inputs(o.node)):
                kept = next((k for k in self._kept.in_spark if window in k.windows), None)
                seconds += self.arrivals.per_batch(kept.name) / len(kept.windows) if kept else 0.0
        return seconds

    def _on_arrival(self, o: PlanOperator) -> float:
        return self._batch_seconds(o) * self.batches * self._longer_on_arrival

    def u(self, o: PlanOperator) -> float:
        seconds = self.probe.work[o.id].seconds if o.id in self.probe.work else 0.0
        if o.where is Where.SPE:
            return self._on_arrival(o) + self._in_spark(seconds)
        # The probe runs every tick by itself; in the run, ticks of a batch may have shared the join.
        times = min(self.ticks, self.batches) if id(o.node) in self._shared else self.ticks
        return seconds * times + sum(isinstance(below, Window) for below in inputs(o.node)) * self._stored

    def _form(self, o: PlanOperator) -> str | None:
        """How an aggregate was run, which is not up to the cost model."""
        if not isinstance(o.node, Aggregate) or o.where is Where.DB:
            return None
        partial = self._partials.get(id(o.node))
        return partial.form.value if partial else "relation"

    # -- beside the estimates ----------------------------------------------------------------------------------------

    def analysis(self, optimized: Optimized) -> Analysis:
        estimated = self._as_filled(optimized)
        operators = tuple(map(self._operator, self.plan.operators, estimated.operators))
        leaves = tuple(map(self._leaf, self.plan.leaves, estimated.leaves))
        last, reports = self.samples[-1].report, [s.report for s in self.samples]
        return Analysis(
            1,
            self.plan.id,
            last.finished - reports[0].finished + reports[0].seconds,
            (self.samples[-1].newest - self._oldest) / 1e6,
            last.tuples,
            len(reports),
            sum(r.ticks for r in reports),
            sum(r.rows for r in reports),
            last.late,
            last.malformed,
            pair(self.plan.ticks, self.ticks if self.plan.drive is Drive.SLIDE else 0.0, 1e-6),
            pair(estimated.loop, self.loop, SMALLEST_U),
            self.bookkeeping,
            leaves,
            operators,
            tuple(map(self._mig, estimated.migs)),
            tuple(UnitAnalysis(unit.id, pair(unit.u, self._unit(unit.id), SMALLEST_U)) for unit in estimated.units),
            tuple(remarks(self.plan, estimated, operators, leaves)),
        )

    def _as_filled(self, optimized: Optimized) -> PhysicalPlan:
        """The plan with windows only as long as the run could fill them, and what it would be estimated at."""
        filled = {leaf.node.alias: self.filled(leaf.node) for leaf in self.plan.leaves if isinstance(leaf.node, Window)}

        def shorter(node: Node) -> Node:
            return replace(node, spec=replace(node.spec, size=filled[node.alias])) if isinstance(node, Window) else node

        tree = replace(self.plan.tree, input=transform(self.plan.tree.input, shorter))
        plan = self._estimated(tree, optimized)
        # Spark's own windows copy a tuple into all that will hold it, also those that end after the run.
        whole = {o.id: o.u for o in self._estimated(self.plan.tree, optimized).operators}
        expanded = {o.id for o in self.plan.operators if self._form(o) == Form.EXPAND.value}
        operators = tuple(replace(o, u=whole[o.id]) if o.id in expanded else o for o in plan.operators)
        return replace(plan, operators=operators)

    def _estimated(self, tree: RelationToStream, optimized: Optimized) -> PhysicalPlan:
        """What a tree is estimated at under this plan's placement, with batches and forms as they were in the run."""
        profile = replace(optimized.options.profile, batch_interval=1 / self.batches)
        forms = {p.form for p in self._kept.partials}
        form = AggregateForm(forms.pop().value) if len(forms) == 1 else None
        costing = Costing.of(tree, optimized.catalog, profile, optimized.database, form)
        problem = placement_problem(tree, costing, self.plan.units_are)
        return physical_plan(tree, costing, problem, [o.where is Where.DB for o in self.plan.operators])

    def _leaf(self, leaf: PlanLeaf, estimated: PlanLeaf) -> LeafAnalysis:
        rate, size = self.flows[leaf.id]
        node = leaf.node
        relation = node.stream if isinstance(node, Window) else node.table
        filled = self.filled(node) / node.spec.size if isinstance(node, Window) else 1.0
        return LeafAnalysis(leaf.id, relation, filled, self._rate(estimated.rate, rate), pair(estimated.size, size, 1))

    def _rate(self, estimated: float, measured: float) -> Pair:
        """One row in the whole run is the least that can be seen."""
        return pair(estimated, measured, 1e6 / max(self._evaluated - self._oldest, 1))

    def _operator(self, o: PlanOperator, estimated: PlanOperator) -> OperatorAnalysis:
        rate, size = self.flows[o.id]
        return OperatorAnalysis(
            o.id,
            o.kind,
            engine_name(o, self.plan.database),
            self._form(o),
            o.mig,
            o.inputs,
            self._rate(estimated.rate_in, sum(self.flows[below][0] for below in o.inputs)),
            self._rate(estimated.rate_out, rate),
            pair(estimated.size, size, 1.0),
            pair(estimated.u, self.u(o), SMALLEST_U),
            o.text,
        )

    def _mig(self, mig: Mig) -> MigAnalysis:
        own = self.migs[mig.id]
        run = mig.u - mig.send - mig.fetch
        pairs = ((mig.u, own.u), (mig.send, own.send), (run, own.run), (mig.fetch, own.fetch))
        return MigAnalysis(mig.id, *(pair(estimate, found, SMALLEST_U) for estimate, found in pairs))

    def _unit(self, name: str) -> float:
        if name in self.migs:
            return self.migs[name].u
        if name != LOOP:
            return self.u(next(o for o in self.plan.operators if o.id == name))
        match self.plan.units_are:
            case Units.OPERATOR:
                return self.loop
            case Units.ENGINE:
                return self.loop_unit
            case Units.LOOP:
                return self.loop_unit + sum(m.u for m in self.migs.values())


def _brings_new(node: Node) -> bool:
    """Whether an operator's output is new tuples, one after the other, and not a whole relation at each tick."""
    while isinstance(node, Select | Project):
        node = node.input
    return isinstance(node, Window)


def _window_below(node: Node) -> Node:
    while isinstance(node, Select):
        node = node.input
    return node
