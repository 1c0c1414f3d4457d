"""Runs plans in DuckDB alone: every MIG by its own SQL, every SPE operator as a query of its own over its inputs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import isclose

import duckdb

from costmodel.profile import default_profile
from migration.mig import migs
from optimizer.algebra import (
    Node,
    Relational,
    RelationToStream,
    Select,
    StoredTable,
    Window,
    WindowUnit,
    inputs,
    leaves,
    operators,
)
from optimizer.catalog import Catalog
from optimizer.costing import Costing
from optimizer.engines import database
from optimizer.join_order.eager_aggregation import forms
from optimizer.join_order.phase_one import PAIR_BUDGET, View, order_joins
from optimizer.optimize import read_query
from optimizer.physical import operator_ids, physical_plan, placement_problem
from optimizer.placement.problem import Units, fragments
from optimizer.sql.render import flat_names, fragment_sql
from tests.oracle import EPOCH, Row


@dataclass
class Prepared:
    """A query, read, with every logical plan of it."""

    written: RelationToStream
    costing: Costing
    plans: list[RelationToStream]  # as written, then every form in both views' join order

    @staticmethod
    def of(sql: str, catalog: Catalog, engine: str = "duckdb") -> Prepared:
        written, _ = read_query(sql, catalog)
        costing = Costing.of(written, catalog, default_profile(), database(engine))
        moved = forms(written, costing.estimator, catalog)
        ordered = [order_joins(form, costing, view, PAIR_BUDGET, None).plan for form in moved for view in View]
        return Prepared(written, costing, [written, *ordered])


@dataclass
class Site:
    """A database with recorded streams: `recorded_<stream>` has their tuples, numbered in `_seq`."""

    connection: duckdb.DuckDBPyConnection

    def run(
        self, plan: RelationToStream, costing: Costing, in_db: Sequence[bool], given: dict[str, datetime]
    ) -> list[Row]:
        """The result of a placed plan, the columns as the query orders them; `given` has tick, or since and until."""
        self.stores(plan)
        nodes, ids = operators(plan), operator_ids(plan)
        problem = placement_problem(plan, costing, Units.OPERATOR)
        physical = physical_plan(plan, costing, problem, in_db)
        sql = {id(nodes[m[-1]]): mig.sql for m, mig in zip(fragments(problem, in_db), physical.migs, strict=True)}
        panes = {id(mig.root): mig.panes for mig in migs(physical, costing.estimator.catalog, "duckdb")}
        inside = {i for members in fragments(problem, in_db) for i in members[:-1]}
        one_tick = len({leaf.spec.slide for leaf in leaves(plan) if isinstance(leaf, Window)}) <= 1
        history = {**given, "since": EPOCH}  # what is shipped stays in its table from batch to batch
        for i, node in enumerate(nodes):
            if i in inside:
                continue
            below = {id(b): _store(b, ids) for b in inputs(node) if not isinstance(b, Window | StoredTable)}
            own = fragment_sql(node, below, costing.engines.drive, one_tick, "duckdb")
            for _, kept in panes.get(id(node), ()):
                always = {"since": EPOCH, "until": datetime(2100, 1, 1)}
                self.connection.execute(f'CREATE OR REPLACE TABLE "{kept.name}" AS {kept.sql}', always)
            self.materialise(
                node, sql.get(id(node), own), _store(node, ids), plan, given if node is plan.input else history
            )
        return self.result(plan, ids)

    def result(self, plan: RelationToStream, ids: dict[int, str]) -> list[Row]:
        if isinstance(plan.input, Window | StoredTable):
            raise AssertionError("a plan without operators has nothing to place")
        names = _stored_names(plan.input)
        columns = ", ".join(f'"{names[i.expression.table, i.expression.name]}"' for i in plan.items)
        return self.connection.sql(f'SELECT {columns} FROM "{_store(plan.input, ids)}"').fetchall()

    def stores(self, plan: RelationToStream) -> None:
        for leaf in leaves(plan):
            if isinstance(leaf, Window):
                self.connection.execute(f'DROP TABLE IF EXISTS "win_{leaf.alias}"')
                self.connection.execute(f'CREATE TABLE "win_{leaf.alias}" AS SELECT * FROM recorded_{leaf.stream}')

    def materialise(
        self, node: Relational, sql: str, name: str, plan: RelationToStream, given: dict[str, datetime]
    ) -> None:
        wanted, base = list(_stored_names(node).values()), _base(node)
        if isinstance(base, Window) and base.spec.unit is WindowUnit.ROWS:  # a store keeps the tuples' numbers
            sql, wanted = sql.replace("SELECT", f'SELECT "{base.alias}"."_seq",', 1), ["_seq", *wanted]
        result = self.connection.sql(sql, params=self.parameters(sql, plan, given)).to_arrow_table()
        assert len(wanted) == len(result.column_names), (wanted, result.column_names)
        arrow = result.rename_columns(wanted)
        self.connection.register("arrow", arrow)
        self.connection.execute(f'CREATE OR REPLACE TABLE "{name}" AS SELECT * FROM arrow')
        self.connection.unregister("arrow")

    def parameters(self, sql: str, plan: RelationToStream, given: dict[str, datetime]) -> dict[str, object]:
        windows = {leaf.alias: leaf for leaf in leaves(plan) if isinstance(leaf, Window)}
        values: dict[str, object] = {}
        for name in set(re.findall(r"\$(\w+)", sql)):
            kind, _, alias = name.partition("_")
            slides = [windows[alias].spec.slide] if alias else [w.spec.slide for w in windows.values()]
            if kind == "last":
                values[name] = self.last(windows[alias], given["tick"])
            elif kind == "tick":
                values[name] = boundary(given["tick"], slides[0] or 1)
            else:
                values[name] = given[name]
        return values

    def last(self, window: Window, tick: datetime) -> int:
        sql = f"SELECT count(*) FROM recorded_{window.stream} WHERE {window.time_column} < ?"
        ((seen,),) = self.connection.execute(sql, [tick]).fetchall()
        slide = window.spec.slide or 1
        return int(seen) // slide * slide


def boundary(tick: datetime, slide: int) -> datetime:
    passed = (tick - EPOCH) // timedelta(microseconds=1)
    return EPOCH + timedelta(microseconds=passed // slide * slide)


def _base(node: Node) -> Node:
    while isinstance(node, Select):
        node = node.input
    return node


def _store(node: Node, ids: dict[int, str]) -> str:
    base = _base(node)
    return f"win_{base.alias}" if isinstance(base, Window) else f"in_{ids[id(node)].replace('.', '_')}"


def _stored_names(node: Node) -> dict[tuple[str, str], str]:
    """A window's store has the stream's own names, anything else flat ones."""
    names = flat_names(node)
    return {c: c[1] for c in names} if isinstance(_base(node), Window) else names


def same(found: list[Row], expected: list[Row]) -> bool:
    """The same bag of rows, floats up to rounding."""
    if len(found) != len(expected):
        return False
    left = Counter(tuple(map(_rounded, row)) for row in found)
    right = Counter(tuple(map(_rounded, row)) for row in expected)
    if left == right:
        return True
    rest = list(expected)
    for row in found:
        match = next((i for i, other in enumerate(rest) if all(map(_close, row, other))), None)
        if match is None:
            return False
        rest.pop(match)
    return True


def _rounded(value: object) -> object:
    return float(f"{float(value):.9g}") if _is_number(value) else value  # type: ignore[arg-type]


def _is_number(value: object) -> bool:
    return hasattr(value, "__float__") and not isinstance(value, bool)


def _close(a: object, b: object) -> bool:
    if _is_number(a) and _is_number(b):
        return isclose(float(a), float(b), rel_tol=1e-9, abs_tol=1e-9)  # type: ignore[arg-type]
    return a == b
