"""What PostgreSQL means by an expression, made what Penstock means by it; whatever means the same is left alone.

The meaning is DuckDB's, as in the oracle: texts are compared by their bytes whatever the database's locale, `round`
goes away from zero at a half, `%` takes fractions, parts of a time are whole numbers, negative positions count from
the end.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

_WHOLE = exp.DataType.INTEGER_TYPES
_FLOATS = (exp.DataType.Type.DOUBLE, exp.DataType.Type.FLOAT)
_WITH_FRACTION = ("SECOND", "SECONDS", "MILLISECOND", "MILLISECONDS")
_EXACT_DIGITS = exp.Literal.number("1e15")  # from here on both write an exponent


def for_postgres(query: exp.Select) -> exp.Select:
    """Changes the query in place, innermost expressions first.

    >>> from sqlglot.optimizer.annotate_types import annotate_types
    >>> query = exp.select("max(t.a) AS a", "t.b % 2 AS b").from_("t")
    >>> typed = annotate_types(query, schema={"t": {"a": "VARCHAR", "b": "DOUBLE"}})
    >>> print(for_postgres(typed).sql(dialect="postgres"))
    SELECT MAX(t.a COLLATE "C") AS a, (t.b - 2 * TRUNC(t.b / 2)) AS b FROM t
    """
    for node in reversed(list(query.walk())):
        rule = _RULES.get(type(node))
        if rule and (new := rule(node)) is not None:
            node.replace(new)
    return query


def _remainder(node: exp.Expr) -> exp.Expr | None:
    """PostgreSQL has no % on doubles: x - y * trunc(x / y)."""
    x, y = node.this, node.expression
    if x.is_type(*_WHOLE) and y.is_type(*_WHOLE):
        return None
    quotient = exp.Div(this=x.copy(), expression=y.copy(), typed=True)
    whole = exp.Mul(this=y.copy(), expression=_trunc(quotient))
    return exp.Paren(this=exp.Sub(this=x.copy(), expression=whole))


def _round(node: exp.Expr) -> exp.Expr | None:
    """On doubles PostgreSQL's own goes to the even neighbour, on decimals away from zero."""
    if node.this.is_type(*_WHOLE, *exp.DataType.TEMPORAL_TYPES) or node.this.is_type("decimal"):
        return None
    exact = exp.Round(this=exp.cast(node.this.copy(), "decimal"), decimals=_copied(node.args.get("decimals")))
    return exp.cast(exact, "double")


def _extract(node: exp.Expr) -> exp.Expr | None:
    if node.name.upper() not in _WITH_FRACTION:
        return None
    return exp.cast(exp.Floor(this=node.copy()), "int")


def _part(node: exp.Expr) -> exp.Expr:
    part = exp.Extract(this=exp.var(node.key.upper()), expression=node.this.copy())
    return _extract(part) or exp.cast(part, "int")


def _substring(node: exp.Expr) -> exp.Expr | None:
    start = node.args["start"]
    if isinstance(start, exp.Literal):
        return None
    past = exp.Add(this=exp.Length(this=node.this.copy()), expression=exp.Literal.number("1"))
    from_end = exp.Add(this=past, expression=_operand(start))
    negative = exp.LT(this=_operand(start), expression=exp.Literal.number("0"))
    constant = isinstance(start, exp.Neg) and isinstance(start.this, exp.Literal)
    new = node.copy()
    new.set("start", from_end if constant else exp.case().when(negative, from_end).else_(start.copy()))
    return new


def _cast(node: exp.Expr) -> exp.Expr | None:
    """A double that is whole keeps its `.0` as text."""
    if not node.is_type(*exp.DataType.TEXT_TYPES) or not node.this.is_type(*_FLOATS):
        return None
    value = _operand(node.this)
    whole = exp.and_(
        exp.EQ(this=value, expression=_trunc(value.copy())),
        exp.LT(this=exp.Abs(this=value.copy()), expression=_EXACT_DIGITS.copy()),
    )
    with_point = exp.DPipe(this=node.copy(), expression=exp.Literal.string(".0"))
    return exp.case().when(whole, with_point).else_(node.copy())


def _by_bytes(node: exp.Expr) -> None:
    """One operand says the collation for all."""
    operands = [v for v in node.iter_expressions() if isinstance(v, exp.Condition)]
    if not all(operand.is_type(*exp.DataType.TEXT_TYPES) for operand in operands):
        return
    first = next((operand for operand in operands if not isinstance(operand, exp.Literal)), None)
    if first is not None:
        collated = exp.Collate(this=_operand(first), expression=exp.to_identifier("C", quoted=True))
        collated.type = first.type
        first.replace(collated)


def _trunc(value: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this="TRUNC", expressions=[value])


def _operand(node: exp.Expr) -> exp.Expr:
    return node.copy() if isinstance(node, exp.Column | exp.Func | exp.Paren) else exp.paren(node.copy())


def _copied(node: exp.Expr | None) -> exp.Expr | None:
    return node.copy() if node is not None else None


_RULES: dict[type[exp.Expr], Callable[[exp.Expr], exp.Expr | None]] = {
    exp.Mod: _remainder,
    exp.Round: _round,
    exp.Extract: _extract,
    exp.Substring: _substring,
    exp.Cast: _cast,
    **dict.fromkeys((exp.Year, exp.Month, exp.Day, exp.Hour, exp.Minute, exp.Second), _part),
    **dict.fromkeys((exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.Min, exp.Max), _by_bytes),
    **dict.fromkeys((exp.Greatest, exp.Least), _by_bytes),
}
