"""A sliding aggregate from panes, in a database: the stretches that its window moves by are aggregated once each.

The re-run of a fragment (paper 001, section 3) reads a whole window at every tick. Right above a sliding time window
an aggregate need not: a pane, a stretch that divides both size and slide, is aggregated when the window reaches its
end, and a tick combines the panes of [b - size, b). The tuples stay in the window's store, and the panes can be made
of them again at any time.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from sqlglot import exp

from optimizer.algebra import Aggregate, Node, Scalar, Select, Window, WindowUnit, scalars

PANE = "_pane"  # the first instant of a pane
_SAME: dict[type[exp.Expr], type[exp.Func]] = {exp.Sum: exp.Sum, exp.Min: exp.Min, exp.Max: exp.Max}


@dataclass(frozen=True, slots=True)
class Split:
    """An aggregate function in two steps: what a pane keeps, by name, and what panes are combined to."""

    kept: tuple[tuple[str, Scalar], ...]
    combined: Scalar  # of columns named like `kept`


def window_of(aggregate: Aggregate) -> Window | None:
    """The window that an aggregate stands on, with at most selections between."""
    node: Node = aggregate.input
    while isinstance(node, Select):
        node = node.input
    return node if isinstance(node, Window) else None


def pane_length(aggregate: Aggregate) -> int | None:
    """In microseconds; None where the aggregate cannot be made from panes."""
    window = window_of(aggregate)
    if window is None or window.spec.unit is not WindowUnit.TIME or window.spec.slide is None:
        return None
    node: Node = aggregate
    while isinstance(node, Aggregate | Select):
        if any(is_tick(part) for scalar in scalars(node) for part in scalar.walk()):
            return None
        node = node.input
    if any(_call(f.expression) is None for f in aggregate.functions):
        return None
    return gcd(window.spec.size, window.spec.slide)


def split(function: Scalar, name: str) -> Split:
    """
    >>> import sqlglot
    >>> found = split(sqlglot.parse_one("avg(p.value)"), "_f")
    >>> [(name, kept.sql()) for name, kept in found.kept], found.combined.sql()
    ([('_f', 'SUM(CAST(p.value AS DOUBLE))'), ('_f_n', 'COUNT(p.value)')], 'SUM("_f") / NULLIF(SUM("_f_n"), 0)')
    """
    call = _call(function)
    assert call is not None
    where = function.expression if isinstance(function, exp.Filter) else None

    def kept(of: exp.Expr) -> Scalar:
        return exp.Filter(this=of, expression=where.copy()) if where is not None else of

    def total(of: str) -> exp.Sum:
        return exp.Sum(this=exp.column(of, quoted=True))

    if isinstance(call, exp.Count):
        counted = exp.Coalesce(this=total(name), expressions=[exp.Literal.number(0)])
        return Split(((name, kept(call.copy())),), exp.cast(counted, "BIGINT"))
    if isinstance(call, exp.Avg):
        count = f"{name}_n"
        sums = exp.Sum(this=exp.cast(call.this.copy(), "DOUBLE"))
        parts = ((name, kept(sums)), (count, kept(exp.Count(this=call.this.copy()))))
        none = exp.Nullif(this=total(count), expression=exp.Literal.number(0))
        return Split(parts, exp.Div(this=total(name), expression=none))
    again = next(same for kind, same in _SAME.items() if isinstance(call, kind))
    of_panes = exp.column(name, quoted=True)
    of_panes.type = call.this.type  # texts are compared by their bytes, where a database does not
    return Split(((name, kept(call.copy())),), again(this=of_panes))


def _call(function: Scalar) -> exp.Expr | None:
    """The call itself, where it can be split."""
    call: exp.Expr = function.this if isinstance(function, exp.Filter) else function
    known = isinstance(call, exp.Count | exp.Avg) or any(isinstance(call, kind) for kind in _SAME)
    return call if known and not isinstance(call.this, exp.Distinct) and not call.expressions else None


def is_tick(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.upper() == "TICK"
