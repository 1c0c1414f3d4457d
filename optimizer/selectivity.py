"""Selectivities of predicates, where the catalog gives none: System-R's rules over distinct values and ranges."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from costmodel.flow import Source

EQUALITY, RANGE, BETWEEN, LIKE, IS_NULL = 0.1, 1 / 3, 0.25, 0.1, 0.05

Domain = Callable[[exp.Column], tuple[float | None, float | None, float | None, float | None]]
Rated = tuple[float, Source]


def default_share(predicate: exp.Expr, domain: Domain) -> Rated:
    """The share of tuples a predicate keeps, and whether that rests on the catalog or on a rule of thumb."""
    value, source = _share(predicate.unnest(), domain)
    return min(max(value, 0.0), 1.0), source


def _share(p: exp.Expr, domain: Domain) -> Rated:
    match p:
        case exp.Boolean():
            return (1.0 if p.this else 0.0), Source.EXACT
        case exp.Null():
            return 0.0, Source.EXACT
        case exp.And():
            (a, s), (b, r) = _share(p.left.unnest(), domain), _share(p.right.unnest(), domain)
            return a * b, min(s, r)
        case exp.Or():
            (a, s), (b, r) = _share(p.left.unnest(), domain), _share(p.right.unnest(), domain)
            return a + b - a * b, min(s, r)
        case exp.Not():
            a, s = _share(p.this.unnest(), domain)
            return 1.0 - a, s
        case exp.EQ():
            return _equality(p, domain)
        case exp.NEQ():
            a, s = _equality(p, domain)
            return 1.0 - a, s
        case exp.GT() | exp.GTE() | exp.LT() | exp.LTE():
            return _range(p, domain)
        case exp.Between():
            low, s = _range(exp.GTE(this=p.this.copy(), expression=p.args["low"].copy()), domain)
            high, r = _range(exp.LTE(this=p.this.copy(), expression=p.args["high"].copy()), domain)
            return (max(low + high - 1.0, 0.0), min(s, r)) if min(s, r) > Source.DEFAULT else (BETWEEN, Source.DEFAULT)
        case exp.In():
            one, s = _equality(exp.EQ(this=p.this.copy(), expression=exp.Literal.number(0)), domain)
            return one * len(p.expressions), s
        case exp.Is():
            column = p.this.unnest()
            nulls = domain(column)[3] if isinstance(column, exp.Column) else None
            return (IS_NULL, Source.DEFAULT) if nulls is None else (nulls, Source.CATALOG)
        case exp.Like() | exp.ILike():
            return LIKE, Source.DEFAULT
        case _:
            return RANGE, Source.DEFAULT


def _equality(p: exp.Binary, domain: Domain) -> Rated:
    distinct = [
        d for side in (p.left.unnest(), p.right.unnest()) if isinstance(side, exp.Column) and (d := domain(side)[0])
    ]
    return (1.0 / max(distinct), Source.CATALOG) if distinct else (EQUALITY, Source.DEFAULT)


def _range(p: exp.Binary, domain: Domain) -> Rated:
    """Linear between the smallest and the largest value."""
    column, bound, upwards = p.left.unnest(), _number(p.right.unnest()), isinstance(p, exp.GT | exp.GTE)
    if not isinstance(column, exp.Column):
        column, bound, upwards = p.right.unnest(), _number(p.left.unnest()), not upwards
    if not isinstance(column, exp.Column) or bound is None:
        return RANGE, Source.DEFAULT
    _, low, high, _ = domain(column)
    if low is None or high is None or high <= low:
        return RANGE, Source.DEFAULT
    below = min(max((bound - low) / (high - low), 0.0), 1.0)
    return (1.0 - below if upwards else below), Source.CATALOG


def range_bound(p: exp.Expr) -> tuple[exp.Expr, bool] | None:
    """The column that a comparison with a constant bounds, and whether from below.

    >>> import sqlglot
    >>> range_bound(sqlglot.parse_one("a.v >= 20"))[1], range_bound(sqlglot.parse_one("a.v = 20"))
    (True, None)
    """
    if not isinstance(p, exp.GT | exp.GTE | exp.LT | exp.LTE):
        return None
    upwards = isinstance(p, exp.GT | exp.GTE)
    for column, constant, from_below in ((p.left, p.right, upwards), (p.right, p.left, not upwards)):
        if isinstance(column.unnest(), exp.Column) and _number(constant.unnest()) is not None:
            return column.unnest(), from_below
    return None


def _number(e: exp.Expr) -> float | None:
    """
    >>> import sqlglot
    >>> _number(sqlglot.parse_one("-3.5"))
    -3.5
    """
    if isinstance(e, exp.Neg):
        inner = _number(e.this.unnest())
        return None if inner is None else -inner
    if isinstance(e, exp.Literal) and not e.is_string:
        try:
            return float(e.name)
        except ValueError:
            return None
    return None
