"""A migration candidate to one SQL query in the database's dialect (paper 001, section 3).

Base relations of the query are window stores, `win_p` for the window with alias p, and the results of SPE-ops that are
shipped in, `in_join1`. A window's contents at a tick are a range on its store; the tick comes in as a parameter. A
tuple-driven fragment asks for the rows whose newest tuple arrived since the last run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from costmodel.flow import Drive
from optimizer.algebra import (
    Aggregate,
    Join,
    JoinKind,
    Named,
    Node,
    Project,
    Scalar,
    Select,
    StoredTable,
    Window,
    WindowUnit,
    column,
    duration,
    leaves,
    outputs,
)

Columns = dict[tuple[str, str], tuple[str, str]]


@dataclass
class _Open:
    """FROM, JOIN and WHERE of a query that has no select list yet."""

    items: list[tuple[exp.Expression, list[Scalar], bool]]  # relation, ON, whether LEFT
    where: list[Scalar] = field(default_factory=list)


@dataclass
class _Renderer:
    shipped: Mapping[int, str]  # inputs of the fragment, by identity of the node, with the name of their table
    drive: Drive
    one_tick: bool
    renamed: Columns = field(default_factory=dict)
    times: list[exp.Column] = field(default_factory=list)

    def expression(self, scalar: Scalar) -> Scalar:
        def one(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Column) and (node.table, node.name) in self.renamed:
                return column(*self.renamed[node.table, node.name])
            if isinstance(node, exp.Anonymous) and node.name.upper() == "TICK":
                return _moment("tick")
            return node

        return scalar.transform(one)

    def open(self, node: Node) -> _Open:
        if id(node) in self.shipped:
            return self.input(node, self.shipped[id(node)])
        match node:
            case Window():
                return _Open([(_table(f"win_{node.alias}", node.alias), [], False)], self.contents(node))
            case StoredTable():
                return _Open([(_table(node.table, node.alias), [], False)])
            case Select():
                below = self.open(node.input)
                below.where += [self.expression(p) for p in node.predicates]
                return below
            case Join():
                return self.join(node)
            case Aggregate() | Project():
                return _Open([(self.closed(node).subquery(_quoted(node.alias)), [], False)])

    def input(self, node: Node, name: str) -> _Open:
        """A shipped relation: a window store keeps its alias and columns, any other has them flattened."""
        base = node
        while isinstance(base, Select):
            base = base.input
        if isinstance(base, Window):
            return _Open([(_table(name, base.alias), [], False)], self.contents(base))
        for alias, own in outputs(node):
            self.renamed[alias, own] = (name, f"{alias}_{own}")
        return _Open([(_table(name, name), [], False)])

    def contents(self, node: Window) -> list[Scalar]:
        """The window at the tick: a range of its store."""
        stamp = column(node.alias, node.time_column)
        if self.drive is Drive.TUPLE:
            self.times.append(stamp)
            return []
        if node.spec.unit is WindowUnit.ROWS:
            number = column(node.alias, "_seq")
            last = exp.Placeholder(this=f"last_{node.alias}")
            first = exp.Sub(this=last.copy(), expression=exp.Literal.number(node.spec.size))
            return [exp.GT(this=number, expression=first), exp.LTE(this=number.copy(), expression=last)]
        tick = _moment("tick" if self.one_tick else f"tick_{node.alias}")
        start = exp.Sub(this=tick.copy(), expression=_interval(node.spec.size))
        return [exp.GTE(this=stamp, expression=start), exp.LT(this=stamp.copy(), expression=tick)]

    def join(self, node: Join) -> _Open:
        left, right = self.open(node.left), self.open(node.right)
        if node.kind is JoinKind.LEFT and (right.where or len(right.items) > 1):
            right = self.wrapped(node.right, right)
        on: list[Scalar] = []
        on += [exp.EQ(this=self.expression(k.left), expression=self.expression(k.right)) for k in node.keys]
        on += [self.expression(r) for r in node.residue]
        if node.kind is JoinKind.LEFT:
            left.items.append((right.items[0][0], on, True))
            return left
        # Every condition goes to the last of the relations it reads.
        names = [item.alias_or_name for item, _, _ in right.items]
        extra: dict[str, list[Scalar]] = {name: [] for name in names}
        for condition in on:
            read = {c.table for c in condition.find_all(exp.Column)}
            home = next((name for name in reversed(names) if name in read), names[0])
            extra[home].append(condition)
        for item, conditions, outer in right.items:
            left.items.append((item, conditions + extra[item.alias_or_name], outer))
        left.where += right.where
        return left

    def wrapped(self, node: Node, inside: _Open) -> _Open:
        name = f"side_{leaves(node)[0].alias}"
        flat = [exp.alias_(self.expression(column(*c)), f"{c[0]}_{c[1]}", quoted=True) for c in outputs(node)]
        for alias, own in outputs(node):
            self.renamed[alias, own] = (name, f"{alias}_{own}")
        return _Open([(_select(inside, flat).subquery(_quoted(name)), [], False)])

    def closed(self, node: Node) -> exp.Select:
        """A whole query: the select list is the node's output."""
        match node:
            case Aggregate():
                inside = self.open(node.input)
                query = _select(inside, self.items((*node.keys, *node.functions)))
                if node.keys:
                    query = query.group_by(*(self.expression(k.expression) for k in node.keys), copy=False)
                return query
            case Project():
                return _select(self.open(node.input), self.items(node.items))
            case _:
                inside = self.open(node)
                flat = [exp.alias_(self.expression(column(*c)), f"{c[0]}_{c[1]}", quoted=True) for c in outputs(node)]
                return _select(inside, flat)

    def items(self, named: tuple[Named, ...]) -> list[exp.Expr]:
        return [exp.alias_(self.expression(n.expression), n.name, quoted=True) for n in named]


