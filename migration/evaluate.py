"""A plan at its ticks: MIGs in the database, SPE operators on Spark, each fed by the other where they meet.

All ticks of a batch go through Spark in one job per crossing. A MIG's SQL runs once per tick, but for fragments that
look for the group of every tuple in their windows: there the ticks of a batch share the search. For others one run
would save its fixed cost only, which is a millisecond beside the scans of the windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from sqlglot import exp

from connectors.database import Database
from connectors.spark.arrow import ddl
from connectors.spark.handover import Handover
from connectors.spark.relations import Evaluation
from connectors.spark.state import SpeState
from connectors.spark.tuple_driven import spark_fragment
from connectors.stored_tables import lives_in, read_elsewhere
from connectors.tick import EPOCH, Span, Tick
from connectors.types import column_types
from migration.layout import KeptTuples, Layout, stored_tables
from migration.metrics import Clock, Share
from migration.mig import TICK, Mig, by_tick, migs, stacked
from migration.views import numbering
from optimizer.algebra import Named, Node, RelationToStream, Select, StoredTable, Window, inputs, operators, outputs
from optimizer.catalog import Catalog, Table
from optimizer.physical import PhysicalPlan, Where, operator_ids, store_name
from optimizer.sql.render import flat_names


@dataclass
class Evaluator:
    spark: SparkSession
    plan: PhysicalPlan
    catalog: Catalog
    kept: Layout
    database: Database
    state: SpeState
    handover: Handover
    clock: Clock
    before_query: Callable[[], None] = lambda: None
    _foreign: list[Table] = field(default_factory=list)

    @cached_property
    def migs(self) -> tuple[Mig, ...]:
        return migs(self.plan, self.catalog, self.database.dialect)

    @cached_property
    def schema(self) -> pa.Schema:
        return result_schema(self.plan.tree, self.catalog)

    def attach_tables(self) -> None:
        """Makes the stored tables that MIGs read known to the database; those of others are copied at each batch."""
        self._foreign = []
        for leaf in stored_tables([mig.root for mig in self.migs]):
            table = self.catalog.tables[leaf.table]
            if lives_in(table, self.database):
                self.database.attach(table)
            else:
                self._foreign.append(table)

    def _refresh(self) -> None:
        for table in self._foreign:
            with self.clock(Share.TRANSFER):
                self.database.fill(table.name, read_elsewhere(table, tuple(c.name for c in table.columns)))

    @cached_property
    def state_schemas(self) -> dict[str, StructType]:
        """Of all that Spark keeps, by name."""
        found = {k.name: self._frame(k, "").schema for k in self.kept.in_spark}
        for p in self.kept.partials:
            tuples = self._frame(p.source, f"{p.window.alias}_")
            found[p.name] = p.sliding(self.catalog).partial(tuples).schema
        return found

    def _frame(self, kept: KeptTuples, prefix: str) -> DataFrame:
        """No tuples, but their columns."""
        return self.spark.createDataFrame([], ddl(kept.store(self.catalog).schema, prefix))

    def emitted(self, rows: pa.Table) -> pa.Table:
        """A relation of the plan's last operator, with `_tick`, as the query's columns."""
        flat = flat_names(self.plan.tree.input)
        names = [flat[_column(i)] for i in self.plan.tree.items]
        return rows.select(["_tick", *names]).rename_columns(self.schema.names).cast(self.schema)

    # -- slide-driven ------------------------------------------------------------------------------------------------

    def at(self, ticks: Sequence[Tick]) -> pa.Table:
        """The result at each tick, in the query's columns."""
        self._refresh()
        with self.handover:
            return self._at(ticks)

    def _at(self, ticks: Sequence[Tick]) -> pa.Table:
        given: dict[int, DataFrame] = {}
        evaluation = self.evaluation(ticks, given)
        for kept in self.kept.partials:
            with self.clock(Share.SPARK):
                stored = self.state.read(kept.name, self.state_schemas[kept.name])
                given[id(kept.aggregate)] = kept.sliding(self.catalog).combined(self.spark, stored, ticks)
        for mig in self.migs:
            result = self._run(mig, ticks, evaluation)
            if mig.is_whole:
                return self.emitted(result)
            with self.clock(Share.TRANSFER, f"{mig.id} fetch"):
                given[id(mig.root)] = self.handover.frame(result)
        with self.clock(Share.SPARK, "ticks"):
            return self.emitted(evaluation.relation(self.plan.tree.input).toArrow())

    def evaluation(self, ticks: Sequence[Tick], given: Mapping[int, DataFrame]) -> Evaluation:
        """Spark's operators at some ticks, over what Spark keeps and what is given."""
        return Evaluation(self.spark, ticks, self.catalog, self._tuples, self._stored, given, self._sizes)

    @cached_property
    def _sizes(self) -> dict[int, float]:
        leaves = {id(leaf.node): leaf.size for leaf in self.plan.leaves}
        return leaves | {id(o.node): o.size for o in self.plan.operators}

    def _run(self, mig: Mig, ticks: Sequence[Tick], evaluation: Evaluation) -> pa.Table:
        shipped: dict[str, dict[int, pa.Table]] = {}
        for node, name in mig.ships:
            with self.clock(Share.SPARK, "ticks"):
                rows = evaluation.relation(node).toArrow()
            shipped[name] = {i: own for i, (_, own) in enumerate(by_tick(rows, ticks))}
        if not shipped:
            with self.clock(Share.DATABASE, f"{mig.id} run"):
                self.before_query()
                return stacked(list(mig.at_each(self.database, ticks)), mig.schema)
        parts = []
        for i, tick in enumerate(ticks):
            with self.clock(Share.TRANSFER, f"{mig.id} send"):
                for name, tables in shipped.items():
                    self.database.fill(name, tables[i])
            with self.clock(Share.DATABASE, f"{mig.id} run"):
                self.before_query()
                parts.append((tick, mig.at(self.database, tick)))
        return stacked(parts, mig.schema)

    def _tuples(self, window: Window) -> DataFrame:
        """The tuples Spark keeps for a window; those of a row window come from its store, with their numbers."""
        kept = self.kept.of(window)
        if kept.counted:
            return self._counted(window, kept)
        schema = self.state_schemas[kept.name]
        found = self.state.read(kept.name, schema)
        return found if found is not None else self.spark.createDataFrame([], schema)

    def _counted(self, window: Window, kept: KeptTuples) -> DataFrame:
        store = kept.store(self.catalog)
        names = [f.name for f in store.schema if not f.name.startswith("_")]
        table = exp.Table(this=exp.to_identifier(kept.name, quoted=True))
        query = exp.Select().select(*(exp.column(name, quoted=True) for name in names)).from_(table)
        query = query.select(exp.alias_(numbering(window), "_seq", quoted=True))
        schema = pa.schema([*(store.schema.field(name) for name in names), pa.field("_seq", pa.int64())])
        with self.clock(Share.DATABASE):
            rows = self.database.query(query.sql(dialect=self.database.dialect), {}, schema)
        with self.clock(Share.TRANSFER):
            return self.handover.frame(rows)

    def _stored(self, leaf: StoredTable) -> DataFrame:
        table = self.catalog.tables[leaf.table]
        types = column_types(leaf, self.catalog)
        schema = pa.schema([pa.field(name, types[leaf.alias, name]) for name in leaf.columns])
        with self.clock(Share.TRANSFER):
            read = self.database.read_table if lives_in(table, self.database) else read_elsewhere
            rows = read(table, leaf.columns)
            return self.handover.frame(rows.select(list(leaf.columns)).cast(schema))

    # -- tuple-driven ------------------------------------------------------------------------------------------------

    def between(self, span: Span) -> pa.Table:
        """The rows whose newest tuple is of the span; their tick is its end."""
        self._refresh()
        with self.handover:
            return self._between(span)

    def _between(self, span: Span) -> pa.Table:
        found: dict[int, pa.Table | DataFrame] = {}
        runs = {id(mig.root): mig for mig in self.migs}
        where = {id(o.node): o.where for o in self.plan.operators}
        root = self.plan.tree.input
        ids = operator_ids(self.plan.tree)
        nodes: list[Node] = [*operators(self.plan.tree)]
        for node in nodes or [root]:
            if id(node) in runs:
                found[id(node)] = self._arrived(runs[id(node)], span, found)
            elif node is not root and store_name(node, ids).startswith("win_"):
                continue  # a selection of a window: its tuples are in the window's store
            elif where.get(id(node)) is not Where.DB:
                found[id(node)] = self.spark_arrived(node, span if node is root else Span(EPOCH, span.until), found)
        with self.clock(Share.SPARK, "ticks"):
            result = found[id(root)]
            rows = result if isinstance(result, pa.Table) else result.toArrow()
        return self.emitted(stacked([(Tick(span.until), rows)], rows.schema))

    def _arrived(self, mig: Mig, span: Span, found: dict[int, pa.Table | DataFrame]) -> pa.Table:
        for node, name in mig.ships:
            below = found[id(node)]
            with self.clock(Share.SPARK, "ticks"):
                rows = below if isinstance(below, pa.Table) else below.toArrow()
            with self.clock(Share.TRANSFER, f"{mig.id} send"):
                self.database.fill(name, rows)
        with self.clock(Share.DATABASE, f"{mig.id} run"):
            self.before_query()
            return mig.between(self.database, span)

    def spark_arrived(self, node: Node, span: Span, found: Mapping[int, pa.Table | DataFrame]) -> DataFrame:
        """An operator's rows of a span, over those of its inputs."""
        ids = operator_ids(self.plan.tree)
        shipped, frames = {}, {}
        for below in inputs(node) or (node,):
            match below:
                case Window():
                    frames[f"win_{below.alias}"] = self._tuples(below)
                case StoredTable():
                    frames[below.table] = self._stored(below)
                case Select() if store_name(below, ids).startswith("win_"):
                    # A selection right above a window fills the window's store: its result is a window again.
                    name = shipped[id(below)] = store_name(below, ids)
                    frames[name] = self._selected(below, found.get(id(below)))
                case _:
                    name = shipped[id(below)] = store_name(below, ids)
                    result = found[id(below)]
                    frames[name] = self.handover.frame(result) if isinstance(result, pa.Table) else result
        return spark_fragment(self.spark, node, frames, shipped, span, self.catalog)

    def _selected(self, node: Select, result: pa.Table | DataFrame | None) -> DataFrame:
        """A selection of a window under the stream's own names: kept by Spark, or what the database made of it."""
        if result is None:
            return self._tuples(_base(node))
        frame = self.handover.frame(result) if isinstance(result, pa.Table) else result
        return frame.toDF(*(name for _, name in outputs(node)))


def result_schema(tree: RelationToStream, catalog: Catalog) -> pa.Schema:
    """Of a query's result: the tick, then the columns of the query."""
    types = column_types(tree.input, catalog)
    items = [pa.field(i.name, types[_column(i)]) for i in tree.items]
    return pa.schema([pa.field("_tick" if "tick" in {f.name for f in items} else "tick", TICK.type), *items])


def _column(item: Named) -> tuple[str, str]:
    """What the root hands on is a column of the operator below it."""
    assert isinstance(item.expression, exp.Column)
    return item.expression.table, item.expression.name


def _base(node: Node) -> Window:
    while isinstance(node, Select):
        node = node.input
    assert isinstance(node, Window)
    return node
