"""A migration candidate to one SQL query in the database's dialect (paper 001, section 3).

Base relations of the query are window stores, `win_p` for the window with alias p, and the results of SPE-ops that are
shipped in, `in_join1`. A window's contents at a tick are a range on its store; the tick comes in as a parameter. An
aggregate in pane form reads the panes of its window, `pane_agg1`. A tuple-driven fragment asks for the rows whose
newest tuple arrived since the last run.
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
    duplicate,
    duration,
    leaves,
    outputs,
)
from optimizer.sql.panes import PANE, pane_length, split, window_of
from optimizer.sql.postgres import for_postgres

Columns = dict[tuple[str, str], tuple[str, str]]


@dataclass
class Open:
    """FROM, JOIN and WHERE of a query that has no select list yet."""

    items: list[tuple[exp.Expression, list[Scalar], bool]]  # relation, ON, whether LEFT
    where: list[Scalar] = field(default_factory=list)


@dataclass
class Renderer:
    shipped: Mapping[int, str]  # inputs of the fragment, by identity of the node, with the name of their table
    drive: Drive
    one_tick: bool
    panes: Mapping[int, str] = field(default_factory=dict)  # aggregates in pane form, with the name of their table
    renamed: Columns = field(default_factory=dict)
    windows: list[Window] = field(default_factory=list)  # whose times say when a row arrived; tuple-driven only

    def expression(self, scalar: Scalar) -> Scalar:
        def one(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Column) and (node.table, node.name) in self.renamed:
                new = column(*self.renamed[node.table, node.name])
                new.type = node.type
                return new
            if isinstance(node, exp.Anonymous) and node.name.upper() == "TICK":
                return moment("tick")
            return node

        return one(duplicate(scalar)) if isinstance(scalar, exp.Column) else scalar.transform(one)

    def open(self, node: Node) -> Open:
        if id(node) in self.shipped:
            return self.input(node, self.shipped[id(node)])
        match node:
            case Window():
                return Open([(relation(f"win_{node.alias}", node.alias), [], False)], self.contents(node))
            case StoredTable():
                return Open([(relation(node.table, node.alias), [], False)])
            case Select():
                below = self.open(node.input)
                below.where += [self.expression(p) for p in node.predicates]
                return below
            case Join():
                return self.join(node)
            case Aggregate():
                return Open([(self.closed(node).subquery(_quoted(node.alias)), [], False)])
            case Project():
                return self.projected(node)

    def projected(self, node: Project) -> Open:
        """A projection below others hands on the times of its windows, which say when a row arrived."""
        before = len(self.windows)
        query = self.closed(node)
        for window in self.windows[before:]:
            name = f"_{window.alias}_{window.time_column}"
            stamp = self.expression(column(window.alias, window.time_column))
            query = query.select(called(stamp, name), copy=False)
            self.renamed[window.alias, window.time_column] = (node.alias, name)
        return Open([(query.subquery(_quoted(node.alias)), [], False)])

    def input(self, node: Node, name: str) -> Open:
        """A shipped relation: a window store keeps its alias and columns, any other has them flattened."""
        base = node
        while isinstance(base, Select):
            base = base.input
        if isinstance(base, Window):
            return Open([(relation(name, base.alias), [], False)], self.contents(base))
        flat = flat_names(node)
        self.renamed |= {own: (name, new) for own, new in flat.items()}
        if self.drive is Drive.TUPLE:
            below = (leaf for leaf in leaves(node) if isinstance(leaf, Window))
            self.windows += [w for w in below if (w.alias, w.time_column) in flat]
        return Open([(relation(name, name), [], False)])

    def contents(self, node: Window) -> list[Scalar]:
        """The window at the tick: a range of its store."""
        if self.drive is Drive.TUPLE:
            self.windows.append(node)
            return []
        stamp = column(node.alias, node.time_column)
        if node.spec.unit is WindowUnit.ROWS:
            number = column(node.alias, "_seq")
            last = _parameter(f"last_{node.alias}")
            first = exp.Sub(this=last.copy(), expression=exp.Literal.number(node.spec.size))
            return [exp.GT(this=number, expression=first), exp.LTE(this=number.copy(), expression=last)]
        return self.range(node, stamp)

    def range(self, node: Window, stamp: Scalar) -> list[Scalar]:
        """The times that a window holds at the tick."""
        tick = moment("tick" if self.one_tick else f"tick_{node.alias}")
        start = exp.Sub(this=tick.copy(), expression=interval(node.spec.size))
        return [exp.GTE(this=stamp, expression=start), exp.LT(this=stamp.copy(), expression=tick)]

    def join(self, node: Join) -> Open:
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
            more = extra[item.alias_or_name]
            # In the ON of an outer join a condition would keep the rows it is meant to drop.
            left.items.append((item, conditions if outer else conditions + more, outer))
            left.where += more if outer else []
        left.where += right.where
        return left

    def wrapped(self, node: Node, inside: Open) -> Open:
        name = f"side_{leaves(node)[0].alias}"
        query = select_from(inside, self.flat(node))
        self.renamed |= {own: (name, new) for own, new in flat_names(node).items()}
        return Open([(query.subquery(_quoted(name)), [], False)])

    def flat(self, node: Node) -> list[exp.Expr]:
        named = flat_names(node).items()
        return [called(self.expression(column(*own)), new) for own, new in named]

    def closed(self, node: Node) -> exp.Select:
        """A whole query: the select list is the node's output."""
        match node:
            case Aggregate() if id(node) in self.panes:
                return self.combined(node, self.panes[id(node)])
            case Aggregate():
                inside = self.open(node.input)
                query = select_from(inside, self.items((*node.keys, *node.functions)))
                if node.keys:
                    query = query.group_by(*(self.key(i, k.expression) for i, k in enumerate(node.keys, 1)), copy=False)
                return query
            case Project():
                return select_from(self.open(node.input), self.items(node.items))
            case _:
                inside = self.open(node)
                return select_from(inside, self.flat(node))

    def combined(self, node: Aggregate, table: str) -> exp.Select:
        """The aggregate at the tick, from the panes of its window."""
        window = window_of(node)
        assert window is not None
        keys = [column(table, key.name) for key in node.keys]
        items: list[exp.Expr] = [called(key.copy(), key.name) for key in keys]
        items += [called(split(f.expression, f"_f{i}").combined, f.name) for i, f in enumerate(node.functions)]
        inside = Open([(relation(table, table), [], False)], self.range(window, column(table, PANE)))
        return select_from(inside, items).group_by(*keys, copy=False) if keys else select_from(inside, items)

    def key(self, position: int, key: Scalar) -> Scalar:
        """A computed key goes by its position: `GROUP BY 5` is no constant, and a parameter equals no other."""
        return self.expression(key) if isinstance(key, exp.Column) else exp.Literal.number(position)

    def items(self, named: tuple[Named, ...]) -> list[exp.Expr]:
        return [called(self.expression(n.expression), n.name) for n in named]


