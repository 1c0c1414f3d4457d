"""Rates, sizes and distinct values of every operator's output, from the catalog's statistics.

Classical estimation: uniform values, independent predicates, an equi-join keeps 1/max of the distinct keys. Columns
that join two relations together count as one composite key, so a declared joint statistic is used where there is one.
Every figure taken from outside is noted with its source, for explain.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from costmodel import flow as flows
from costmodel.flow import LARGEST, Drive, Estimate, Flow, Source
from costmodel.spread import Spread
from optimizer.aggregated import ABOVE, Aggregated, same
from optimizer.algebra import (
    Aggregate,
    Emission,
    EquiKey,
    Join,
    JoinKind,
    Leaf,
    Node,
    Project,
    RelationToStream,
    Scalar,
    Select,
    StoredTable,
    Tree,
    Window,
    WindowUnit,
    inputs,
    leaves,
    post_order,
    referenced,
    text,
)
from optimizer.catalog import Catalog, Column, Figure, Stream, Table
from optimizer.selectivity import Domain, default_share, range_bound
from optimizer.structure import Structure

DEFAULT_RATE = 1000.0
DEFAULT_ROWS = 10_000.0
DEFAULT_GROUPING = 0.1  # distinct values per tuple, where nothing is known
_WIDTHS = {"BOOLEAN": 1, "TINYINT": 1, "SMALLINT": 2, "INT": 4, "FLOAT": 4, "DATE": 4, "VARCHAR": 24, "TEXT": 24}


def drive_of(plan: RelationToStream) -> Drive:
    """Tuple-driven without an aggregate and with ISTREAM; all others are evaluated at ticks."""
    aggregated = any(isinstance(node, Aggregate) for node in post_order(plan))
    return Drive.TUPLE if plan.emission is Emission.ISTREAM and not aggregated else Drive.SLIDE


@dataclass
class Estimator:
    """One query's estimates. Nodes are remembered by identity: a plan's nodes are shared, never changed."""

    catalog: Catalog
    drive: Drive
    ticks: float
    relations: dict[str, Leaf]
    aggregated: Aggregated
    scale: float = 1.0  # of every stream's rate
    notes: dict[str, Estimate] = field(default_factory=dict)
    _flows: dict[int, tuple[Node, Flow]] = field(default_factory=dict)
    _distincts: dict[tuple[int, str, frozenset[str]], tuple[Node, Figure]] = field(default_factory=dict)
    _structure: Structure = field(default_factory=Structure)

    @staticmethod
    def of(plan: RelationToStream, catalog: Catalog) -> Estimator:
        relations = {leaf.alias: leaf for leaf in leaves(plan)}
        estimator = Estimator(catalog, drive_of(plan), 0.0, relations, Aggregated.in_plan(plan))
        estimator.ticks = estimator._tick_rate()
        return estimator

    def at(self, scale: float) -> Estimator:
        """The same query with all streams faster or slower: selectivities and widths do not depend on that."""
        other = Estimator(
            self.catalog, self.drive, self.ticks, self.relations, self.aggregated, scale, _structure=self._structure
        )
        other.ticks = other._tick_rate()
        return other

    def _tick_rate(self) -> float:
        windows = [leaf for leaf in self.relations.values() if isinstance(leaf, Window) and leaf.spec.slide]
        by_time = flows.tick_rate(w.spec.slide or 0 for w in windows if w.spec.unit is WindowUnit.TIME)
        rows = [w for w in windows if w.spec.unit is WindowUnit.ROWS]
        return by_time + sum(self.rate(w.stream).value / (w.spec.slide or 1) for w in rows)

    # -- what the catalog says --------------------------------------------------------------------------------------

    def note(self, what: str, figure: Figure | None, default: float, is_share: bool = False) -> Figure:
        used = self._assumed(what, figure or Figure(default, Source.DEFAULT))
        self.notes.setdefault(what, Estimate(what, used.value, used.source, used.spread, is_share))
        return used

    def _assumed(self, name: str, figure: Figure) -> Figure:
        other = self.catalog.assumed.get(name)
        return figure if other is None else Figure(other, figure.source)

    def rate(self, stream: str) -> Figure:
        declared = self.note(f"rate of {stream}", self.catalog.streams[stream].rate, DEFAULT_RATE)
        return declared if self.scale == 1.0 else Figure(declared.value * self.scale, declared.source)

    def rows(self, table: str) -> Figure:
        return self.note(f"rows of {table}", self.catalog.tables[table].rows, DEFAULT_ROWS)

    def _column(self, alias: str, name: str) -> Column | None:
        leaf = self.relations.get(alias)
        relation = self._relation(leaf) if leaf else None
        return next((c for c in relation.columns if c.name == name), None) if relation else None

    def _relation(self, leaf: Leaf) -> Stream | Table:
        return self.catalog.streams[leaf.stream] if isinstance(leaf, Window) else self.catalog.tables[leaf.table]

    def width(self, node: Node) -> float:
        return self._structure.width(node, self._column_width)

    def _column_width(self, alias: str, name: str) -> int:
        column = self._column(alias, name)
        return _WIDTHS.get(column.type.this.name, 8) if column else 8

    # -- flows ------------------------------------------------------------------------------------------------------

    def flow(self, node: Node) -> Flow:
        known = self._flows.get(id(node))
        if known is None:
            if all(id(below) in self._flows for below in inputs(node)):
                known = self._flows[id(node)] = (node, self._estimate(node))
            else:  # not by recursion: plans may be deep
                for below in post_order(node):
                    if id(below) not in self._flows and not isinstance(below, RelationToStream):
                        self._flows[id(below)] = (below, self._estimate(below))
                known = self._flows[id(node)]
        return known[1]

    def _estimate(self, node: Node) -> Flow:
        match node:
            case Window():
                return self._window(node)
            case StoredTable():
                rows = self.rows(node.table)
                return flows.stored(rows.value, self.width(node), self.drive, self.ticks, rows.source)
            case Select():
                share = self.conjunction(node.predicates)
                return flows.select(self.flow(node.input), share.value, share.source)
            case Project():
                return flows.project(self.flow(node.input), self.width(node))
            case Join():
                left, right = self.flow(node.left), self.flow(node.right)
                share = self.join_share(node)
                joined = flows.join(left, right, share.value, self.drive, self.ticks, share.source)
                if node.kind is JoinKind.LEFT and joined.size < left.size:  # every left tuple comes out
                    rate = left.rate if self.drive is Drive.TUPLE else self.ticks * left.size
                    joined = Flow(max(rate, joined.rate), left.size, joined.width, False, joined.source)
                return joined
            case Aggregate():
                below = self.flow(node.input)
                groups = self.groups(node)
                return flows.aggregate(below, groups.value, self.ticks, self.width(node), groups.source)

    def _window(self, node: Window) -> Flow:
        rate = self.rate(node.stream)
        if node.spec.unit is WindowUnit.ROWS:
            size = float(node.spec.size)
        else:
            size = rate.value * node.spec.size / 1_000_000
        return flows.window(rate.value, size, self.width(node), rate.source)

    # -- distinct values --------------------------------------------------------------------------------------------

    def groups(self, node: Aggregate) -> Figure:
        rows = self.flow(node.input).size
        if not node.keys:
            return Figure(1.0, Source.EXACT)
        return self.distinct([key.expression for key in node.keys], node.input, rows)

    def distinct(self, keys: Sequence[Scalar], node: Node, rows: float | None = None) -> Figure:
        """How many different combinations of values these expressions have over a relation, at most its size."""
        limit = self.flow(node).size if rows is None else rows
        domain = self.domain(keys, node)
        return Figure(max(min(domain.value, limit), min(limit, 1.0)), domain.source)

    def domain(self, keys: Sequence[Scalar], node: Node) -> Figure:
        """How many combinations there can be, whatever a selection or a short window leaves of them.

        That is what a join's selectivity rests on: a table of which a selection leaves a tenth meets a tenth of the
        tuples. It also makes the size of a join the same in every order.
        """
        columns = {name for key in keys for name in self._structure.columns(key)}
        value, source = 1.0, Source.EXACT
        for alias in sorted({alias for alias, _ in columns}):
            names = frozenset(name for owner, name in columns if owner == alias)
            figure = self._of_alias(alias, names, node)
            value, source = value * figure.value, min(source, figure.source)
        return Figure(min(value, LARGEST), source)

    def _of_alias(self, alias: str, names: frozenset[str], node: Node) -> Figure:
        key = (id(node), alias, names)
        known = self._distincts.get(key)
        if known is None:
            known = self._distincts[key] = (node, self._followed(alias, names, node))
        return known[1]

    def _followed(self, alias: str, names: frozenset[str], node: Node) -> Figure:
        """Follows the columns down to the operator that owns the alias; equi-joins on the way keep the smaller side."""
        while True:
            match node:
                case Select():
                    node = node.input
                case Join():
                    left = alias in self._structure.aliases(node.left)
                    matched = _matched(self._structure.key_groups(node.keys), alias, names, left)
                    if matched is not None:
                        here = self._of_alias(alias, names, node.left if left else node.right)
                        there = self.domain(matched, node.right if left else node.left)
                        return min(here, there, key=lambda f: f.value)
                    node = node.left if left else node.right
                case Aggregate():
                    if names == frozenset(key.name for key in node.keys):
                        return Figure(self.flow(node).size, self.flow(node).source)
                    return self._renamed(node, names)
                case Project():
                    return self._renamed(node, names)
                case Window() | StoredTable():
                    return self._of_leaf(node, names)

    def _renamed(self, node: Aggregate | Project, names: frozenset[str]) -> Figure:
        items = node.items if isinstance(node, Project) else node.keys
        stands_for = {item.name: item.expression for item in items}
        if all(name in stands_for for name in names):
            return self.domain([stands_for[name] for name in names], node.input)
        return Figure(self.flow(node).size, Source.DEFAULT)  # computed values: as many as there are tuples

    def _of_leaf(self, leaf: Leaf, names: frozenset[str]) -> Figure:
        """The declared joint figure; else the product over declared parts that do not overlap."""
        relation = self._relation(leaf)
        size = self.flow(leaf).size
        if isinstance(relation, Table) and relation.primary_key and names >= set(relation.primary_key):
            return Figure(size, Source.CATALOG)
        declared = {s.columns: s.distinct for s in relation.statistics if s.distinct is not None}
        what = f"distinct {', '.join(sorted(names))} of {relation.name}"
        if names in declared:
            return self.note(what, declared[names], 0.0)
        value, source, left, spread = 1.0, Source.CATALOG, set(names), Spread(1.0, 1.0)
        for part in sorted((columns for columns in declared if columns <= names), key=lambda c: (-len(c), sorted(c))):
            if part <= left:
                source = Source.CATALOG if left == names else Source.DERIVED  # parts are taken as independent
                value, left = value * declared[part].value, left - part
                spread = _times(spread, declared[part])
        if left:
            value, source = value * max(size * DEFAULT_GROUPING, 1.0), Source.DEFAULT
        for whole in declared:  # a part has at most as many values as a whole it belongs to
            if names < whole:
                value = min(value, declared[whole].value)
        sampled = spread if spread.sample and not left else None
        return self.note(what, Figure(value, source, sampled), 0.0)

    # -- selectivities ----------------------------------------------------------------------------------------------

    def conjunction(self, predicates: Sequence[Scalar]) -> Figure:
        """Independent predicates multiply; a lower and an upper bound of one column overlap."""
        value, source = 1.0, Source.EXACT
        bounds: dict[tuple[Scalar, bool], float] = {}
        for predicate in predicates:
            share = self.share(predicate)
            source = min(source, share.source)
            bound = range_bound(predicate)
            if bound is None or share.source is Source.DEFAULT:
                value *= share.value
            else:  # of several bounds on one side, the narrowest holds
                bounds[bound] = min(bounds.get(bound, 1.0), share.value)
        for (column, upwards), share_above in bounds.items():
            below = bounds.get((column, False))
            if upwards and below is not None:
                present = self._domain(column).present if isinstance(column, exp.Column) else 1.0
                value *= max(share_above + below - present, 0.0)
            elif upwards or (column, True) not in bounds:
                value *= share_above
        return Figure(value, source)

    def share(self, predicate: Scalar) -> Figure:
        estimate = self._structure.share(predicate, self._share)
        self.notes.setdefault(estimate.what, estimate)
        return Figure(estimate.value, estimate.source)

    def _share(self, predicate: Scalar, what: str) -> Estimate:
        name = self._name(predicate, what)
        figure = self._assumed(name or what, self._known_share(predicate))
        return Estimate(what, figure.value, figure.source, figure.spread, True, name)

    def _name(self, predicate: Scalar, what: str) -> str:
        """A selection's name whatever the alias: a query that reads a stream twice rests on one figure."""
        used = referenced(predicate)
        leaf = self.relations.get(next(iter(used))) if len(used) == 1 else None
        if leaf is None:
            return ""
        return f"{_under(what, leaf.alias, '')} of {self._relation(leaf).name}"

    def _known_share(self, predicate: Scalar) -> Figure:
        declared = self._declared(predicate)
        if declared is not None:
            return declared
        if self.aggregated.compares_mean(predicate):
            return Figure(ABOVE, Source.DEFAULT)
        return default_share(predicate, self._domain)

    def _declared(self, predicate: Scalar) -> Figure | None:
        """A selectivity the catalog gives for this very predicate."""
        named = sorted({self.aggregated.names[a] for a in referenced(predicate) if a in self.aggregated.names})
        facts = [fact for name in named if (r := self.catalog.relation(name)) for fact in r.selectivities]
        plain = self.aggregated.plain(predicate) if facts else None
        return next((f.share for f in facts if plain is not None and same(f.predicate, plain)), None)

    def _domain(self, column: exp.Column) -> Domain:
        """What is known of a leaf's column."""
        leaf = self.relations.get(column.table)
        if leaf is None:
            return Domain()
        declared = self._column(column.table, column.name)
        nulls = Figure(0.0) if declared and not declared.nullable else None
        one = next((s for s in self._relation(leaf).statistics if s.columns == {column.name}), None)
        if one is None:
            return Domain(nulls=nulls)
        return Domain(one.distinct, one.low, one.high, one.nulls or nulls, one.source, one.histogram)

    def join_share(self, node: Join) -> Figure:
        """Keys to one relation of the right side count as one composite key, then the residue as a selection."""
        value, source = 1.0, Source.EXACT
        for keys in self._structure.key_groups(node.keys):
            share = self.key_share(keys, node.left, node.right)
            value, source = value * share.value, min(source, share.source)
        residue = self.conjunction(node.residue)
        return Figure(value * residue.value, min(source, residue.source))

    def key_share(self, keys: Sequence[EquiKey], left: Node, right: Node) -> Figure:
        if len(keys) == 1:
            declared = self.share_of_equality(keys[0])
            if declared is not None:
                return declared
        here = self.domain([key.left for key in keys], left)
        there = self.domain([key.right for key in keys], right)
        return Figure(1.0 / max(here.value, there.value, 1.0), min(here.source, there.source))

    def share_of_equality(self, key: EquiKey) -> Figure | None:
        if not referenced(key.left) | referenced(key.right) <= self.relations.keys():
            return None
        for sides in ((key.left, key.right), (key.right, key.left)):
            figure = self._declared(exp.EQ(this=sides[0].copy(), expression=sides[1].copy()))
            if figure is not None:
                return self.note(" = ".join(self._plain(side) for side in sides), figure, 0.0, is_share=True)
        return None

    def _plain(self, side: Scalar) -> str:
        """A join key under the names of the relations."""
        what = text(side)
        for alias in referenced(side):
            what = _under(what, alias, f"{self.aggregated.names[alias]}.")
        return what


def _times(spread: Spread, part: Figure) -> Spread:
    other = part.spread or Spread(part.value, part.value)
    sample = min(filter(None, (spread.sample, other.sample)), default=0)
    return Spread(spread.low * other.low, spread.high * other.high, sample)


def _under(what: str, alias: str, qualifier: str) -> str:
    """
    >>> _under("p.value > 0.9 * p.most", "p", "")
    'value > 0.9 * most'
    """
    return re.sub(rf"\b{re.escape(alias)}[.]", lambda _: qualifier, what)


def _matched(groups: list[list[EquiKey]], alias: str, names: frozenset[str], left: bool) -> list[Scalar] | None:
    """The other side's columns, where exactly these columns are joined to one relation."""
    for group in groups:
        own = [key.left if left else key.right for key in group]
        if all(isinstance(e, exp.Column) and e.table == alias for e in own) and {e.name for e in own} == names:
            return [key.right if left else key.left for key in group]
    return None


def window_over_slide(node: Tree) -> float | None:
    """size / slide of the one window that an operator stands on, with at most selections between."""
    while isinstance(node, Select):
        node = node.input
    if isinstance(node, Window) and node.spec.slide:
        return node.spec.size / node.spec.slide
    return None
