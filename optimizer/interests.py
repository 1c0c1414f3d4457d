"""What queries would like to know of their streams and tables: the figures their costs rest on.

These are the columns that are grouped by or joined on together, the selections, the columns they compare with
constants, the equi-joins, and the comparisons of a value with an aggregate of its group. Columns of aggregates and
subqueries are followed down to the streams and tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlglot import exp

from optimizer.aggregated import Aggregated
from optimizer.algebra import (
    Aggregate,
    EquiKey,
    Join,
    Leaf,
    Project,
    RelationToStream,
    Scalar,
    Select,
    StoredTable,
    Window,
    leaves,
    post_order,
    referenced,
)
from optimizer.catalog import Catalog, Stream, Table
from optimizer.optimize import read_query
from optimizer.selectivity import range_bound
from optimizer.structure import key_groups


@dataclass(frozen=True, slots=True)
class Selection:
    """A predicate on one relation, its columns qualified by the relation's name."""

    relation: str
    predicate: exp.Expr


@dataclass(frozen=True, slots=True)
class EquiJoin:
    """Two expressions that a query joins on, each over one relation; the two may be the same."""

    left: str
    left_key: exp.Expr
    right: str
    right_key: exp.Expr


@dataclass(frozen=True, slots=True)
class Comparison:
    """A predicate on a relation's tuples and an aggregate of all that have the same keys, `within` a selection."""

    relation: str
    predicate: exp.Expr
    keys: tuple[exp.Expr, ...]
    within: tuple[exp.Expr, ...]


@dataclass(frozen=True)
class Interests:
    """`compared` are the columns that need a histogram; without queries nobody knows, and it is None."""

    groups: frozenset[tuple[str, frozenset[str]]]  # relation, columns
    compared: frozenset[tuple[str, str]] | None
    selections: tuple[Selection, ...] = ()
    joins: tuple[EquiJoin, ...] = ()
    comparisons: tuple[Comparison, ...] = ()

    def groups_of(self, relation: str) -> list[tuple[str, ...]]:
        found = {tuple(sorted(columns)) for name, columns in self.groups if name == relation}
        return sorted(found, key=lambda c: (len(c), c))


def interests(catalog: Catalog, queries: Iterable[str]) -> Interests:
    groups = set(_declared(catalog))
    compared: set[tuple[str, str]] = set()
    selections: dict[Selection, None] = {}
    joins: dict[EquiJoin, None] = {}
    comparisons: dict[Comparison, None] = {}
    asked = False
    for sql in queries:
        asked = True
        query = _Query.of(read_query(sql, catalog)[0])
        groups |= set(query.groups())
        for selection in query.selections():
            selections[selection] = None
            for comparison in selection.predicate.find_all(exp.GT, exp.GTE, exp.LT, exp.LTE):
                if bound := range_bound(comparison):
                    compared.add((selection.relation, bound[0].name))
        joins |= dict.fromkeys(query.joins())
        comparisons |= dict.fromkeys(query.comparisons())
    ranges = frozenset(compared) if asked else None
    return Interests(frozenset(groups), ranges, tuple(selections), tuple(joins), tuple(comparisons))


def _declared(catalog: Catalog) -> Iterator[tuple[str, frozenset[str]]]:
    """Every column, and the column groups that the catalog itself speaks of; not the time of a stream's tuples."""
    relations: list[Stream | Table] = [*catalog.streams.values(), *catalog.tables.values()]
    for relation in relations:
        time = relation.watermark.column if isinstance(relation, Stream) and relation.watermark else None
        yield from ((relation.name, frozenset({c.name})) for c in relation.columns if c.name != time)
        yield from ((relation.name, fact.columns) for fact in relation.statistics)
        if isinstance(relation, Table) and relation.primary_key:
            yield relation.name, frozenset(relation.primary_key)


