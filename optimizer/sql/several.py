"""One SQL for several ticks of a fragment that compares a window's tuples with an aggregate of a window.

CQ1 and CQ2 are such: an aggregate over the join of a window with an aggregate in pane form. Nearly all tuples of one
tick's window are in that of the next, and most of the work is to find the group of each. So the tuples of all the
windows are joined once, to groups that have the aggregate of every tick beside each other; what a tick counts is told
by FILTER. The join has no condition but its keys: all others, and the borders of the windows, are the tick's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from costmodel.flow import Drive
from optimizer.algebra import (
    Aggregate,
    Join,
    JoinKind,
    Node,
    Relational,
    Scalar,
    Select,
    Window,
    WindowUnit,
    column,
    scalars,
)
from optimizer.sql.panes import PANE, is_tick, split, window_of
from optimizer.sql.render import Open, Renderer, called, interval, moment, relation, select_from

HERE = "_here"  # rows of a group at a tick


@dataclass(frozen=True)
class Compared:
    """The fragment in its parts."""

    root: Aggregate
    join: Join
    tuples: Node  # a window, with at most selections above it
    groups: Aggregate  # in pane form

    @property
    def window(self) -> Window:
        node = self.tuples
        while isinstance(node, Select):
            node = node.input
        assert isinstance(node, Window)
        return node


def compared(root: Relational, panes: Mapping[int, str]) -> Compared | None:
    """The parts of a fragment that can be run for several ticks at once, or None."""
    if not isinstance(root, Aggregate) or not root.keys or not isinstance(root.input, Join):
        return None
    join = root.input
    sides = [(a, b) for a, b in ((join.left, join.right), (join.right, join.left)) if id(b) in panes]
    if join.kind is not JoinKind.INNER or len(sides) != 1:
        return None
    tuples, groups = sides[0]
    base = tuples
    while isinstance(base, Select):
        base = base.input
    if not isinstance(base, Window) or base.spec.unit is not WindowUnit.TIME or not isinstance(groups, Aggregate):
        return None
    changing = {(groups.alias, f.name) for f in groups.functions}
    fixed = [k.expression for k in root.keys] + [side for k in join.keys for side in (k.left, k.right)]
    if not join.keys or any((c.table, c.name) in changing for s in fixed for c in s.find_all(exp.Column)):
        return None
    read = [s for node in (root, join, tuples) if not isinstance(node, Window) for s in scalars(node)]
    if any(is_tick(part) for s in read for part in s.walk()):
        return None
    return Compared(root, join, tuples, groups)


class _All(Renderer):
    """Of the windows of all ticks together, the first of which is `at0`."""

    last: int = 0

    def range(self, node: Window, stamp: Scalar) -> list[Scalar]:
        return _between(stamp, "at0", f"at{self.last}", node.spec.size)


def several_query(found: Compared, shipped: Mapping[int, str], panes: Mapping[int, str], ticks: int) -> exp.Select:
    """Keys, then for each tick the number of rows of a group (`_here`) and the functions; `at0` … are the ticks."""
    renderer = _All(shipped, Drive.SLIDE, one_tick=True, panes=panes)
    renderer.last = ticks - 1
    inside = renderer.open(found.tuples)
    groups = _groups(found.groups, panes[id(found.groups)], renderer, ticks)
    keys: list[Scalar] = [
        exp.EQ(this=renderer.expression(k.left), expression=renderer.expression(k.right)) for k in found.join.keys
    ]
    inside.items.append((groups.subquery(exp.to_identifier(found.groups.alias, quoted=True)), keys, False))
    items, at_ticks = renderer.items(found.root.keys), list[Scalar]()
    for tick in range(ticks):
        own = _renamed(found, renderer, tick)
        condition = _condition(found, own, tick)
        items += _at(found, own, condition, tick)
        at_ticks.append(condition)
    inside.where.append(exp.or_(*at_ticks))  # a row that is of no tick need not look for its group
    groups_by = [renderer.key(i, k.expression) for i, k in enumerate(found.root.keys, 1)]
    return select_from(inside, items).group_by(*groups_by, copy=False)


def _groups(node: Aggregate, table: str, renderer: _All, ticks: int) -> exp.Select:
    """The aggregate at every tick, from the panes of its window."""
    window = window_of(node)
    assert window is not None
    keys = [column(table, key.name) for key in node.keys]
    items: list[exp.Expr] = [called(key.copy(), key.name) for key in keys]
    for tick in range(ticks):
        inside = exp.and_(*_between(column(table, PANE), f"at{tick}", f"at{tick}", window.spec.size))
        items.append(called(_filtered(exp.Count(this=exp.Star()), inside), f"{HERE}{tick}"))
        for i, function in enumerate(node.functions):
            combined = split(function.expression, f"_f{i}").combined.transform(
                lambda part, inside=inside: _filtered(part, inside) if isinstance(part, exp.AggFunc) else part
            )
            items.append(called(combined, f"{function.name}@{tick}"))
    read = Open([(relation(table, table), [], False)], renderer.range(window, column(table, PANE)))
    return select_from(read, items).group_by(*keys, copy=False)


def _renamed(found: Compared, renderer: _All, tick: int) -> _All:
    """The aggregate's functions as they are at a tick."""
    groups = found.groups
    return replace(
        renderer, renamed={(groups.alias, f.name): (groups.alias, f"{f.name}@{tick}") for f in groups.functions}
    )


def _condition(found: Compared, own: _All, tick: int) -> Scalar:
    """Of the rows that the join has at a tick."""
    window = found.window
    there = exp.GT(this=column(found.groups.alias, f"{HERE}{tick}"), expression=exp.Literal.number(0))
    inside = _between(column(window.alias, window.time_column), f"at{tick}", f"at{tick}", window.spec.size)
    return exp.and_(*(own.expression(r) for r in found.join.residue), there, *inside)


def _at(found: Compared, own: _All, condition: Scalar, tick: int) -> list[exp.Expr]:
    items: list[exp.Expr] = [called(_filtered(exp.Count(this=exp.Star()), condition), f"{HERE}{tick}")]
    for function in found.root.functions:
        call = own.expression(function.expression)
        calls = call.transform(lambda part: _with(part, condition))
        items.append(called(calls, f"{function.name}@{tick}"))
    return items


def _with(part: exp.Expr, condition: Scalar) -> exp.Expr:
    """An aggregate function of the rows that meet a condition, and its own one."""
    if isinstance(part, exp.Filter):
        part.expression.set("this", exp.and_(part.expression.this, condition.copy()))
        return part
    if isinstance(part, exp.AggFunc) and not isinstance(part.parent, exp.Filter):
        return _filtered(part, condition)
    return part


def _filtered(call: exp.Expr, condition: Scalar) -> exp.Filter:
    return exp.Filter(this=call.copy(), expression=exp.Where(this=condition.copy()))


def _between(stamp: Scalar, first: str, last: str, size: int) -> list[Scalar]:
    start = exp.Sub(this=moment(first), expression=interval(size))
    return [exp.GTE(this=stamp.copy(), expression=start), exp.LT(this=stamp.copy(), expression=moment(last))]
