"""Scalar expressions for Spark: the columns of an operator under their flat names, and one meaning on every engine.

Penstock's dialect means what DuckDB means by it: `/` is a division of floats, a division by zero is NULL, a TIMESTAMP
has no time zone. Spark in ANSI mode differs here and there; the rules below are those places, one function each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from sqlglot import exp, parse_one

from connectors.inference import Types, typed
from connectors.types import arrow_type, spark_type
from optimizer.algebra import (
    Aggregate,
    EquiKey,
    Join,
    Named,
    Node,
    Project,
    Scalar,
    Select,
    Tree,
    scalars,
)
from optimizer.sql.panes import is_tick

TICK = "_tick"
Type = exp.DType
_FLOATS = (Type.DOUBLE, Type.FLOAT)
_TIMESTAMPS = (Type.TIMESTAMP, Type.DATETIME, Type.TIMESTAMPNTZ)


def spark_name(type_: exp.DataType) -> str:
    return spark_type(arrow_type(type_))


def reads_tick(node: Tree) -> bool:
    """Whether the operator itself asks for the time of evaluation."""
    return any(is_tick(part) for scalar in scalars(node) for part in scalar.find_all(exp.Anonymous))


# -- text -------------------------------------------------------------------------------------------------------------


def spark_sql(scalar: Scalar, types: Types, names: Mapping[tuple[str, str], str]) -> str:
    """The text of an expression over columns with flat names, for `pyspark.sql.functions.expr`."""
    return flat(lowered(typed(scalar, types)), names).sql(dialect="spark")


def flat(expression: exp.Expr, names: Mapping[tuple[str, str], str]) -> exp.Expr:
    def one(node: exp.Expr) -> exp.Expr:
        if is_tick(node):
            return exp.column(TICK, quoted=True)
        if isinstance(node, exp.Column) and (node.table, node.name) in names:
            return exp.column(names[node.table, node.name], quoted=True)
        return node

    return expression.transform(one)


def moment(at: datetime) -> exp.Expr:
    """
    >>> moment(datetime(2024, 5, 1, 12, 0, 0, 250_000)).sql(dialect="spark")
    "CAST('2024-05-01 12:00:00.250000' AS TIMESTAMP_NTZ)"
    """
    return exp.cast(exp.Literal.string(at.isoformat(" ")), "TIMESTAMPNTZ")


def quoted(name: str) -> str:
    return exp.to_identifier(name, quoted=True).sql(dialect="spark")


# -- rules ------------------------------------------------------------------------------------------------------------


def lowered(expression: exp.Expr) -> exp.Expr:
    """The same meaning in Spark's words; changes the expression in place."""
    if isinstance(expression, exp.Filter) and isinstance(expression.this, exp.Skewness | exp.Kurtosis):
        expression = _filtered_inside(expression)
    for child in list(expression.iter_expressions()):
        new = lowered(child)
        if new is not child:
            new.type = child.type
            child.replace(new)
    rule = _RULES.get(type(expression))
    return rule(expression) if rule else expression


def lowered_node(node: Node, types: Types) -> Node:
    """The operator with its own expressions in Spark's words, columns as they were."""

    def one(scalar: Scalar) -> Scalar:
        return lowered(typed(scalar, types))

    def named(items: tuple[Named, ...]) -> tuple[Named, ...]:
        return tuple(Named(item.name, one(item.expression)) for item in items)

    match node:
        case Select():
            return replace(node, predicates=tuple(map(one, node.predicates)))
        case Project():
            return replace(node, items=named(node.items))
        case Aggregate():
            return replace(node, keys=named(node.keys), functions=named(node.functions))
        case Join():
            keys = tuple(EquiKey(one(key.left), one(key.right)) for key in node.keys)
            return replace(node, keys=keys, residue=tuple(map(one, node.residue)))
        case _:
            return node


def _double(expression: exp.Expr) -> exp.Expr:
    return exp.cast(expression, "DOUBLE")


