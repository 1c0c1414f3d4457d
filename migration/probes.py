"""Operators of a deployed plan measured one by one: how many rows they give, and how long they take on their own.

`ArrivalProbe` looks at the tuples of a few batches while the plan runs: what selections on streams pass, and what it
takes to keep tuples and partial aggregates in Spark. `OperatorProbe` evaluates the last batch's instants once more when
the plan has stopped: an operator in Spark over inputs that are in memory, one in the database as the difference between
its part of the MIG's SQL and those of its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from time import perf_counter

import pyarrow as pa
from pyspark.sql import DataFrame
from sqlglot import exp

from connectors.spark.arrow import frame_of
from connectors.spark.sliding import BUCKET
from connectors.spark.state import SpeState
from connectors.tick import EPOCH, Span, Tick
from connectors.types import column_types
from costmodel.flow import Drive
from migration.deployment import Deployment
from migration.feed import Arrivals, Seen
from migration.layout import KeptTuples, Layout
from migration.mig import Mig, by_tick, in_panes, pane_names, stacked
from migration.ticks import instant
from optimizer.algebra import (
    Aggregate,
    Node,
    Project,
    Relational,
    Scalar,
    Select,
    StoredTable,
    Window,
    column,
    inputs,
    leaves,
    outputs,
    post_order,
)
from optimizer.catalog import Catalog
from optimizer.costing import store_key
from optimizer.physical import PhysicalPlan, PlanOperator, Where, one_tick, operator_ids, store_name
from optimizer.sql.panes import window_of
from optimizer.sql.postgres import for_postgres
from optimizer.sql.render import fragment_query

REPEATS = 3
MOST_TICKS = 4  # that are evaluated again
READING = "the source"  # among an arrival probe's `seconds`: bringing a batch in, whatever is done with it
_SCRATCH = "probe"  # a store of Spark's that nothing reads
_ONE = pa.schema([pa.field("one", pa.int64())])


@dataclass(frozen=True)
class Work:
    """One execution of an operator: at a tick, or on what arrived in a batch."""

    rows: float
    size: float  # of the relation; the same as `rows` where a tick makes the whole of it anew
    seconds: float


@dataclass(frozen=True)
class MigWork:
    """One execution of a MIG's SQL: the fixed part, and all of it with the result left where it is or brought back.

    `given` and `taken` are Spark's seconds for handing relations over and for taking the result in.
    """

    fixed: float
    counted: float
    whole: float
    given: float = 0.0
    taken: float = 0.0


@dataclass(frozen=True)
class StreamSelect:
    """A selection that Spark runs on tuples as they arrive."""

    window: Window
    before: tuple[Scalar, ...]  # what others below it let through
    own: tuple[Scalar, ...]

    def kept(self, predicates: tuple[Scalar, ...]) -> KeptTuples:
        w = self.window

        def on_stream(part: exp.Expr) -> exp.Expr:
            return column(w.stream, part.name) if isinstance(part, exp.Column) else part

        read = tuple(dict.fromkeys((w.time_column, *w.columns)))
        return KeptTuples("", w.stream, w.time_column, tuple(p.transform(on_stream) for p in predicates), read, (w,))


def stream_selects(plan: PhysicalPlan) -> dict[str, StreamSelect]:
    """By the operator's id."""
    found: dict[str, StreamSelect] = {}
    by_node: dict[int, StreamSelect] = {}
    for o in plan.operators:
        if isinstance(o.node, Select) and o.where is Where.SPE:
            below = o.node.input
            if isinstance(below, Window):
                found[o.id] = by_node[id(o.node)] = StreamSelect(below, (), o.node.predicates)
            elif id(below) in by_node:
                lower = by_node[id(below)]
                more = StreamSelect(lower.window, (*lower.before, *lower.own), o.node.predicates)
                found[o.id] = by_node[id(o.node)] = more
    return found


def timed(action: Callable[..., object], *arguments: object) -> float:
    started = perf_counter()
    action(*arguments)
    return perf_counter() - started


