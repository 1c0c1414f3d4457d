"""Stored tables that do not live in the plan's database: read over, whole, whenever they are needed."""

from __future__ import annotations

import pyarrow as pa

from connectors.database import Database, DatabaseError
from connectors.duckdb import DuckDb
from connectors.postgres_session import Session, quoted
from connectors.types import arrow_type
from optimizer.catalog import Table

_LIVES_IN = {"duckdb": ("duckdb", "files"), "postgres": ("postgres", "files")}


def lives_in(table: Table, database: Database) -> bool:
    return table.options.get("connector", "postgres") in _LIVES_IN[database.name]


def read_elsewhere(table: Table, columns: tuple[str, ...]) -> pa.Table:
    """The rows of a table, from wherever the catalog says it is."""
    types = {c.name: arrow_type(c.type) for c in table.columns}
    schema = pa.schema([pa.field(name, types[name]) for name in columns])
    if table.options.get("connector", "postgres") != "postgres":
        reader = DuckDb(None)
        try:
            return reader.read_table(table, columns).cast(schema)
        finally:
            reader.close()
    session, home, name = in_postgres(table)
    try:
        chosen = ", ".join(map(quoted, columns))
        return session.fetch(f"SELECT {chosen} FROM {quoted(home)}.{quoted(name)}").cast(schema)
    finally:
        session.close()


def in_postgres(table: Table) -> tuple[Session, str, str]:
    """A session where the table is, and the schema and the name it has there."""
    options = {key: str(value) for key, value in table.options.items()}
    if "url" not in options:
        raise DatabaseError(f"table {table.name}: connector 'postgres' needs url = 'postgresql://user@host:5432/db'")
    home = options.get("schema", "public")
    return Session(options["url"], home), home, options.get("table", table.name)