def flat_names(node: Node) -> dict[tuple[str, str], str]:
    """The names under which an operator's columns are shipped, in the order of `outputs`: `p_value` for p.value.

    >>> from optimizer.algebra import Join
    >>> flat_names(Join(StoredTable("t", "a", ("b_c",)), StoredTable("t", "a_b", ("c",)), (), ()))
    {('a', 'b_c'): 'a_b_c', ('a_b', 'c'): 'a_b_c_2'}
    """
    names: dict[tuple[str, str], str] = {}
    taken: set[str] = set()
    for alias, own in outputs(node):
        name, count = f"{alias}_{own}", 1
        while name in taken:
            count += 1
            name = f"{alias}_{own}_{count}"
        taken.add(name)
        names[alias, own] = name
    return names


class _PaneRenderer(Renderer):
    """Of the tuples that go into new panes, from `since` on and before `until`."""

    def range(self, node: Window, stamp: Scalar) -> list[Scalar]:
        since, until = moment("since"), moment("until")
        return [exp.GTE(this=stamp, expression=since), exp.LT(this=stamp.copy(), expression=until)]


_NO_PANES: Mapping[int, str] = {}


def fragment_query(
    root: Node, shipped: Mapping[int, str], drive: Drive, one_tick: bool, panes: Mapping[int, str] = _NO_PANES
) -> exp.Select:
    renderer = Renderer(shipped, drive, one_tick, panes)
    query = renderer.closed(root)
    return _arrivals(query, renderer) if renderer.windows else query


