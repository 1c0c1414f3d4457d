"""The types of columns, from the catalog's words to Arrow and Spark, so that every engine gives the same ones."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from connectors.inference import output_types
from optimizer.algebra import Node
from optimizer.catalog import Catalog
from optimizer.errors import PenstockError

Type = exp.DType
_ARROW: dict[Type, pa.DataType] = {
    Type.BOOLEAN: pa.bool_(),
    Type.TINYINT: pa.int8(),
    Type.SMALLINT: pa.int16(),
    Type.INT: pa.int32(),
    Type.BIGINT: pa.int64(),
    Type.FLOAT: pa.float32(),
    Type.DOUBLE: pa.float64(),
    Type.VARCHAR: pa.string(),
    Type.TEXT: pa.string(),
    Type.CHAR: pa.string(),
    Type.NCHAR: pa.string(),
    Type.NVARCHAR: pa.string(),
    Type.DATE: pa.date32(),
    Type.TIMESTAMP: pa.timestamp("us"),
    Type.TIMESTAMPNTZ: pa.timestamp("us"),
    Type.DATETIME: pa.timestamp("us"),
    Type.TIMESTAMPTZ: pa.timestamp("us", tz="UTC"),
    Type.TIMESTAMPLTZ: pa.timestamp("us", tz="UTC"),
    Type.BINARY: pa.binary(),
    Type.VARBINARY: pa.binary(),
}
_SPARK = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp_ntz",
    pa.timestamp("us", tz="UTC"): "timestamp",
    pa.binary(): "binary",
}
_SQL = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "SMALLINT",  # PostgreSQL has no smaller one
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "REAL",
    pa.float64(): "DOUBLE",
    pa.string(): "TEXT",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP",
    pa.timestamp("us", tz="UTC"): "TIMESTAMPTZ",
    pa.binary(): "VARBINARY",
}


def arrow_type(declared: exp.DataType) -> pa.DataType:
    """
    >>> arrow_type(exp.DataType.build("DECIMAL(10, 2)"))
    Decimal128Type(decimal128(10, 2))
    """
    if declared.this in (Type.DECIMAL, Type.BIGDECIMAL):
        digits = [int(e.name) for e in declared.expressions]
        return pa.decimal128(digits[0] if digits else 18, digits[1] if len(digits) > 1 else 0 if digits else 3)
    if declared.this not in _ARROW:
        raise PenstockError(f"columns of type {declared.sql()} cannot be run; use one of {', '.join(_known())}")
    return _ARROW[declared.this]


def _known() -> list[str]:
    return [*dict.fromkeys(_SQL.values()), "DECIMAL"]


def spark_type(arrow: pa.DataType) -> str:
    """
    >>> spark_type(pa.timestamp("us"))
    'timestamp_ntz'
    """
    if pa.types.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    return _SPARK[arrow]


def sql_type(arrow: pa.DataType, dialect: str) -> str:
    """
    >>> sql_type(pa.float64(), "postgres"), sql_type(pa.float64(), "duckdb")
    ('DOUBLE PRECISION', 'DOUBLE')
    """
    words = f"DECIMAL({arrow.precision},{arrow.scale})" if pa.types.is_decimal(arrow) else _SQL[arrow]
    return exp.DataType.build(words).sql(dialect=dialect)


def column_types(node: Node, catalog: Catalog) -> dict[tuple[str, str], pa.DataType]:
    """The type of every column an operator puts out, by (alias, name)."""
    return {column: arrow_type(found) for column, found in output_types(node, catalog).items()}