def _not_zero(divisor: exp.Expr) -> exp.Expr:
    plain = divisor.unnest()
    if isinstance(plain, exp.Nullif) or (isinstance(plain, exp.Literal) and float(plain.name) != 0):
        return divisor
    return exp.Nullif(this=divisor.copy(), expression=exp.Literal.number(0))


def _division(node: exp.Expr) -> exp.Expr:
    dividend, divisor = node.this, node.args["expression"]
    if dividend.type and dividend.type.this == Type.INTERVAL:
        return node
    result: exp.Expr = exp.Div(this=_double(dividend), expression=_double(_not_zero(divisor)))
    if node.type and node.type.this == Type.FLOAT:
        result = exp.cast(result, "FLOAT")
    # In brackets, because what stood around the fraction was written for it.
    return exp.paren(result, copy=False)


def _remainder(node: exp.Expr) -> exp.Expr:
    node.set("expression", _not_zero(node.args["expression"]))
    return node


def _average(node: exp.Expr) -> exp.Expr:
    """Of decimals, which literals like 2.5 are too, Spark gives a decimal with few digits."""
    if isinstance(node.this, exp.Distinct):
        node.this.set("expressions", [_double(e) for e in node.this.expressions])
    else:
        node.set("this", _double(node.this))
    return node


def _cast(node: exp.Expr) -> exp.Expr:
    """Spark cuts fractions off where others round: floats to even, decimals away from zero."""
    source, target = node.this, node.args["to"]
    if target.this in exp.DataType.INTEGER_TYPES and source.type:
        if isinstance(source.unnest(), exp.Literal) or source.type.this in (Type.DECIMAL, Type.BIGDECIMAL):
            if not source.is_string:
                node.set("this", exp.Round(this=source.copy()))
        elif source.type.this in _FLOATS:
            node.set("this", exp.func("RINT", source.copy()))
    return node


def _type(node: exp.Expr) -> exp.Expr:
    if node.this in _TIMESTAMPS:
        return exp.DataType.build("TIMESTAMPNTZ")
    return node


def _truncated(node: exp.Expr) -> exp.Expr:
    """Spark's TRUNC is for dates only, and its DATE_TRUNC gives an instant; sessions are in UTC."""
    unit = exp.Literal.string(node.args["unit"].name.upper())
    result = exp.Anonymous(this="DATE_TRUNC", expressions=[unit, node.this.copy()])
    if node.this.type and node.this.type.this in (Type.TIMESTAMPTZ, Type.TIMESTAMPLTZ):
        return result
    return exp.cast(result, "TIMESTAMPNTZ")


def _extract(node: exp.Expr) -> exp.Expr:
    unit, stamp = node.this.name.upper().removesuffix("S"), node.expression.copy()
    seconds = exp.Extract(this=exp.var("SECOND"), expression=stamp)  # with its fraction, in Spark
    match unit:
        case "SECOND":
            return exp.cast(seconds, "BIGINT")
        case "MILLISECOND":
            return exp.cast(exp.Mul(this=seconds, expression=exp.Literal.number(1_000)), "BIGINT")
        case "MICROSECOND":
            return exp.cast(exp.Mul(this=seconds, expression=exp.Literal.number(1_000_000)), "BIGINT")
        case "DOW" | "DAYOFWEEK" | "WEEKDAY":  # Sunday is 0, in Spark 1
            day = exp.Extract(this=exp.var("DAYOFWEEK"), expression=stamp)
            return exp.paren(exp.Sub(this=day, expression=exp.Literal.number(1)), copy=False)
        case "ISODOW":
            return exp.Extract(this=exp.var("DAYOFWEEK_ISO"), expression=stamp)
        case "EPOCH":
            micros = exp.func("UNIX_MICROS", exp.cast(stamp, "TIMESTAMPTZ"))
            return exp.paren(exp.Div(this=_double(micros), expression=exp.Literal.number("1e6")), copy=False)
        case _:
            return node


