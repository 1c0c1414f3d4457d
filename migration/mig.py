"""The MIG operator (paper 001, section 3): a fragment of the plan that runs in the database, once per tick.

Its base relations are views over window stores, `win_p`, relations that Spark ships in at the tick, `in_join1`, and
panes of windows, `pane_agg1`. A tick is evaluated when no tuple before it can come any more, so panes before it stay as
they are; they live as long as the session and are made again from the store after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from connectors.database import Database, PaneKeeper, Panes, Value
from connectors.tick import EPOCH, Span, Tick
from connectors.types import column_types
from costmodel.operators import AggregateForm
from optimizer.algebra import Aggregate, Node, StoredTable, Window, inputs
from optimizer.catalog import Catalog
from optimizer.physical import PhysicalPlan, PlanOperator, Where, one_tick, operator_ids, pane_name, store_name
from optimizer.sql.panes import window_of
from optimizer.sql.render import flat_names, fragment_query, in_dialect, pane_query

TICK = pa.field("_tick", pa.timestamp("us"))


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

    def at(self, database: Database, tick: Tick) -> pa.Table:
        """The fragment's relation at a tick."""
        for window, panes in self.panes:
            until = tick.boundaries[window.alias]
            assert isinstance(database, PaneKeeper)
            database.reach(panes, until - timedelta(microseconds=window.spec.size), until)
        return database.query(self.sql, self._values(tick), self.schema)

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
        query = fragment_query(root, shipped, plan.drive, one_tick(plan.tree), pane_names(placed))
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
