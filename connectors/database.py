"""What Penstock asks of a database: window stores, a ledger in the same transactions, queries in and Arrow out.

A deployment has tables of its own: one per window store, `ledger`, and one per relation that Spark ships in. Both
databases keep this one protocol, and one test-suite runs over both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

import pyarrow as pa

from optimizer.catalog import Table
from optimizer.errors import PenstockError

Value = datetime | int


class DatabaseError(PenstockError):
    """The database refused or failed: not reachable, wrong password, disk full, a type that overflows."""


class DatabaseUnavailable(DatabaseError):
    """The connection is lost; worth another try."""


class SchemaMismatch(DatabaseError):
    """What stands in the database is not what this deployment would have made."""


@dataclass(frozen=True, slots=True)
class Store:
    """A window store: the tuples of one stream after one selection, kept as long as a window needs them."""

    name: str
    schema: pa.Schema
    time_column: str


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A batch whose tuples are in the stores; `record` is what migration needs to go on from there, as JSON."""

    batch: int
    record: str


@dataclass(frozen=True, slots=True)
class Panes:
    """Partial aggregates of a window, made from its store a pane at a time, and kept for as long as the session."""

    name: str
    sql: str  # the panes between `$since` and `$until`; the first column, `_pane`, is a pane's first instant


@dataclass(frozen=True, slots=True)
class StoreSize:
    rows: int
    bytes: int


class Database(Protocol):
    name: str
    dialect: str
    durable: bool

    def prepare(self, stores: tuple[Store, ...]) -> None:
        """Makes the deployment's tables where they are missing; SchemaMismatch where they are others."""

    def view(self, name: str, sql: str) -> None:
        """A named query over stores, in this database's dialect; replaces one of the same name."""

    def transaction(self) -> AbstractContextManager[None]:
        """What happens inside is committed together or not at all."""

    def append(self, store: Store, rows: pa.Table) -> None: ...

    def repeat(self, store: Store, rows: pa.Table, earlier: Sequence[timedelta]) -> None:
        """Fills a store that nobody has used yet: the same rows for each of `earlier`, that much before their time."""

    def evict(self, store: Store, before: datetime) -> int:
        """Drops the tuples of earlier times and says how many they were."""

    def record(self, entry: LedgerEntry) -> None:
        """Into the ledger; entries older than the last few go."""

    def last_entry(self) -> LedgerEntry | None: ...

    def fill(self, name: str, rows: pa.Table) -> None:
        """A relation shipped in: replaces the contents of the table `name`, which lives as long as the session."""

    def reach(self, panes: Panes, first: datetime, until: datetime) -> None:
        """Makes the panes of [first, until) that are missing; earlier ones may go. No tuple comes into one later."""

    def query(self, sql: str, values: Mapping[str, Value], schema: pa.Schema) -> pa.Table:
        """Runs SQL in which `$name` stands for a value; the result takes `schema`'s names and types, by position."""

    def attach(self, table: Table) -> None:
        """Makes a stored table readable under its catalog name, where it lives in this database or is a file."""

    def read_table(self, table: Table, columns: tuple[str, ...]) -> pa.Table:
        """A stored table's rows, for Spark."""

    def size(self, store: Store) -> StoreSize: ...

    def settle(self, store: Store) -> None:
        """After tuples came in bulk: what the database does by itself in time, statistics above all."""

    def interrupt(self) -> None:
        """From another thread: the statement in flight, if there is one, fails."""

    def reconnect(self) -> None:
        """After DatabaseUnavailable: opens the session anew, with the views it had."""

    def drop(self) -> None:
        """Removes everything of this deployment."""

    def close(self) -> None: ...
