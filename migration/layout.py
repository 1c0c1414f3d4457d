"""What a plan keeps where: window stores in the database, buffers and partial aggregates in Spark (paper 001, §3).

Every window has one consumer above the selections that Spark runs on its way: a DB operator wants its tuples in a
window store, an SPE aggregate wants partial aggregates, any other SPE operator the tuples themselves. Windows of the
same stream after the same selections share a store, whether they belong to one MIG or to several. A row window needs a
number for each tuple, in one order over all of them: its store is in the database wherever its operators run, and has
every tuple of the stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from connectors.database import Store
from connectors.spark.sliding import Form, SlidingAggregate, splittable
from connectors.types import arrow_type
from optimizer.algebra import (
    Aggregate,
    Node,
    Scalar,
    Select,
    StoredTable,
    Tree,
    Window,
    WindowUnit,
    column,
    inputs,
    leaves,
    post_order,
    text,
)
from optimizer.catalog import Catalog
from optimizer.physical import PhysicalPlan, Where, operator_ids

ORDER = (pa.field("_batch", pa.int64()), pa.field("_arrival", pa.int64()))  # of tuples with the same event time


@dataclass(frozen=True)
class KeptTuples:
    """Tuples of one stream after some selections, in the database or in Spark, for the windows that share them."""

    name: str
    stream: str
    time_column: str
    predicates: tuple[Scalar, ...]  # on the stream's columns, qualified by its name
    columns: tuple[str, ...]
    windows: tuple[Window, ...]

    @property
    def counted(self) -> bool:
        return self.windows[0].spec.unit is WindowUnit.ROWS

    def store(self, catalog: Catalog) -> Store:
        types = {c.name: arrow_type(c.type) for c in catalog.streams[self.stream].columns}
        fields = [pa.field(name, types[name]) for name in self.columns]
        return Store(self.name, pa.schema([*fields, *(ORDER if self.counted else ())]), self.time_column)


@dataclass(frozen=True)
class KeptPartials:
    """Partial aggregates of one sliding aggregate, in Spark."""

    name: str
    aggregate: Aggregate
    window: Window
    form: Form
    source: KeptTuples  # which tuples go in; kept nowhere else on this account

    def sliding(self, catalog: Catalog) -> SlidingAggregate:
        return SlidingAggregate(self.aggregate, self.form, catalog)


@dataclass(frozen=True)
class Layout:
    in_database: tuple[KeptTuples, ...]
    in_spark: tuple[KeptTuples, ...]
    partials: tuple[KeptPartials, ...]
    filters: dict[str, tuple[Scalar, ...]] = field(default_factory=dict)  # of row windows: by alias, as in the query

    def of(self, window: Window) -> KeptTuples:
        return next(k for k in (*self.in_database, *self.in_spark) if window in k.windows)

    def columns(self, stream: str) -> tuple[str, ...]:
        """All that is read of a stream."""
        kept = (*self.in_database, *self.in_spark, *(p.source for p in self.partials))
        read = [name for k in kept if k.stream == stream for name in (*k.columns, *_read(k.predicates))]
        return tuple(dict.fromkeys(read))


def forms_of(plan: PhysicalPlan, form: Form | None) -> dict[str, Form]:
    """How each sliding aggregate in Spark is run, by operator: all in one form, or as the plan says."""
    sliding = [
        o for o in plan.operators if o.where is Where.SPE and isinstance(o.node, Aggregate) and splittable(o.node)
    ]
    return {o.id: form or (Form(o.form) if o.form in list(Form) else Form.PANE) for o in sliding}


def layout(plan: PhysicalPlan, forms: Mapping[str, Form], reads: frozenset[tuple[str, str]]) -> Layout:
    """`reads` has the columns, as (alias, name), that the SQL of MIGs reads: nothing else goes into their stores."""
    where = {id(o.node): o.where for o in plan.operators}
    ids = operator_ids(plan.tree)
    in_database: list[tuple[Window, tuple[Scalar, ...]]] = []
    in_spark: list[tuple[Window, tuple[Scalar, ...]]] = []
    partials: list[KeptPartials] = []
    filters: dict[str, tuple[Scalar, ...]] = {}
    for node in post_order(plan.tree):
        for below in inputs(node):
            base, chain = _through_selects(below, where)
            if not isinstance(base, Window) or _passes_on(node, where):
                continue
            predicates = tuple(p for select in chain for p in select.predicates)
            if base.spec.unit is WindowUnit.ROWS:
                in_database.append((base, ()))
                filters[base.alias] = predicates
            elif where.get(id(node)) is Where.DB:
                in_database.append((base, predicates))
            elif isinstance(node, Aggregate) and splittable(node):
                source = _kept("", [base], _on_stream(predicates, base))
                name = ids[id(node)]
                form = forms[name]
                partials.append(KeptPartials(f"{name}_{form.value}", node, base, form, source))
            else:
                in_spark.append((base, predicates))
    return Layout(_shared("store", in_database, reads), _shared("buffer", in_spark, None), tuple(partials), filters)


def stored_tables(nodes: Iterable[Node]) -> list[StoredTable]:
    return list({leaf.table: leaf for n in nodes for leaf in leaves(n) if isinstance(leaf, StoredTable)}.values())


def _through_selects(node: Node, where: dict[int, Where]) -> tuple[Node, list[Select]]:
    """Down through the selections that Spark runs."""
    chain: list[Select] = []
    while isinstance(node, Select) and where[id(node)] is Where.SPE:
        chain.append(node)
        node = node.input
    return node, chain


def _passes_on(node: Tree, where: dict[int, Where]) -> bool:
    """A selection in Spark wants nothing for itself: what is above it does."""
    return isinstance(node, Select) and where[id(node)] is Where.SPE


def _on_stream(predicates: tuple[Scalar, ...], window: Window) -> tuple[Scalar, ...]:
    def one(node: exp.Expr) -> exp.Expr:
        return column(window.stream, node.name) if isinstance(node, exp.Column) else node

    return tuple(p.transform(one) for p in predicates)


def _shared(
    kind: str, wanted: list[tuple[Window, tuple[Scalar, ...]]], reads: frozenset[tuple[str, str]] | None
) -> tuple[KeptTuples, ...]:
    groups: dict[tuple[str, WindowUnit, tuple[str, ...]], list[Window]] = {}
    known: dict[tuple[str, WindowUnit, tuple[str, ...]], tuple[Scalar, ...]] = {}
    for window, predicates in wanted:
        on_stream = _on_stream(predicates, window)
        key = (window.stream, window.spec.unit, tuple(sorted(text(p) for p in on_stream)))
        groups.setdefault(key, []).append(window)
        known[key] = on_stream
    return tuple(_kept(f"{kind}{i}", windows, known[key], reads) for i, (key, windows) in enumerate(groups.items(), 1))


def _kept(
    name: str,
    windows: list[Window],
    predicates: tuple[Scalar, ...],
    reads: frozenset[tuple[str, str]] | None = None,
) -> KeptTuples:
    first = windows[0]
    pruned = reads is not None and first.spec.unit is WindowUnit.TIME  # Spark may read a row window, too
    columns = [c for w in windows for c in w.columns if not pruned or (reads is not None and (w.alias, c) in reads)]
    read = [first.time_column, *columns]
    return KeptTuples(name, first.stream, first.time_column, predicates, tuple(dict.fromkeys(read)), tuple(windows))


def _read(predicates: tuple[Scalar, ...]) -> list[str]:
    return [c.name for p in predicates for c in p.find_all(exp.Column)]
