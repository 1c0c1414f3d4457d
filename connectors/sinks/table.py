"""What the database sinks share: the rows and a ledger row in one transaction, in a table with the right columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError

from connectors.database import SchemaMismatch
from connectors.types import arrow_type, sql_type
from optimizer.errors import PenstockError

LEDGER = "penstock_ledger"  # by (deployment, target) the newest batch: batches rise, so an older one is a replay


class TableSink(ABC):
    exactly_once = True
    note = ""
    dialect: str
    guard = ""  # SQL that lets one deployment at a time make its tables, where the engine does not see to that

    def __init__(self, where: str, table: str, deployment: str) -> None:
        parts = table.split(".")
        if len(parts) > 2 or not all(parts):
            raise PenstockError(f"'{table}' is not a table's name; write TABLE or SCHEMA.TABLE")
        self.where = f"{where}, table {table}"
        self.name = parts[-1]
        self.schema = parts[0] if len(parts) == 2 else None
        self._key = (deployment, table)
        self._table = self._sql(self.name)
        self._ledger = self._sql(LEDGER)

    def prepare(self, schema: pa.Schema) -> None:
        refuse_duplicates(schema)
        columns = ", ".join(f"{self._quoted(f.name)} {sql_type(f.type, self.dialect)}" for f in schema)
        with self._transaction():
            if self.guard:
                self._execute(self.guard)
            self._execute(f"CREATE TABLE IF NOT EXISTS {self._table} ({columns})")
            self._execute(
                f"CREATE TABLE IF NOT EXISTS {self._ledger} "
                "(deployment TEXT, target TEXT, batch BIGINT NOT NULL, PRIMARY KEY (deployment, target))"
            )
            wanted = [(f.name, sql_type(f.type, self.dialect)) for f in schema]
            check_columns(self.where, wanted, self._columns(self.name), self._same)

    def write(self, batch: int, rows: pa.Table, *, during: Callable[[], None] = lambda: None) -> None:
        # The ledger first: the condition decides whether this is a replay, and keeps a twin of this process waiting.
        record = (
            f"INSERT INTO {self._ledger} AS old VALUES ($1, $2, $3) ON CONFLICT (deployment, target) "
            "DO UPDATE SET batch = excluded.batch WHERE old.batch < excluded.batch RETURNING batch"
        )
        with self._transaction():
            if self._execute(record, (*self._key, batch)):
                if rows.num_rows:
                    self._insert(rows)
                during()

    def last_batch(self) -> int | None:
        with self._transaction():
            if not self._columns(LEDGER):
                return None
            query = f"SELECT batch FROM {self._ledger} WHERE deployment = $1 AND target = $2"
            found = self._execute(query, self._key)
            return int(found[0][0]) if found else None

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[None]:
        """Commits what happens inside or rolls it back, and makes the engine's errors ours."""

    @abstractmethod
    def _execute(self, sql: str, values: Sequence[str | int] = ()) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def _insert(self, rows: pa.Table) -> None: ...

    @abstractmethod
    def _columns(self, table: str) -> list[tuple[str, str]]:
        """Names and types of a table beside the target; none where it does not exist."""

    def _quoted(self, name: str) -> str:
        return exp.to_identifier(name, quoted=True).sql(dialect=self.dialect)

    def _sql(self, name: str) -> str:
        return ".".join(self._quoted(part) for part in (self.schema, name) if part is not None)

    def _same(self, left: str, right: str) -> bool:
        """Whether two words for a type mean the same rows: TEXT and VARCHAR do."""
        try:
            one, other = (exp.DataType.build(words, dialect=self.dialect) for words in (left, right))
            return bool(arrow_type(one) == arrow_type(other))
        except (PenstockError, SqlglotError):
            return False


def refuse_duplicates(schema: pa.Schema) -> None:
    """Two columns of one name cannot be stored; DuckDB and Spark do not tell case apart either."""
    names = [name.lower() for name in schema.names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise PenstockError(f"the result has two columns called {', '.join(twice)}; rename one in SELECT with AS")


def check_columns(
    where: str,
    wanted: Iterable[tuple[str, str]],
    found: Iterable[tuple[str, str]],
    same: Callable[[str, str], bool] = str.__eq__,
) -> None:
    """
    >>> check_columns("a.duckdb, table t", [("x", "INT"), ("y", "INT")], [("x", "TEXT"), ("z", "INT")])
    Traceback (most recent call last):
    connectors.database.SchemaMismatch: a.duckdb, table t has other columns than the query's result: x is TEXT, not \
INT; y (INT) is missing; z is not in the result. Write to another place, or move what is there away
    """
    expected, there = dict(wanted), dict(found)
    differing = [
        *(f"{n} is {there[n]}, not {t}" for n, t in expected.items() if n in there and not same(there[n], t)),
        *(f"{n} ({t}) is missing" for n, t in expected.items() if n not in there),
        *(f"{n} is not in the result" for n in there if n not in expected),
    ]
    if differing:
        raise SchemaMismatch(
            f"{where} has other columns than the query's result: {'; '.join(differing)}. "
            "Write to another place, or move what is there away"
        )