def _run(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


# -- while the plan runs ----------------------------------------------------------------------------------------------


@dataclass
class ArrivalProbe:
    """An observer of batches. It looks closely at batches 0, 1, 2, 4, 8, …: often enough, and ever less in the way."""

    plan: PhysicalPlan
    catalog: Catalog
    kept: Layout
    state: SpeState
    tuples: dict[str, int] = field(default_factory=dict)  # by stream, of all batches: those in time
    came: dict[str, int] = field(default_factory=dict)  # by selection, of the batches looked at
    passed: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)  # per batch, by operator or store
    spent: dict[int, float] = field(default_factory=dict)  # on looking, by batch

    def __post_init__(self) -> None:
        self._selects = stream_selects(self.plan)

    def __call__(self, arrivals: Arrivals, seen: dict[str, Seen]) -> None:
        for stream, part in seen.items():
            self.tuples[stream] = self.tuples.get(stream, 0) + part.tuples - part.late - part.malformed
        wanted = self._selects or self.kept.in_spark or self.kept.partials
        if wanted and arrivals.batch & (arrivals.batch - 1) == 0:
            self.spent[arrivals.batch] = timed(self._look, arrivals)

    def per_batch(self, name: str) -> float:
        """The seconds of the last batches looked at: the first one is slow, because the JVM is cold."""
        found = self.seconds.get(name, [0.0])
        return median(found[1:][-REPEATS:] or found)

    def _look(self, arrivals: Arrivals) -> None:
        rows = arrivals.usable.persist()
        try:
            self._note(READING, rows.count)
            for name, select in self._selects.items():
                self._select(name, arrivals, select)
            for k in self.kept.in_spark:
                own = arrivals.selected(k)
                self._note(k.name, self.state.write, _SCRATCH, arrivals.batch, own, k.time_column)
            for p in self.kept.partials:
                tuples = arrivals.selected(p.source)
                flat = tuples.toDF(*(f"{p.window.alias}_{name}" for name in tuples.columns))
                partial = p.sliding(self.catalog).partial(flat)
                self._note(p.name, self.state.write, _SCRATCH, arrivals.batch, partial, BUCKET)
        finally:
            rows.unpersist()

    def _select(self, name: str, arrivals: Arrivals, select: StreamSelect) -> None:
        before = arrivals.selected(select.kept(select.before))
        after = arrivals.selected(select.kept((*select.before, *select.own)))
        self.came[name] = self.came.get(name, 0) + before.count()
        self.passed[name] = self.passed.get(name, 0) + after.count()
        without, with_it = ([timed(_run, frame) for _ in range(REPEATS)] for frame in (before, after))
        more = min(with_it) - min(without)
        # The selection is part of the job that reads the source: a difference that one job alone shows is none.
        self.seconds.setdefault(name, []).append(more if more > max(without) - min(without) else 0.0)

    def _note(self, name: str, action: Callable[..., object], *arguments: object) -> None:
        self.seconds.setdefault(name, []).append(timed(action, *arguments))


# -- when it has stopped ----------------------------------------------------------------------------------------------


