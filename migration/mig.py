"""The MIG operator (paper 001, section 3): a fragment of the plan that runs in the database at each tick.

Its base relations are views over window stores, `win_p`, relations that Spark ships in at the tick, `in_join1`, and
panes of windows, `pane_agg1`. A tick is evaluated when no tuple before it can come any more, so panes before it stay as
they are; they live as long as the session and are made again from the store after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from connectors.database import Database, Panes, Value
from connectors.tick import EPOCH, Span, Tick
from connectors.types import column_types
from costmodel.operators import AggregateForm
from optimizer.algebra import Aggregate, Node, StoredTable, Window, inputs
from optimizer.catalog import Catalog
from optimizer.physical import PhysicalPlan, PlanOperator, Where, one_tick, operator_ids, pane_name, store_name
from optimizer.sql.panes import window_of
from optimizer.sql.render import flat_names, fragment_query, in_dialect, pane_query
from optimizer.sql.several import HERE, Compared, compared, several_query

TICK = pa.field("_tick", pa.timestamp("us"))
AT_ONCE = 8  # ticks that one SQL is for, at most: each of them adds conditions on every tuple


@dataclass(frozen=True)
class Together:
    """A fragment that can be run for several ticks in one SQL."""

    parts: Compared
    shipped: Mapping[int, str]
    panes: Mapping[int, str]
    dialect: str
    _sql: dict[int, str] = field(default_factory=dict)

    def sql(self, ticks: int) -> str:
        if ticks not in self._sql:
            self._sql[ticks] = in_dialect(several_query(self.parts, self.shipped, self.panes, ticks), self.dialect)
        return self._sql[ticks]

    def worth(self, ticks: Sequence[Tick]) -> bool:
        """Whether the windows of the ticks have most of their tuples in common."""
        reach = (ticks[-1].at - ticks[0].at) // timedelta(microseconds=1)
        return len(ticks) > 1 and 2 * reach <= self.parts.window.spec.size

    def schema(self, root: pa.Schema, ticks: int) -> pa.Schema:
        keys = len(self.parts.root.keys)
        fields = [root.field(i) for i in range(keys)]
        for tick in range(ticks):
            fields.append(pa.field(f"{HERE}{tick}", pa.int64()))
            fields += [root.field(i).with_name(f"{root.field(i).name}{tick}") for i in range(keys, len(root))]
        return pa.schema(fields)

    def cut(self, rows: pa.Table, root: pa.Schema, tick: int) -> pa.Table:
        """The relation at one of the ticks."""
        keys, each = len(self.parts.root.keys), 1 + len(self.parts.root.functions)
        here = keys + tick * each
        own = rows.filter(pc.greater(rows.column(here), 0))
        return own.select([*range(keys), *range(here + 1, here + each)]).rename_columns(root.names)


@dataclass(frozen=True)
class Mig:
    id: str
    root: Node
    sql: str
    parameters: tuple[str, ...]
    schema: pa.Schema  # of the result, columns named as `flat_names` does
    ships: tuple[tuple[Node, str], ...]  # SPE results that go in at each tick, with the names of their tables
    reads: frozenset[tuple[str, str]]  # (alias, column) of the windows whose stores its SQL reads
    is_whole: bool  # nothing of the query is left to do above it
    panes: tuple[tuple[Window, Panes], ...] = ()  # of windows right below its aggregates
    together: Together | None = None

    def at(self, database: Database, tick: Tick) -> pa.Table:
        """The fragment's relation at a tick."""
        self._reach(database, tick, tick)
        return database.query(self.sql, self._values(tick), self.schema)

    def at_each(self, database: Database, ticks: Sequence[Tick]) -> Iterator[tuple[Tick, pa.Table]]:
        """The fragment's relation at every tick, in as few runs as is cheaper."""
        for start in range(0, len(ticks), AT_ONCE):
            some = ticks[start : start + AT_ONCE]
            if self.together is None or not self.together.worth(some):
                yield from ((tick, self.at(database, tick)) for tick in some)
                continue
            self._reach(database, some[0], some[-1])
            values: dict[str, Value] = {f"at{i}": tick.at for i, tick in enumerate(some)}
            schema = self.together.schema(self.schema, len(some))
            rows = database.query(self.together.sql(len(some)), values, schema)
            yield from ((tick, self.together.cut(rows, self.schema, i)) for i, tick in enumerate(some))

    def _reach(self, database: Database, first: Tick, last: Tick) -> None:
        for window, panes in self.panes:
            since = first.boundaries[window.alias] - timedelta(microseconds=window.spec.size)
            database.reach(panes, since, last.boundaries[window.alias])

    def _values(self, tick: Tick) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for name in self.parameters:
            kind, _, alias = name.partition("_")
            if kind == "last":
                values[name] = tick.lasts[alias]
            else:
                values[name] = tick.boundaries[alias] if alias else tick.at
        return values

    def between(self, database: Database, span: Span) -> pa.Table:
        """The rows that arrived in a span. What others build on is asked for as far back as the stores go."""
        since: datetime = span.since if self.is_whole else EPOCH
        given: dict[str, Value] = {"since": since, "until": span.until}
        return database.query(self.sql, {n: given[n] for n in self.parameters}, self.schema)


