"""Selectivities of predicates, where neither the catalog nor a sample gives one: System-R's rules over distinct values,
ranges and histograms.

Intervals go with the figures: every rule grows or falls with each of its parts, so its ends follow from theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlglot import exp

from costmodel.flow import Source
from costmodel.spread import Spread
from optimizer.catalog import Figure
from optimizer.histogram import Histogram

EQUALITY, RANGE, BETWEEN, LIKE, IS_NULL = 0.1, 1 / 3, 0.25, 0.1, 0.05
_TIMES = (*exp.DataType.TEMPORAL_TYPES,)


@dataclass(frozen=True, slots=True)
class Domain:
    """What is known of a column's values; `source` is that of the smallest and the largest one."""

    distinct: Figure | None = None
    low: float | None = None
    high: float | None = None
    nulls: Figure | None = None
    source: Source = Source.CATALOG
    histogram: Histogram | None = None

    @property
    def present(self) -> float:
        """The share of tuples that have a value: no comparison keeps a NULL."""
        return 1.0 - self.nulls.value if self.nulls else 1.0


Domains = Callable[[exp.Column], Domain]


def default_share(predicate: exp.Expr, domain: Domains) -> Figure:
    """The share of tuples a predicate keeps, and whether that rests on known figures or on a rule of thumb."""
    return _map(lambda v: min(max(v, 0.0), 1.0), _share(predicate.unnest(), domain))


def _map(rule: Callable[..., float], *parts: Figure) -> Figure:
    """A rule that grows with each of its parts, applied to values and to the ends of intervals."""
    spreads = [p.spread for p in parts if p.spread]
    found = None
    if spreads:
        low = rule(*(p.spread.low if p.spread else p.value for p in parts))
        high = rule(*(p.spread.high if p.spread else p.value for p in parts))
        found = Spread(low, high, min(s.sample for s in spreads))
    return Figure(rule(*(p.value for p in parts)), min(p.source for p in parts), found)


def _complement(part: Figure) -> Figure:
    spread = part.spread and Spread(1.0 - part.spread.high, 1.0 - part.spread.low, part.spread.sample)
    return Figure(1.0 - part.value, part.source, spread)


def _share(p: exp.Expr, domain: Domains) -> Figure:
    match p:
        case exp.Boolean():
            return Figure(1.0 if p.this else 0.0, Source.EXACT)
        case exp.Null():
            return Figure(0.0, Source.EXACT)
        case exp.And():
            return _map(lambda a, b: a * b, _share(p.left.unnest(), domain), _share(p.right.unnest(), domain))
        case exp.Or():
            return _map(lambda a, b: a + b - a * b, _share(p.left.unnest(), domain), _share(p.right.unnest(), domain))
        case exp.Not():
            return _complement(_share(p.this.unnest(), domain))
        case exp.EQ():
            return _equality(p, domain)
        case exp.NEQ():
            return _complement(_equality(p, domain))
        case exp.GT() | exp.GTE() | exp.LT() | exp.LTE():
            return _range(p, domain)
        case exp.Between():
            return _between(p, domain)
        case exp.In():
            one = _equality(exp.EQ(this=p.this.copy(), expression=exp.Literal.number(0)), domain)
            return _map(lambda a: a * len(p.expressions), one)
        case exp.Is():
            column = p.this.unnest()
            nulls = domain(column).nulls if isinstance(column, exp.Column) else None
            return nulls or Figure(IS_NULL, Source.DEFAULT)
        case exp.Like() | exp.ILike():
            return Figure(LIKE, Source.DEFAULT)
        case _:
            return Figure(RANGE, Source.DEFAULT)


def _equality(p: exp.Binary, domain: Domains) -> Figure:
    """Every value is as frequent as any other."""
    sides = [side for side in (p.left.unnest(), p.right.unnest()) if isinstance(side, exp.Column)]
    known = [d for side in sides if (d := domain(side).distinct) and d.value]
    if not known:
        return Figure(EQUALITY, Source.DEFAULT)
    most = max(known, key=lambda d: d.value)
    spread = most.spread and Spread(1.0 / most.spread.high, 1.0 / max(most.spread.low, 1.0), most.spread.sample)
    return Figure(1.0 / most.value, _under_assumption(most.source), spread)


def _range(p: exp.Binary, domain: Domains) -> Figure:
    """By the histogram; else linear between the smallest and the largest value."""
    column, bound, upwards = p.left.unnest(), constant(p.right.unnest()), isinstance(p, exp.GT | exp.GTE)
    if not isinstance(column, exp.Column):
        column, bound, upwards = p.right.unnest(), constant(p.left.unnest()), not upwards
    if not isinstance(column, exp.Column) or bound is None:
        return Figure(RANGE, Source.DEFAULT)
    known = domain(column)
    if known.histogram:
        value, spread = known.histogram.share(bound, upwards, isinstance(p, exp.GTE | exp.LTE))
        return _map(lambda a: a * known.present, Figure(value, known.source, spread))
    low, high = known.low, known.high
    if low is None or high is None or high <= low:
        return Figure(RANGE, Source.DEFAULT)
    below = min(max((bound - low) / (high - low), 0.0), 1.0)
    return Figure((1.0 - below if upwards else below) * known.present, _under_assumption(known.source))


def _between(p: exp.Between, domain: Domains) -> Figure:
    above = _range(exp.GTE(this=p.this.copy(), expression=p.args["low"].copy()), domain)
    below = _range(exp.LTE(this=p.this.copy(), expression=p.args["high"].copy()), domain)
    if Source.DEFAULT in (above.source, below.source):
        return Figure(BETWEEN, Source.DEFAULT)
    column = p.this.unnest()
    present = domain(column).present if isinstance(column, exp.Column) else 1.0
    return _map(lambda a, b: max(a + b - present, 0.0), above, below)


def _under_assumption(source: Source) -> Source:
    """What was measured is one thing, and what follows if values are evenly spread another."""
    return Source.DERIVED if source is Source.ANALYZED else source


def range_bound(p: exp.Expr) -> tuple[exp.Expr, bool] | None:
    """The column that a comparison with a constant bounds, and whether from below.

    >>> import sqlglot
    >>> range_bound(sqlglot.parse_one("a.v >= 20"))[1], range_bound(sqlglot.parse_one("a.v = 20"))
    (True, None)
    """
    if not isinstance(p, exp.GT | exp.GTE | exp.LT | exp.LTE):
        return None
    upwards = isinstance(p, exp.GT | exp.GTE)
    for column, fixed, from_below in ((p.left, p.right, upwards), (p.right, p.left, not upwards)):
        if isinstance(column.unnest(), exp.Column) and constant(fixed.unnest()) is not None:
            return column.unnest(), from_below
    return None


def constant(e: exp.Expr) -> float | None:
    """A number, or a time as seconds since 1970.

    >>> import sqlglot
    >>> constant(sqlglot.parse_one("-3.5")), constant(sqlglot.parse_one("CAST('1970-01-02' AS DATE)"))
    (-3.5, 86400.0)
    """
    if isinstance(e, exp.Neg):
        inner = constant(e.this.unnest())
        return None if inner is None else -inner
    if isinstance(e, exp.Cast) and e.to.this in _TIMES and e.this.is_string:
        try:
            time = datetime.fromisoformat(e.this.name)
        except ValueError:
            return None
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    if isinstance(e, exp.Literal) and not e.is_string:
        try:
            return float(e.name)
        except ValueError:
            return None
    return None
