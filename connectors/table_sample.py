"""Some rows of a stored table, drawn at random where it has more than are wanted, and how many it has."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from connectors.duckdb import DuckDb
from connectors.sample_figures import Sample
from connectors.stored_tables import in_postgres, read_elsewhere
from connectors.types import arrow_type
from optimizer.catalog import Table

_COUNT = pa.schema([("n", pa.int64())])


def sample_table(table: Table, most: int) -> Sample:
    schema = pa.schema([pa.field(c.name, arrow_type(c.type)) for c in table.columns])
    if table.options.get("connector", "postgres") != "postgres":
        return _from_duckdb(table, most, schema)
    session, home, name = in_postgres(table)
    try:
        origin = exp.table_(name, home, quoted=True)
        counted = session.fetch(exp.select(exp.func("count", exp.Star())).from_(origin).sql(dialect="postgres"))
        rows = int(counted.column(0)[0].as_py())
        if rows <= most:
            return Sample(table, read_elsewhere(table, tuple(schema.names)), rows)
        drawn = exp.select(*_columns(schema)).from_(origin).order_by(exp.func("random")).limit(most)
        return Sample(table, session.fetch(drawn.sql(dialect="postgres")).cast(schema), rows)
    finally:
        session.close()


def _from_duckdb(table: Table, most: int, schema: pa.Schema) -> Sample:
    reader = DuckDb(None)
    try:
        reader.attach(table)
        name = exp.to_identifier(table.name, quoted=True)
        counted = exp.select(exp.func("count", exp.Star())).from_(exp.Table(this=name.copy()))
        rows = int(reader.query(counted.sql(dialect="duckdb"), {}, _COUNT).column(0)[0].as_py())
        chosen = exp.select(*_columns(schema)).from_(exp.Table(this=name)).sql(dialect="duckdb")
        if rows > most:
            chosen += f" USING SAMPLE reservoir({most:d} ROWS) REPEATABLE (1)"
        return Sample(table, reader.query(chosen, {}, schema), rows)
    finally:
        reader.close()


def _columns(schema: pa.Schema) -> list[exp.Column]:
    return [exp.column(name, quoted=True) for name in schema.names]
