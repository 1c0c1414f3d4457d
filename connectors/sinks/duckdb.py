"""Results into a table of a DuckDB file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from connectors.database import DatabaseError
from connectors.sinks.table import TableSink

_ROWS = "penstock_rows"


class DuckDbSink(TableSink):
    dialect = "duckdb"

    def __init__(self, path: Path, table: str, deployment: str) -> None:
        super().__init__(f"DuckDB {path}", table, deployment)
        try:
            self._connection = duckdb.connect(str(path))
        except duckdb.Error as error:
            raise DatabaseError(f"DuckDB cannot open {path}: {error}") from error

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._connection.begin()
            try:
                yield
            except BaseException:
                self._connection.rollback()
                raise
            self._connection.commit()
        except duckdb.Error as error:
            raise DatabaseError(f"{self.where}: {error}") from error

    def _execute(self, sql: str, values: Sequence[str | int] = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, list(values)).fetchall()

    def _insert(self, rows: pa.Table) -> None:
        self._connection.register(_ROWS, rows)
        self._execute(f"INSERT INTO {self._table} BY NAME SELECT * FROM {_ROWS}")
        self._connection.unregister(_ROWS)

    def _columns(self, table: str) -> list[tuple[str, str]]:
        query = """
            SELECT column_name, data_type FROM duckdb_columns()
            WHERE database_name = current_catalog() AND lower(table_name) = lower($1)
            AND lower(schema_name) = lower(CASE WHEN $2 = '' THEN current_schema() ELSE $2 END)
            ORDER BY column_index"""
        return [(name, kind) for name, kind in self._execute(query, (table, self.schema or ""))]