def migs(plan: PhysicalPlan, catalog: Catalog, dialect: str) -> tuple[Mig, ...]:
    """One per DB-op, inputs before those that read them."""
    ids = operator_ids(plan.tree)
    known = {o.id: o for o in plan.operators}
    result = []
    for planned in plan.migs:
        placed = [known[name] for name in planned.operators]
        members = [o.node for o in placed]
        inside = {id(n) for n in members}
        below = [b for n in members for b in inputs(n) if id(b) not in inside]
        shipped = {id(b): store_name(b, ids) for b in below if not isinstance(b, Window | StoredTable)}
        root = members[-1]
        names = pane_names(placed)
        query = fragment_query(root, shipped, plan.drive, one_tick(plan.tree), names)
        parts = compared(root, names)
        fills = [(o, pane_query(o.node, shipped)) for o in in_panes(placed) if isinstance(o.node, Aggregate)]
        types = column_types(root, catalog)
        read = {(c.table, c.name) for q in (query, *(fill for _, fill in fills)) for c in q.find_all(exp.Column)}
        result.append(
            Mig(
                planned.id,
                root,
                in_dialect(query, dialect),
                tuple(sorted({p.name for p in query.find_all(exp.Parameter)})),
                pa.schema([pa.field(flat, types[own]) for own, flat in flat_names(root).items()]),
                tuple((b, shipped[id(b)]) for b in below if shipped.get(id(b), "").startswith("in_")),
                frozenset(read),
                root is plan.tree.input,
                tuple(_panes(o, fill, dialect) for o, fill in fills),
                Together(parts, shipped, names, dialect) if parts is not None and one_tick(plan.tree) else None,
            )
        )
    return tuple(result)


def in_panes(operators: Sequence[PlanOperator]) -> list[PlanOperator]:
    """The aggregates that the database makes from panes."""
    return [o for o in operators if o.where is Where.DB and o.form == AggregateForm.PANE]


def pane_names(operators: Sequence[PlanOperator]) -> dict[int, str]:
    return {id(o.node): pane_name(o.id) for o in in_panes(operators)}


def _panes(o: PlanOperator, fill: exp.Select, dialect: str) -> tuple[Window, Panes]:
    assert isinstance(o.node, Aggregate)
    window = window_of(o.node)
    assert window is not None
    return window, Panes(pane_name(o.id), in_dialect(fill, dialect))


def by_tick(rows: pa.Table, ticks: Sequence[Tick]) -> Iterator[tuple[Tick, pa.Table]]:
    """A relation with `_tick` cut into its relations at each tick."""
    for tick in ticks:
        own = rows.filter(pc.field("_tick") == pa.scalar(tick.at, TICK.type)) if len(ticks) > 1 else rows
        yield tick, own.drop_columns(["_tick"])


def stacked(parts: Sequence[tuple[Tick, pa.Table]], schema: pa.Schema) -> pa.Table:
    """Relations at ticks as one table, with `_tick` first."""
    tables = [rows.add_column(0, TICK, pa.repeat(pa.scalar(tick.at, TICK.type), rows.num_rows)) for tick, rows in parts]
    return pa.concat_tables(tables) if tables else pa.schema([TICK, *schema]).empty_table()
