"""Results into a table of a PostgreSQL server, as Arrow by COPY."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import adbc_driver_manager as adbc
import pyarrow as pa
from adbc_driver_postgresql import dbapi

from connectors.database import DatabaseError, DatabaseUnavailable
from connectors.sinks.table import TableSink

# Too many connections, shutting down, crashed, starting up. Class 08 is left out: a connection that is gone reports no
# SQLSTATE at all, while 08P01 is what COPY says of a value of the wrong type.
_PASSING_STATES = ("53300", "57P01", "57P02", "57P03")
# libpq has only words for what happens to a connection.
_PASSING_WORDS = re.compile(
    r"Is the server running|server closed the connection|no connection to the server|could not (send|receive) data"
    r"|could not translate host name|timeout expired|terminating connection|the database system is|too many clients"
    r"|remaining connection slots|SSL SYSCALL|SSL connection has been closed"
)


class PostgresSink(TableSink):
    dialect = "postgres"
    # CREATE TABLE IF NOT EXISTS fails when two run it at the same time. The number is the word "penstock".
    guard = f"SELECT pg_advisory_xact_lock({0x70656E73746F636B})::text"

    def __init__(self, url: str, table: str, deployment: str) -> None:
        super().__init__(f"PostgreSQL {_without_password(url)}", table, deployment)
        timeout = "" if "connect_timeout=" in url else ("&" if "?" in url else "?") + "connect_timeout=10"
        self._url = url + timeout
        self._open: dbapi.Connection | None = None
        with self._transaction():  # a wrong password shows now, and not with the first result
            self._execute("SELECT 1")

    def close(self) -> None:
        if self._open is not None:
            with suppress(adbc.Error):
                self._open.close()
            self._open = None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            connection = self._connection()
            try:
                yield
                connection.commit()
            except BaseException:
                with suppress(adbc.Error):
                    connection.rollback()
                raise
        except adbc.Error as error:
            if error.sqlstate in _PASSING_STATES or (error.sqlstate is None and _PASSING_WORDS.search(str(error))):
                self.close()  # the next call connects anew
                raise DatabaseUnavailable(f"{self.where}: {_cause(error)}") from error
            raise DatabaseError(f"{self.where}: {_cause(error)}") from error

    def _connection(self) -> dbapi.Connection:
        if self._open is None:
            self._open = dbapi.connect(self._url)
        return self._open

    def _execute(self, sql: str, values: Sequence[str | int] = ()) -> list[tuple[Any, ...]]:
        with self._connection().cursor() as cursor:
            cursor.execute(sql, values or None)
            return cursor.fetchall() if cursor.description else []

    def _insert(self, rows: pa.Table) -> None:
        with self._connection().cursor() as cursor:
            cursor.adbc_ingest(self.name, rows, mode="append", db_schema_name=self.schema)

    def _columns(self, table: str) -> list[tuple[str, str]]:
        query = """
            SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute
            WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
        return [(name, kind) for name, kind in self._execute(query, (self._sql(table),))]


def _without_password(url: str) -> str:
    """
    >>> _without_password("postgresql://me:secret@db:5432/house?password=secret")
    'postgresql://me@db:5432/house?password=…'
    """
    return re.sub(r"password=[^&]*", "password=…", re.sub(r"//([^:@/]*):[^/]*@", r"//\1@", url))


def _cause(error: adbc.Error) -> str:
    """What the server said, without the driver's words around it."""
    text = str(error)
    said = re.search(r"(?:ERROR|FATAL):\s+(.*)", text)
    if said is None:
        return " ".join(re.sub(r"^[A-Z_]+: (\[libpq\] )?", "", text).split())
    more = re.findall(r"(?:DETAIL|CONTEXT|HINT):\s+(.*)", text)
    return "; ".join([said.group(1), *more])