def _like(node: exp.Expr) -> exp.Expr:
    """A backslash is a character like any other; Spark takes it for an escape."""
    pattern = node.expression
    if isinstance(pattern, exp.Literal):
        node.set("expression", exp.Literal.string(pattern.name.replace("\\", "\\\\")))
    else:
        one, two = exp.Literal.string("\\"), exp.Literal.string("\\\\")
        node.set("expression", exp.func("REPLACE", pattern.copy(), one, two))
    return node


def _substring(node: exp.Expr) -> exp.Expr:
    """The place before the first counts as one of the characters; Spark takes 0 for 1."""
    start, length = node.args.get("start"), node.args.get("length")
    if start is None or length is None or (isinstance(start, exp.Literal) and start.name != "0"):
        return node
    shorter = exp.Greatest(
        this=exp.Sub(this=exp.paren(length), expression=exp.Literal.number(1)), expressions=[exp.Literal.number(0)]
    )
    first = exp.Substring(this=node.this.copy(), start=exp.Literal.number(1), length=shorter)
    return exp.case().when(exp.EQ(this=start.copy(), expression=exp.Literal.number(0)), first).else_(node.copy())


def _concat(node: exp.Expr) -> exp.Expr:
    """`concat` passes over NULLs by COALESCE(x, ''), where Spark would look for a number in ''."""
    parts = [p if p.is_type(*exp.DataType.TEXT_TYPES) else exp.cast(p, "TEXT") for p in node.expressions]
    node.set("expressions", parts)
    return node


def _regexp_extract(node: exp.Expr) -> exp.Expr:
    if node.args.get("group") is None:
        node.set("group", exp.Literal.number(0))
    return node


def _count_if(node: exp.Expr) -> exp.Expr:
    """NULL where the condition never has a value."""
    return exp.Sum(this=exp.cast(node.this, "BIGINT"))


def _arg_extreme(node: exp.Expr) -> exp.Expr:
    """Rows without the wanted value do not take part."""
    there = exp.Not(this=exp.Is(this=node.this.copy(), expression=exp.Null()))
    node.set("expression", exp.If(this=there, true=node.args["expression"].copy(), false=exp.Null()))
    return node


def _filtered_inside(node: exp.Filter) -> exp.Expr:
    call = node.this.copy()
    call.set("this", exp.If(this=node.expression.this.copy(), true=call.this.copy(), false=exp.Null()))
    return call  # type: ignore[no-any-return]


def _moment_of_sample(formula: str, enough: int) -> Callable[[exp.Expr], exp.Expr]:
    """Spark gives the population's skewness and kurtosis."""

    def rule(node: exp.Expr) -> exp.Expr:
        count, of_population = exp.Count(this=node.this.copy()), node.copy()
        parts = {"n": count, "g": of_population}
        formula_ = parse_one(formula)
        corrected = formula_.transform(lambda part: parts[part.name] if isinstance(part, exp.Column) else part)
        return exp.case().when(exp.GTE(this=count.copy(), expression=exp.Literal.number(enough)), corrected)

    return rule


_RULES: dict[type[exp.Expr], Callable[[exp.Expr], exp.Expr]] = {
    exp.Div: _division,
    exp.Mod: _remainder,
    exp.IntDiv: _remainder,
    exp.Avg: _average,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.DataType: _type,
    exp.DateTrunc: _truncated,
    exp.TimestampTrunc: _truncated,
    exp.Extract: _extract,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Substring: _substring,
    exp.Concat: _concat,
    exp.RegexpExtract: _regexp_extract,
    exp.CountIf: _count_if,
    exp.ArgMax: _arg_extreme,
    exp.ArgMin: _arg_extreme,
    exp.Skewness: _moment_of_sample("g * SQRT(n * (n - 1.0)) / (n - 2)", 3),
    exp.Kurtosis: _moment_of_sample("(n - 1.0) / ((n - 2.0) * (n - 3.0)) * ((n + 1) * g + 6)", 4),
}
