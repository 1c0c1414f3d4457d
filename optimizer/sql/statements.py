"""The statements a catalog is made of, as sqlglot expressions."""

from __future__ import annotations

from sqlglot import exp


class Option(exp.Expression):
    """One `name = value` of a WITH list; `value` is a string, a float or a bool."""

    arg_types = {"this": True, "value": True}  # noqa: RUF012


class WatermarkDef(exp.Expression):
    """`WATERMARK FOR this AS this - delay`, the delay in microseconds."""

    arg_types = {"this": True, "delay": True}  # noqa: RUF012


class CreateRelation(exp.Expression):
    """CREATE STREAM or CREATE TABLE: `expressions` are the columns, `keys` the primary key."""

    arg_types = {  # noqa: RUF012
        "this": True,
        "kind": True,
        "expressions": True,
        "keys": False,
        "watermark": False,
        "options": False,
    }


class CreateStatistics(exp.Expression):
    """CREATE STATISTICS ON relations (columns) WHERE predicate WITH (…)."""

    arg_types = {"this": True, "expressions": False, "where": False, "options": False}  # noqa: RUF012
