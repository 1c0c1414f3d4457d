"""Catalog text to a `Catalog`: CREATE STREAM, CREATE TABLE, CREATE STATISTICS."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from typing import TypeVar

from sqlglot import exp

from optimizer.catalog import MAX_RATE, Catalog, Column, ColumnSet, Figure, Selectivity, Stream, Table, Watermark
from optimizer.sql.dialect import STATISTICS_FORM, STREAM_FORM
from optimizer.sql.parse import parse_statements, refused
from optimizer.sql.statements import CreateRelation, CreateStatistics, Option

TEMPORAL = (exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPNTZ)

Relation = TypeVar("Relation", Stream, Table)


def parse_catalog(text: str) -> Catalog:
    """
    >>> catalog = parse_catalog("CREATE STREAM s (ts TIMESTAMP, v INT, WATERMARK FOR ts AS ts) WITH (rate = 10)")
    >>> catalog.streams["s"].rate.value
    10.0
    """
    streams: dict[str, Stream] = {}
    tables: dict[str, Table] = {}
    for statement in parse_statements(text):
        if isinstance(statement, CreateRelation):
            name = _name(statement.this)
            if name in streams or name in tables:
                raise refused(f"{name} is declared twice", statement.this, text, "one CREATE per name")
            if statement.args["kind"] == "stream":
                streams[name] = _stream(name, statement, text)
            else:
                tables[name] = _table(name, statement, text)
        elif isinstance(statement, CreateStatistics):
            _add_statistics(statement, streams, tables, text)
        else:
            kind = type(statement).__name__.upper()
            raise refused(f"a catalog holds CREATE statements only, found {kind}", statement, text, STREAM_FORM)
    return Catalog(streams, tables, text)


def _name(identifier: exp.Expr) -> str:
    """Names fold to lower case unless quoted, as in the queries."""
    return identifier.name if identifier.args.get("quoted") else identifier.name.lower()


def _columns(statement: CreateRelation, text: str) -> tuple[Column, ...]:
    columns: dict[str, Column] = {}
    for definition in statement.expressions:
        name = _name(definition.this)
        if name in columns:
            raise refused(f"column {name} is declared twice", definition.this, text, "one definition per column")
        columns[name] = Column(name, definition.args["kind"], nullable=not definition.args.get("constraints"))
    if not columns:
        raise refused("a relation needs at least one column", statement.this, text, STREAM_FORM)
    return tuple(columns.values())


def _check_names(options: list[Option], known: tuple[str, ...], text: str, others: bool) -> None:
    """Options of a connector pass through (`others`), but not one that is nearly the name of ours."""
    for option in options:
        name = str(option.this).lower()
        near = get_close_matches(name, known, 1, 0.8 if others else 0.5)
        if name not in known and (near or not others):
            hint = near[0] if near else f"one of {', '.join(known)}"
            raise refused(f"no option is called {option.this}", option, text, hint)


def _options(options: list[Option]) -> dict[str, str | float | bool]:
    return {str(o.this).lower(): o.args["value"] for o in options}


def _number(options: list[Option], name: str, text: str, at_most: float) -> float | None:
    """A figure among the options, from 0 to `at_most`."""
    for option in options:
        if str(option.this).lower() == name:
            value = option.args["value"]
            if not isinstance(value, float) or not 0 <= value <= at_most:
                words = f"{name} must be a number from 0 to {at_most:g}, found {value!r}"
                raise refused(words, option, text, f"{name} = {min(1000, at_most):g}")
            return value
    return None


def _stream(name: str, statement: CreateRelation, text: str) -> Stream:
    columns = _columns(statement, text)
    if statement.args.get("keys"):
        raise refused("a stream has no primary key", statement.args["keys"][0], text, STREAM_FORM)
    by_name = {c.name: c for c in columns}
    watermark = None
    if definition := statement.args.get("watermark"):
        column = _name(definition.this)
        if column not in by_name:
            raise refused(
                f"the watermark is on {column}, which is no column of {name}", definition.this, text, STREAM_FORM
            )
        if by_name[column].type.this not in TEMPORAL:
            found = by_name[column].type.sql()
            raise refused(f"the watermark column {column} is {found}", definition.this, text, f"{column} TIMESTAMP")
        watermark = Watermark(column, definition.args["delay"])
    options = statement.args.get("options") or []
    _check_names(options, ("rate", "connector"), text, others=True)
    rate = _number(options, "rate", text, MAX_RATE)
    if rate == 0:
        raise refused("rate must be positive, found 0", statement.this, text, "WITH (rate = 2000)")
    return Stream(name, columns, watermark, _options(options), Figure(rate) if rate else None)


def _table(name: str, statement: CreateRelation, text: str) -> Table:
    columns = _columns(statement, text)
    if watermark := statement.args.get("watermark"):
        raise refused("a stored table has no watermark", watermark.this, text, "CREATE STREAM, or no WATERMARK")
    keys = [_name(k) for k in statement.args.get("keys") or []]
    for key, identifier in zip(keys, statement.args.get("keys") or [], strict=True):
        if key not in {c.name for c in columns}:
            raise refused(f"the primary key has {key}, which is no column of {name}", identifier, text, STREAM_FORM)
    options = statement.args.get("options") or []
    _check_names(options, ("rows", "connector"), text, others=True)
    rows = _number(options, "rows", text, MAX_RATE)
    columns = tuple(replace(c, nullable=c.nullable and c.name not in keys) for c in columns)
    return Table(name, columns, tuple(keys), _options(options), None if rows is None else Figure(rows))


def _add_statistics(
    statement: CreateStatistics, streams: dict[str, Stream], tables: dict[str, Table], text: str
) -> None:
    names = [_name(i) for i in statement.args["this"]]
    for name, identifier in zip(names, statement.args["this"], strict=True):
        if name not in streams and name not in tables:
            raise refused(f"no stream or table {name} is declared above", identifier, text, STATISTICS_FORM)
    owner = names[0]
    options = statement.args.get("options") or []
    _check_names(options, ("distinct", "min", "max", "nulls", "selectivity"), text, others=False)
    if where := statement.args.get("where"):
        share = _number(options, "selectivity", text, at_most=1.0)
        if share is None or len(names) > 2 or statement.expressions:
            form = "CREATE STATISTICS ON plugs WHERE property = 1 WITH (selectivity = 0.5)"
            raise refused("statistics on a predicate give its selectivity", where, text, form)
        fact = Selectivity(tuple(names), _qualified(where, names, streams, tables, text), Figure(share))
        if owner in streams:
            streams[owner] = _with_selectivity(streams[owner], fact)
        else:
            tables[owner] = _with_selectivity(tables[owner], fact)
        return
    relation = streams.get(owner) or tables[owner]
    columns = [_name(i) for i in statement.expressions]
    for column, identifier in zip(columns, statement.expressions, strict=True):
        if column not in {c.name for c in relation.columns}:
            raise refused(f"{owner} has no column {column}", identifier, text, STATISTICS_FORM)
    if len(names) != 1 or not columns:
        words = "statistics are on columns of one relation or on a predicate"
        raise refused(words, statement.args["this"][0], text, STATISTICS_FORM)
    distinct = _number(options, "distinct", text, MAX_RATE)
    given = _options(options)
    low, high = given.get("min"), given.get("max")
    for option in options:
        if str(option.this).lower() in ("min", "max") and not isinstance(option.args["value"], float):
            raise refused(f"{option.this} must be a number, found {option.args['value']!r}", option, text, "min = 0")
    if isinstance(low, float) and isinstance(high, float) and low > high:
        raise refused(f"min is {low:g} and max is {high:g}", options[0], text, f"min = {high:g}, max = {low:g}")
    nulls = _number(options, "nulls", text, at_most=1.0)
    columns_fact = ColumnSet(
        frozenset(columns),
        Figure(distinct) if distinct else None,
        low if isinstance(low, float) else None,
        high if isinstance(high, float) else None,
        None if nulls is None else Figure(nulls),
    )
    if owner in streams:
        streams[owner] = _with_columns(streams[owner], columns_fact)
    else:
        tables[owner] = _with_columns(tables[owner], columns_fact)


def _with_columns(relation: Relation, fact: ColumnSet) -> Relation:
    return replace(relation, statistics=(*relation.statistics, fact))


def _with_selectivity(relation: Relation, fact: Selectivity) -> Relation:
    return replace(relation, selectivities=(*relation.selectivities, fact))


def _qualified(
    where: exp.Expression, names: list[str], streams: dict[str, Stream], tables: dict[str, Table], text: str
) -> exp.Expression:
    """The predicate with every column qualified by its relation, in the form `statistics` compares with."""
    for column in where.find_all(exp.Column):
        name, table = _name(column.this), column.table.lower()
        owners = [
            n
            for n in names
            if (not table or table == n) and name in {c.name for c in (streams.get(n) or tables[n]).columns}
        ]
        if len(owners) != 1:
            raise refused(
                f"column {column.sql()} is not a column of one of {', '.join(names)}", column, text, STATISTICS_FORM
            )
        column.set("this", exp.to_identifier(name, quoted=True))
        column.set("table", exp.to_identifier(owners[0], quoted=True))
    return where