def fragment_query(root: Node, shipped: Mapping[int, str], drive: Drive, one_tick: bool) -> exp.Select:
    renderer = _Renderer(shipped, drive, one_tick)
    query = renderer.closed(root)
    if drive is Drive.TUPLE and renderer.times:
        query = _arrivals(query, root, renderer)
    return query


def fragment_sql(root: Node, shipped: Mapping[int, str], drive: Drive, one_tick: bool, dialect: str) -> str:
    return fragment_query(root, shipped, drive, one_tick).sql(dialect=dialect, pretty=True)


def _arrivals(query: exp.Select, root: Node, renderer: _Renderer) -> exp.Select:
    """Rows whose newest tuple is new, and whose other tuples were still in their windows when it came."""
    times = renderer.times
    newest: exp.Expression = times[0].copy()
    if len(times) > 1:
        newest = exp.Greatest(this=times[0].copy(), expressions=[t.copy() for t in times[1:]])
    query = query.where(exp.GT(this=newest.copy(), expression=_moment("since")), copy=False)
    query = query.where(exp.LTE(this=newest.copy(), expression=_moment("until")), copy=False)
    sizes = {leaf.alias: leaf.spec for leaf in leaves(root) if isinstance(leaf, Window)}
    for stamp in times if len(times) > 1 else ():
        spec = sizes[stamp.table]
        if spec.unit is WindowUnit.TIME:
            oldest = exp.Sub(this=newest.copy(), expression=_interval(spec.size))
            query = query.where(exp.GT(this=stamp.copy(), expression=oldest), copy=False)
    return query


def _select(inside: _Open, items: list[exp.Expr]) -> exp.Select:
    query = exp.Select().select(*items, copy=False).from_(inside.items[0][0], copy=False)
    for item, on, outer in inside.items[1:]:
        kind = "left" if outer else ("" if on else "cross")
        query = query.join(item, on=exp.and_(*on, copy=False) if on else None, join_type=kind, copy=False)
    return query.where(*inside.where, copy=False) if inside.where else query


def _table(name: str, alias: str) -> exp.Table:
    table = exp.Table(this=_quoted(name))
    if name != alias:
        table.set("alias", exp.TableAlias(this=_quoted(alias)))
    return table


def _quoted(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


def _moment(name: str) -> exp.Expression:
    return exp.cast(exp.Placeholder(this=name), "TIMESTAMP")


def _interval(microseconds: int) -> exp.Interval:
    count, unit = duration(microseconds).split()
    return exp.Interval(this=exp.Literal.string(count), unit=exp.var(unit.removesuffix("S")))