def fragment_sql(
    root: Node,
    shipped: Mapping[int, str],
    drive: Drive,
    one_tick: bool,
    dialect: str,
    panes: Mapping[int, str] = _NO_PANES,
) -> str:
    return in_dialect(fragment_query(root, shipped, drive, one_tick, panes), dialect)


def in_dialect(query: exp.Select, dialect: str) -> str:
    return (for_postgres(query) if dialect == "postgres" else query).sql(dialect=dialect, pretty=True, copy=False)


def pane_query(node: Aggregate, shipped: Mapping[int, str]) -> exp.Select:
    """The panes of an aggregate's window between two instants: `_pane`, the keys, and what each function keeps."""
    window, length = window_of(node), pane_length(node)
    assert window is not None
    assert length is not None
    renderer = _PaneRenderer(shipped, Drive.SLIDE, one_tick=True)
    inside = renderer.open(node.input)
    origin = exp.cast(exp.Literal.string("1970-01-01"), "TIMESTAMP")
    stamp = exp.cast(renderer.expression(column(window.alias, window.time_column)), "TIMESTAMP")
    items: list[exp.Expr] = [called(exp.DateBin(this=interval(length), expression=stamp, unit=origin), PANE)]
    items += renderer.items(node.keys)
    for i, function in enumerate(node.functions):
        items += [called(renderer.expression(kept), name) for name, kept in split(function.expression, f"_f{i}").kept]
    groups = [exp.Literal.number(1), *(renderer.key(i, k.expression) for i, k in enumerate(node.keys, 2))]
    return select_from(inside, items).group_by(*groups, copy=False)


def _arrivals(query: exp.Select, renderer: Renderer) -> exp.Select:
    """Rows whose newest tuple is new, and whose other tuples were still in their windows when it came."""
    times = [renderer.expression(column(w.alias, w.time_column)) for w in renderer.windows]
    newest = times[0]
    if len(times) > 1:
        newest = exp.Greatest(this=times[0].copy(), expressions=[t.copy() for t in times[1:]])
    query = query.where(exp.GT(this=newest.copy(), expression=moment("since")), copy=False)
    query = query.where(exp.LTE(this=newest.copy(), expression=moment("until")), copy=False)
    for window, stamp in zip(renderer.windows, times, strict=True) if len(times) > 1 else ():
        if window.spec.unit is WindowUnit.TIME:
            oldest = exp.Sub(this=newest.copy(), expression=interval(window.spec.size))
            query = query.where(exp.GT(this=stamp.copy(), expression=oldest), copy=False)
    return query


def select_from(inside: Open, items: list[exp.Expr]) -> exp.Select:
    query = exp.Select().select(*items, copy=False).from_(inside.items[0][0], copy=False)
    for item, on, outer in inside.items[1:]:
        if outer:
            query = query.join(item, on=exp.and_(*on, copy=False) if on else exp.true(), join_type="left", copy=False)
        else:
            condition = exp.and_(*on, copy=False) if on else None
            query = query.join(item, on=condition, join_type="" if on else "cross", copy=False)
    return query.where(*inside.where, copy=False) if inside.where else query


def relation(name: str, alias: str) -> exp.Table:
    table = exp.Table(this=_quoted(name))
    if name != alias:
        table.set("alias", exp.TableAlias(this=_quoted(alias)))
    return table


def called(expression: exp.Expr, name: str) -> exp.Alias:
    return exp.Alias(this=expression, alias=_quoted(name))


def _quoted(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


def moment(name: str) -> exp.Expression:
    return exp.cast(_parameter(name), "TIMESTAMP")


def _parameter(name: str) -> exp.Parameter:
    """`$name` in every dialect, beside which a literal % needs no escape; the runtime puts the value in its place."""
    return exp.Parameter(this=exp.var(name))


def interval(microseconds: int) -> exp.Interval:
    count, unit = duration(microseconds).split()
    return exp.Interval(this=exp.Literal.string(count), unit=exp.var(unit.removesuffix("S")))
