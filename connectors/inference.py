"""The types of expressions, inferred from the columns they read: sqlglot's rules, corrected where they are too narrow.

A plan's own annotations are not enough. Rewriting loses some, and some are wrong for the values at hand: a year is no
TINYINT, a sum of DECIMAL(10, 2) needs more digits than its terms, `/` is a division of floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.optimizer.annotate_types import annotate_types

from optimizer.algebra import Aggregate, Join, Node, Project, Scalar, Select, StoredTable, Window
from optimizer.catalog import Catalog
from optimizer.sql.panes import is_tick

Type = exp.DType
Types = Mapping[tuple[str, str], exp.DataType]  # of columns, by (alias, name)
_DECIMALS = (Type.DECIMAL, Type.BIGDECIMAL)
_DIGITS = 38  # the most that every engine has


def output_types(node: Node, catalog: Catalog) -> dict[tuple[str, str], exp.DataType]:
    """The type of every column an operator puts out."""
    match node:
        case Window() | StoredTable():
            relation = catalog.relation(node.stream if isinstance(node, Window) else node.table)
            assert relation is not None
            declared = {c.name: c.type for c in relation.columns}
            return {(node.alias, name): declared[name] for name in node.columns}
        case Project() | Aggregate():
            below = output_types(node.input, catalog)
            items = node.items if isinstance(node, Project) else (*node.keys, *node.functions)
            return {(node.alias, item.name): type_of(item.expression, below) for item in items}
        case Join():
            return output_types(node.left, catalog) | output_types(node.right, catalog)
        case Select():
            return output_types(node.input, catalog)


def type_of(scalar: Scalar, types: Types) -> exp.DataType:
    found = typed(scalar, types).type
    if found is None or found.this in (Type.UNKNOWN, Type.NULL):
        return exp.DataType.build("DOUBLE" if isinstance(scalar, exp.Func) else "TEXT")
    return found


def typed(scalar: Scalar, types: Types) -> exp.Expr:
    """A copy in which every part has its type."""
    copy = scalar.copy()
    for node in copy.walk():
        if isinstance(node, exp.Column) and (node.table, node.name) in types:
            node.type = types[node.table, node.name]
        elif is_tick(node):
            node.type = exp.DataType.build("TIMESTAMP")
        elif not isinstance(node, exp.Column | exp.DataType):
            node.type = None
    for cast in copy.find_all(exp.Cast):  # it has its type from the start, so sqlglot would not look inside
        annotate_types(cast.this, expression_metadata=_METADATA, overwrite_types=False)
    return annotate_types(copy, expression_metadata=_METADATA, overwrite_types=False)


# -- corrections ------------------------------------------------------------------------------------------------------


def _is(node: exp.Expr | None, *kinds: exp.DType) -> bool:
    return node is not None and node.type is not None and node.type.this in kinds


def _scale(node: exp.Expr) -> int:
    parameters = node.type.expressions if node.type else []
    return int(parameters[1].name) if len(parameters) > 1 else 0 if parameters or not _is(node, *_DECIMALS) else 3


def _decimal(scale: int) -> exp.DataType:
    return exp.DataType.build(f"DECIMAL({_DIGITS}, {scale})")


def _like_argument(annotator: Any, node: exp.Expr) -> exp.Expr:
    annotator._set_type(node, node.this.type)
    return node


def _division(annotator: Any, node: exp.Expr) -> exp.Expr:
    dividend, divisor = node.this, node.args["expression"]
    if _is(dividend, Type.INTERVAL):
        annotator._set_type(node, dividend.type)
    else:
        single = _is(dividend, Type.FLOAT) and _is(divisor, Type.FLOAT)
        annotator._set_type(node, Type.FLOAT if single else Type.DOUBLE)
    return node


def _arithmetic(annotator: Any, node: exp.Expr) -> exp.Expr:
    annotator._annotate_binary(node)
    if _is(node, *_DECIMALS):
        left, right = _scale(node.this), _scale(node.args["expression"])
        annotator._set_type(node, _decimal(left + right if isinstance(node, exp.Mul) else max(left, right)))
    return node


def _sum(annotator: Any, node: exp.Expr) -> exp.Expr:
    value = node.this.expressions[0] if isinstance(node.this, exp.Distinct) else node.this
    if _is(value, *_DECIMALS):
        annotator._set_type(node, _decimal(_scale(value)))
    else:
        annotator._set_type(node, Type.DOUBLE if _is(value, Type.DOUBLE, Type.FLOAT, Type.UNKNOWN) else Type.BIGINT)
    return node


def _extract(annotator: Any, node: exp.Expr) -> exp.Expr:
    annotator._set_type(node, Type.DOUBLE if node.name.upper() == "EPOCH" else Type.BIGINT)
    return node


_METADATA: Any = {
    **Dialect.get_or_raise(None).EXPRESSION_METADATA,
    **{part: {"returns": Type.INT} for part in (exp.Year, exp.Month, exp.Day, exp.Hour, exp.Minute, exp.Second)},
    **{text: {"returns": Type.VARCHAR} for text in (exp.RegexpExtract, exp.Soundex)},
    **{same: {"annotator": _like_argument} for same in (exp.ArgMax, exp.ArgMin, exp.Mode, exp.Floor, exp.Ceil)},
    **{sign: {"annotator": _arithmetic} for sign in (exp.Add, exp.Sub, exp.Mul, exp.Mod)},
    exp.Median: {"returns": Type.DOUBLE},
    exp.Div: {"annotator": _division},
    exp.Sum: {"annotator": _sum},
    exp.Extract: {"annotator": _extract},
}