class OperatorProbe:
    """Every operator at the instants of the last batch, over what the deployment keeps."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment, self.plan = deployment, deployment.plan
        self.evaluator, self.database = deployment.evaluator, deployment.database
        self.ids = operator_ids(self.plan.tree)
        self.work: dict[str, Work] = {}  # by operator; not of selections on streams
        self.migs: dict[str, MigWork] = {}
        self.stored: dict[str, int] = {}  # rows of stored tables, by alias
        self._streaming = {id(o.node) for o in self.plan.operators if o.id in stream_selects(self.plan)}
        self._frames: dict[int, DataFrame] = {}
        self._moments()

    def _moments(self) -> None:
        batches = self.deployment.batches
        progress = batches.progress
        assert progress.evaluated is not None
        until = progress.evaluated
        since = progress.spans[-1][0] if progress.spans else until - 1_000_000
        self.span = Span(instant(since), instant(until))
        self.ticks: list[Tick] = []
        if self.plan.drive is Drive.SLIDE:
            counted = batches.counted(progress)
            found = batches.windows.ticks(progress.spans, counted)
            # A batch without a tick: the windows as they stand.
            self.ticks = found[-MOST_TICKS:] or [batches.windows.tick(progress.evaluated, counted)]

    @property
    def executions(self) -> int:
        return len(self.ticks) or 1

    def measure(self) -> None:
        with self.evaluator.handover:
            self._measure()

    def _measure(self) -> None:
        fragments = {id(mig.root): mig for mig in self.evaluator.migs}
        try:
            for leaf in leaves(self.plan.tree):
                if isinstance(leaf, StoredTable):
                    self.stored[leaf.alias] = self.evaluator.evaluation(self.ticks, {}).table(leaf).count()
            for o in self.plan.operators:
                if id(o.node) in fragments:
                    self._mig(fragments[id(o.node)])
                elif o.where is Where.SPE and id(o.node) not in self._streaming:
                    self._spe(o)
        finally:
            for frame in self._frames.values():
                frame.unpersist()

    # -- in Spark ----------------------------------------------------------------------------------------------------

    def _spe(self, o: PlanOperator) -> None:
        node, root = o.node, self.plan.tree.input
        held = self._frame(node, self.span if node is root else Span(EPOCH, self.span.until))
        seconds = self._seconds(held)
        if isinstance(node, Select | Project) and id(node.input) in self._frames:
            # It is no job of its own, but part of the one that makes its input.
            seconds = max(0.0, seconds - self._seconds(self._frames[id(node.input)]))
        frame = self._frame(node, Span(EPOCH, self.span.until)).persist()
        size = frame.count() / self.executions
        rows = size if self.ticks else self._frame(node, self.span).count()
        self._frames[id(node)] = frame
        self.work[o.id] = Work(rows, size, seconds / self.executions)

    @staticmethod
    def _seconds(frame: DataFrame) -> float:
        _run(frame)  # once for the JVM
        return median(timed(_run, frame) for _ in range(REPEATS))

    def _taken(self, table: pa.Table) -> float:
        handover = self.evaluator.handover
        _run(handover.frame(table))  # once for the JVM
        return median(timed(lambda: _run(handover.frame(table))) for _ in range(REPEATS))

    @staticmethod
    def _handing_over(frame: DataFrame) -> float:
        frame.toArrow()  # once for the JVM
        return median(timed(frame.toArrow) for _ in range(REPEATS))

    def _frame(self, node: Relational, span: Span) -> DataFrame:
        below = {id(n): self._frames[id(n)] for n in inputs(node) if id(n) in self._frames}
        if not self.ticks:
            return self.evaluator.spark_arrived(node, span, below)
        for kept in self.deployment.kept.partials:
            if kept.aggregate is node:
                stored = self.evaluator.state.read(kept.name, self.evaluator.state_schemas[kept.name])
                sliding = kept.sliding(self.deployment.catalog)
                return sliding.combined(self.deployment.spark, stored, self.ticks)
        return self.evaluator.evaluation(self.ticks, below).relation(node)

    # -- in the database ---------------------------------------------------------------------------------------------

    def _mig(self, mig: Mig) -> None:
        planned = next(m for m in self.plan.migs if m.id == mig.id)
        members = [o for o in self.plan.operators if o.id in planned.operators]
        counting = {o.id: replace(self._counting(o.node, members, mig.is_whole), panes=mig.panes) for o in members}
        seconds: dict[str, list[float]] = {o.id: [] for o in members}
        rows: dict[str, list[int]] = {o.id: [] for o in members}
        sizes: dict[str, list[int]] = {o.id: [] for o in members}
        fixed, whole, results = [], [], []
        given = sum(self._handing_over(self._frames[id(node)]) for node, _ in mig.ships)
        for tick in self._with_shipped(mig):
            for name, fragment in counting.items():
                size, new = self._counts(fragment, tick)
                sizes[name].append(size)
                rows[name].append(new)
                seconds[name] += [timed(self._execute, fragment, tick) for _ in range(REPEATS)]
            fixed += [timed(self.database.query, "SELECT 1 AS one", {}, _ONE) for _ in range(REPEATS)]
            whole += [timed(self._execute, mig, tick) for _ in range(REPEATS)]
            results.append((tick or Tick(self.span.until), self._result(mig, tick)))
        always = median(fixed)
        total = {name: max(0.0, median(found) - always) for name, found in seconds.items()}
        combined = pane_names(members)
        for o in members:
            below = () if id(o.node) in combined else o.inputs
            own = max(0.0, total[o.id] - sum(total.get(name, 0.0) for name in below))
            self.work[o.id] = Work(_mean(rows[o.id]), _mean(sizes[o.id]), own * _share_seen(o, members))
        table = stacked(results, mig.schema) if self.ticks else results[0][1]
        taken = 0.0 if mig.is_whole else self._taken(table)
        self._frames[id(mig.root)] = frame_of(self.deployment.spark, table).persist()
        border = (given / self.executions, taken / self.executions)
        self.migs[mig.id] = MigWork(always, always + total[members[-1].id], median(whole), *border)

    def _with_shipped(self, mig: Mig) -> Iterator[Tick | None]:
        """Every tick with what Spark ships in at it; a tuple-driven fragment runs once, for its span."""
        tables = {name: self._frames[id(node)].toArrow() for node, name in mig.ships}
        if not self.ticks:
            for name, rows in tables.items():
                self.database.fill(name, rows)
            yield None
            return
        cut = {name: [own for _, own in by_tick(rows, self.ticks)] for name, rows in tables.items()}
        for i, tick in enumerate(self.ticks):
            for name, parts in cut.items():
                self.database.fill(name, parts[i])
            yield tick

    def _execute(self, fragment: Mig, tick: Tick | None) -> pa.Table:
        if tick is not None:
            return fragment.at(self.database, tick)
        return fragment.between(self.database, self.span)

    def _result(self, mig: Mig, tick: Tick | None) -> pa.Table:
        return self._execute(mig, tick) if tick else mig.between(self.database, Span(EPOCH, self.span.until))

    def _counts(self, fragment: Mig, tick: Tick | None) -> tuple[int, int]:
        """The rows of the relation, and those of them that are new."""
        held = self._result(fragment, tick)
        new = held
        if tick is None:
            spans = {"since": self.span.since, "until": self.span.until}
            values = {name: spans[name] for name in fragment.parameters}
            new = self.database.query(fragment.sql, values, fragment.schema)
        return int(held.column(0)[0].as_py()), int(new.column(0)[0].as_py())

    def _counting(self, node: Relational, members: list[PlanOperator], is_whole: bool) -> Mig:
        """The fragment up to an operator, with its rows counted in place and every column that is new made use of."""
        inside = {id(o.node) for o in members}
        below = [b for o in members for b in inputs(o.node) if id(b) not in inside]
        shipped = {id(b): store_name(b, self.ids) for b in below if not isinstance(b, Window | StoredTable)}
        query = fragment_query(node, shipped, self.plan.drive, one_tick(self.plan.tree), pane_names(members))
        stored = store_key(node) is not None  # a selection of a window works no column out
        types = [] if stored else _types(node, column_types(node, self.deployment.catalog))
        sql, schema = counted(query, types, self.database.dialect)
        names = tuple(sorted({p.name for p in query.find_all(exp.Parameter)}))
        return Mig("", node, sql, names, schema, (), frozenset(), is_whole)


def _share_seen(o: PlanOperator, members: list[PlanOperator]) -> float:
    """Of its input at a tick. What goes into panes is seen once, when it is new."""
    for above in in_panes(members):
        window = window_of(above.node) if isinstance(above.node, Aggregate) else None
        if window is not None and o is not above and any(n is o.node for n in post_order(above.node)):
            return min(1.0, (window.spec.slide or window.spec.size) / window.spec.size)
    return 1.0


def counted(query: exp.Select, types: list[pa.DataType], dialect: str) -> tuple[str, pa.Schema]:
    """A query for the number of rows of another, which has to work out all its columns, and what comes out of it."""
    names = [f"c{i}" for i in range(len(types))]
    columns = [exp.to_identifier(name, quoted=True) for name in names]
    alias = exp.TableAlias(this=exp.to_identifier("fragment"), columns=columns)
    over = exp.Select().select(exp.alias_(exp.Count(this=exp.Star()), "n"))
    fields = [pa.field("n", pa.int64())]
    for name, kind in zip(names, types, strict=True):
        ordered = not (pa.types.is_boolean(kind) or pa.types.is_binary(kind))  # PostgreSQL has no max of these
        column = exp.column(name, quoted=True)
        over = over.select(exp.alias_(exp.Max(this=column) if ordered else exp.Count(this=column), name, quoted=True))
        fields.append(pa.field(name, kind if ordered else pa.int64()))
    whole = over.from_(exp.Subquery(this=query, alias=alias))
    return (for_postgres(whole) if dialect == "postgres" else whole).sql(dialect=dialect), pa.schema(fields)


def _types(node: Node, known: Mapping[tuple[str, str], pa.DataType]) -> list[pa.DataType]:
    return [known[own] for own in outputs(node)]


def _mean(values: list[int]) -> float:
    return sum(values) / len(values)