@dataclass(frozen=True)
class _Query:
    tree: RelationToStream
    leaves: dict[str, Leaf]
    computed: dict[tuple[str, str], Scalar]  # what a subquery's column, or an aggregate's key, stands for
    aggregated: Aggregated

    @staticmethod
    def of(tree: RelationToStream) -> _Query:
        computed: dict[tuple[str, str], Scalar] = {}
        for node in post_order(tree):
            if isinstance(node, Aggregate | Project):
                items = node.keys if isinstance(node, Aggregate) else node.items
                computed |= {(node.alias, item.name): item.expression for item in items}
        return _Query(tree, {leaf.alias: leaf for leaf in leaves(tree)}, computed, Aggregated.in_plan(tree))

    def groups(self) -> Iterator[tuple[str, frozenset[str]]]:
        for node in post_order(self.tree):
            if isinstance(node, Aggregate):
                yield from self._by_relation([key.expression for key in node.keys])
            elif isinstance(node, Join):
                for keys in key_groups(node.keys):
                    yield from self._by_relation([key.left for key in keys])
                    yield from self._by_relation([key.right for key in keys])

    def _by_relation(self, keys: Iterable[Scalar]) -> Iterator[tuple[str, frozenset[str]]]:
        found: dict[str, set[str]] = {}
        for key in keys:
            for alias, name in self._origins(key):
                found.setdefault(alias, set()).add(name)
        for alias, names in found.items():
            yield relation_name(self.leaves[alias]), frozenset(names)

    def _origins(self, scalar: Scalar) -> Iterator[tuple[str, str]]:
        for column in scalar.find_all(exp.Column):
            if column.table in self.leaves:
                yield column.table, column.name
            elif (column.table, column.name) in self.computed:
                yield from self._origins(self.computed[column.table, column.name])

    def selections(self) -> Iterator[Selection]:
        for node in post_order(self.tree):
            if isinstance(node, Select | Join):
                for predicate in node.predicates if isinstance(node, Select) else node.residue:
                    if plain := self._plain(predicate):
                        yield Selection(*plain)

    def joins(self) -> Iterator[EquiJoin]:
        """Keys on which two relations meet alone; keys that meet together are counted as a group instead."""
        for node in post_order(self.tree):
            if isinstance(node, Join):
                yield from (
                    found for keys in key_groups(node.keys) if len(keys) == 1 and (found := self._join(keys[0]))
                )

    def comparisons(self) -> Iterator[Comparison]:
        """Of tuples that are joined with an aggregate of their own relation, under the same selection, by its keys."""
        aggregates = {node.alias: node for node in post_order(self.tree) if isinstance(node, Aggregate)}
        for node in post_order(self.tree):
            if not isinstance(node, Join):
                continue
            for predicate in node.residue:
                tuples, groups = referenced(predicate) & self.leaves.keys(), referenced(predicate) & aggregates.keys()
                if len(tuples) == len(groups) == 1:
                    found = self._comparison(predicate, node.keys, min(tuples), aggregates[min(groups)])
                    if found is not None:
                        yield found

    def _comparison(
        self, predicate: Scalar, on: Iterable[EquiKey], alias: str, aggregate: Aggregate
    ) -> Comparison | None:
        below = aggregate.input
        while isinstance(below, Select):
            below = below.input
        plain = self.aggregated.plain
        condition = plain(predicate)
        if condition is None or not isinstance(below, Window | StoredTable):
            return None
        here, there = self._within(alias), self._within(below.alias)
        keys = {key.name: plain(key.expression) for key in aggregate.keys}
        sides = [(k.left, k.right) if aggregate.alias in referenced(k.right) else (k.right, k.left) for k in on]
        joined = {theirs.name: plain(own) for own, theirs in sides if referenced(theirs) == {aggregate.alias}}
        relation = relation_name(self.leaves[alias])
        if relation != relation_name(below) or here != there or keys != joined:
            return None
        found = tuple(key for key in keys.values() if key is not None)
        return Comparison(relation, condition, found, here) if len(found) == len(keys) else None

    def _within(self, alias: str) -> tuple[exp.Expr, ...]:
        """The selection of a leaf, whatever the order of its predicates."""
        selects = [node for node in post_order(self.tree) if isinstance(node, Select)]
        own = [p for node in selects for p in node.predicates if referenced(p) == {alias}]
        found = [plain for p in own if (plain := self.aggregated.plain(p)) is not None]
        return tuple(sorted(found, key=lambda p: p.sql()))

    def _join(self, key: EquiKey) -> EquiJoin | None:
        left, right = self._plain(key.left), self._plain(key.right)
        return EquiJoin(*left, *right) if left and right else None

    def _plain(self, scalar: Scalar) -> tuple[str, exp.Expr] | None:
        """The relation an expression is about, and the expression in its name; None where there is not exactly one."""
        used = referenced(scalar)
        leaf = self.leaves.get(next(iter(used))) if len(used) == 1 else None
        if leaf is None or any(f.name.lower() == "tick" for f in scalar.find_all(exp.Anonymous)):
            return None
        plain = scalar.copy()
        for column in plain.find_all(exp.Column):
            column.set("table", exp.to_identifier(relation_name(leaf), quoted=True))
        return relation_name(leaf), plain


def relation_name(leaf: Leaf) -> str:
    return leaf.stream if isinstance(leaf, Window) else leaf.table
