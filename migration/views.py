"""Views over window stores, under the names by which the SQL of MIGs knows its windows."""

from __future__ import annotations

from sqlglot import exp

from connectors.types import arrow_type, sql_type
from migration.layout import KeptTuples
from optimizer.algebra import Scalar, Window, column
from optimizer.catalog import Catalog
from optimizer.sql.postgres import for_postgres


def window_view(
    window: Window, kept: KeptTuples, filters: tuple[Scalar, ...], catalog: Catalog, dialect: str
) -> tuple[str, str]:
    """The view `win_<alias>`: its name and its SQL. What no query reads was not stored and is NULL."""
    alias = exp.to_identifier(window.alias, quoted=True)
    table = exp.Table(this=exp.to_identifier(kept.name, quoted=True))
    types = {c.name: sql_type(arrow_type(c.type), dialect) for c in catalog.streams[window.stream].columns}
    names = list(dict.fromkeys((window.time_column, *window.columns)))
    columns = [
        exp.column(name, quoted=True)
        if name in kept.columns
        else exp.alias_(exp.cast(exp.null(), types[name], dialect=dialect), name, quoted=True)
        for name in names
    ]
    query = exp.Select().select(*columns).from_(table)
    if kept.counted:
        query = query.select(exp.alias_(numbering(window), "_seq", quoted=True))
        wanted = [column(window.alias, name) for name in (*names, "_seq")]
        query = exp.Select().select(*wanted).from_(query.subquery(alias)).where(*filters)
    return f"win_{window.alias}", (for_postgres(query) if dialect == "postgres" else query).sql(dialect=dialect)


def numbering(window: Window) -> exp.Window:
    """The number of each tuple in order of (event time, arrival)."""
    order = [exp.column(name, quoted=True) for name in (window.time_column, "_batch", "_arrival")]
    return exp.Window(
        this=exp.RowNumber(), order=exp.Order(expressions=[exp.Ordered(this=o, nulls_first=False) for o in order])
    )
