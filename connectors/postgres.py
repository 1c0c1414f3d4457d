"""PostgreSQL as a deployment's database: everything of the deployment is in a schema of its own.

A window store is one plain table with a B-tree on its time. New tuples go to the right end of the index and the oldest
leave at its left, so neither reads more than it changes; the planner reads both ends for the range of times, which no
statistics could follow. (A BRIN index never forgets the old times of a block that is used again.) Deleted rows give
their space to new ones: autovacuum looks at the stores at every round, whatever their size. Panes are such a table as
well, without a log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset

from connectors.database import (
    DatabaseError,
    DatabaseUnavailable,
    LedgerEntry,
    Panes,
    SchemaMismatch,
    Store,
    StoreSize,
    Value,
)
from connectors.pane_spans import PaneSpans
from connectors.postgres_session import Session, positional, quoted
from connectors.types import arrow_type, sql_type
from optimizer.catalog import Table

KEPT_ENTRIES = 8
_QUICK_REUSE = (
    "autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0, "
    "autovacuum_analyze_scale_factor = 0.1"
)
# Windows are in no order of their keys, and for a key of several columns the planner takes hashing for far too dear:
# it sorted a window of 3 million tuples for a merge join, in three times the time.
_NO_SORTING = {"enable_mergejoin": "off", "enable_sort": "off"}
# The groups of a whole window's panes, hundreds of thousands: with less, PostgreSQL writes them to files in between,
# and takes 3.9 s instead of 2.3 s over 12 million tuples. It happens once in the life of a session.
_PANES_MEMORY = "64MB"
_SERVER_WORDS = {
    "INT": "integer",
    "TIMESTAMP": "timestamp without time zone",
    "TIMESTAMPTZ": "timestamp with time zone",
}


class Postgres:
    name = "postgres"
    dialect = "postgres"
    durable = True

    def __init__(self, url: str, schema: str) -> None:
        self.url = url
        self.schema = schema
        self._filled: dict[str, pa.Schema] = {}
        self._attached: set[str] = set()
        self._panes = PaneSpans(self._make_panes, self._add_panes, self._drop_panes)
        self._session = Session(url, schema, _NO_SORTING)

    def reconnect(self) -> None:
        """A new connection after one was lost; what was filled is gone with the old one."""
        self._forget()
        self._session.reconnect()

    def _forget(self) -> None:
        """Tables made in a transaction that failed are not there; others are made again when they are needed."""
        self._filled.clear()
        self._attached.clear()
        self._panes.forget()

    def prepare(self, stores: tuple[Store, ...]) -> None:
        with self._session.transaction():
            self._make_schema()
            self._session.execute(
                f"CREATE TABLE IF NOT EXISTS {self._own('ledger')} (batch BIGINT PRIMARY KEY, record TEXT)"
            )
            for store in stores:
                if self._make(store.name, store.schema, _QUICK_REUSE):
                    self._index(store)

    def _index(self, store: Store) -> None:
        self._session.execute(f"CREATE INDEX ON {self._own(store.name)} ({quoted(store.time_column)})")

    def _make_schema(self) -> None:
        self._session.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(self.schema)}")

    def _make(
        self, table: str, schema: pa.Schema, settings: str = "", kind: str = "TABLE", key: tuple[str, ...] = ()
    ) -> bool:
        """Whether the table is new; one that is there has the very columns."""
        wanted = [(f.name, sql_type(f.type, "postgres")) for f in schema]
        found = self._columns(table)
        if found:
            if found != [(column, _server_type(words)) for column, words in wanted]:
                raise SchemaMismatch(
                    f"table {self.schema}.{table} of PostgreSQL at {self._session.place} has columns {_listed(found)}, "
                    f"this plan needs {_listed(wanted)}; drop the deployment, or give the query another name"
                )
            return False
        parts = [f"{quoted(column)} {words}" for column, words in wanted]
        if key:
            parts.append(f"PRIMARY KEY ({', '.join(map(quoted, key))})")
        options = f" WITH ({settings})" if settings else ""
        self._session.execute(f"CREATE {kind} {self._own(table)} ({', '.join(parts)}){options}")
        return True

    def _columns(self, table: str) -> list[tuple[str, str]]:
        sql = """SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute
            WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
        columns = self._session.fetch(sql, [self._own(table)])
        return list(zip(columns.column(0).to_pylist(), columns.column(1).to_pylist(), strict=True))

    def view(self, name: str, sql: str) -> None:
        with self._session.transaction():
            # Views on this one are made anew after it, as they were the first time.
            self._session.execute(f"DROP VIEW IF EXISTS {self._own(name)} CASCADE")
            self._session.execute(f"CREATE VIEW {self._own(name)} AS {sql}", doing=f"view {name} cannot be made")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        try:
            with self._session.transaction():
                yield
        except BaseException:
            self._forget()
            raise

    def append(self, store: Store, rows: pa.Table) -> None:
        doing = f"{rows.num_rows} tuples cannot be stored in {store.name}"
        self._session.copy(store.name, rows.select(store.schema.names).cast(store.schema), doing)

    def repeat(self, store: Store, rows: pa.Table, earlier: Sequence[timedelta]) -> None:
        """The rows come into the server once, and the index is made when all are there: a third off."""
        doing, table, time = f"{store.name} cannot be filled", self._own(store.name), quoted(store.time_column)
        part = f"part_of_{store.name}"
        self._make(part, store.schema, kind="UNLOGGED TABLE")
        self._session.copy(part, rows.select(store.schema.names).cast(store.schema), doing)
        for name in self._indexes(store):
            self._session.execute(f"DROP INDEX {self._own(name)}", doing=doing)
        for by in earlier:
            moved = f"{time} - INTERVAL '{by // timedelta(microseconds=1):d} microseconds'"
            columns = ", ".join(moved if n == store.time_column else quoted(n) for n in store.schema.names)
            self._session.execute(f"INSERT INTO {table} SELECT {columns} FROM {self._own(part)}", doing=doing)
        self._index(store)
        self._session.execute(f"DROP TABLE {self._own(part)}", doing=doing)

    def _indexes(self, store: Store) -> list[str]:
        sql = "SELECT indexname::text FROM pg_indexes WHERE schemaname = $1 AND tablename = $2"
        return [str(name) for name in self._session.fetch(sql, [self.schema, store.name]).column(0).to_pylist()]

    def stage(self, store: Store, batch: int) -> str:
        """The staging table of a store, without rows of the batch: an earlier try may have had other partitions."""
        table = staging_name(store)
        extra = [pa.field("_batch", pa.int64()), pa.field("_part", pa.int32())]
        with self._session.transaction():
            self._make(table, pa.schema([*extra, *store.schema]), _QUICK_REUSE, "UNLOGGED TABLE")
            self._session.execute(f"DELETE FROM {self._own(table)} WHERE _batch = {batch:d}")
        return table

    def adopt(self, store: Store, batch: int, rows: int) -> None:
        """Moves a batch's staged rows into the store; `rows` is what the executors say they wrote."""
        staged, columns = self._own(staging_name(store)), ", ".join(map(quoted, store.schema.names))
        doing = f"staged tuples cannot be moved to {store.name}"
        with self._session.transaction():
            # A late attempt at a partition replaces rows by equal ones: never read while it does.
            self._session.execute(f"LOCK TABLE {staged} IN SHARE ROW EXCLUSIVE MODE", doing=doing)
            chosen = f"SELECT {columns} FROM {staged} WHERE _batch = {batch:d}"
            moved = self._session.execute(f"INSERT INTO {self._own(store.name)} ({columns}) {chosen}", doing=doing)
            if moved != rows:  # an unlogged table is empty after a crash of the server
                raise DatabaseUnavailable(
                    f"of batch {batch}, {rows} tuples were staged for {store.name}, {moved} are there"
                )
            self._session.execute(f"DELETE FROM {staged} WHERE _batch <= {batch:d}", doing=doing)

    def evict(self, store: Store, before: datetime) -> int:
        condition = f"{quoted(store.time_column)} < TIMESTAMP '{before.isoformat(sep=' ')}'"
        doing = f"old tuples of {store.name} cannot be dropped"
        return self._session.execute(f"DELETE FROM {self._own(store.name)} WHERE {condition}", doing=doing)

    def record(self, entry: LedgerEntry) -> None:
        ledger, doing = self._own("ledger"), "the ledger cannot be written"
        with self._session.transaction():
            self._session.execute(f"INSERT INTO {ledger} VALUES ($1, $2)", [entry.batch, entry.record], doing)
            self._session.execute(f"DELETE FROM {ledger} WHERE batch <= {entry.batch - KEPT_ENTRIES:d}", doing=doing)

    def last_entry(self) -> LedgerEntry | None:
        sql = f"SELECT batch, record FROM {self._own('ledger')} ORDER BY batch DESC LIMIT 1"
        rows = self._session.fetch(sql, doing="the ledger cannot be read").to_pylist()
        return LedgerEntry(rows[0]["batch"], rows[0]["record"]) if rows else None

    def fill(self, name: str, rows: pa.Table) -> None:
        """An unlogged table of the deployment's, under a name that lives as long as the session.

        Not a temporary one: of those PostgreSQL's parallel workers see nothing, and a query that joins a window with
        one runs in one process. Autovacuum comes too late for its statistics.
        """
        doing, table = f"{rows.num_rows} rows cannot be shipped into {name}", self._own(filled_name(name))
        with self._session.transaction():
            if self._filled.get(name) == rows.schema:
                self._session.execute(f"TRUNCATE {table}", doing=doing)
            else:
                columns = ", ".join(f"{quoted(f.name)} {sql_type(f.type, 'postgres')}" for f in rows.schema)
                self._make_schema()
                self._session.execute(f"DROP TABLE IF EXISTS {table} CASCADE", doing=doing)
                self._session.execute(f"CREATE UNLOGGED TABLE {table} ({columns})", doing=doing)
                self._session.execute(f"CREATE TEMP VIEW {quoted(name)} AS SELECT * FROM {table}", doing=doing)
            self._session.copy(filled_name(name), rows, doing)
            self._session.execute(f"ANALYZE {table}", doing=doing)
        self._filled[name] = rows.schema

    def reach(self, panes: Panes, first: datetime, until: datetime) -> None:
        self._panes.reach(panes, first, until)

    def _make_panes(self, panes: Panes, since: datetime, until: datetime) -> None:
        """An unlogged table: parallel workers can read it, and after a crash it is made anew. Like a store's, its
        index tells the planner which times there are."""
        table, doing = self._own(panes.name), f"{panes.name} cannot be made"
        with self._session.transaction():
            self._session.execute(f"DROP TABLE IF EXISTS {table}", doing=doing)
            self._session.execute(f"SET LOCAL work_mem TO '{_PANES_MEMORY}'")
            numbered, ordered = positional(panes.sql, {"since": since, "until": until})
            made = f"CREATE UNLOGGED TABLE {table} WITH ({_QUICK_REUSE}) AS {numbered}"
            self._session.execute(made, ordered, doing)
            self._session.execute(f"CREATE INDEX ON {table} (_pane)", doing=doing)
            self._session.execute(f"ANALYZE {table}", doing=doing)

    def _add_panes(self, panes: Panes, since: datetime, until: datetime) -> None:
        numbered, ordered = positional(panes.sql, {"since": since, "until": until})
        doing = f"{panes.name} cannot be continued"
        self._session.execute(f"INSERT INTO {self._own(panes.name)} {numbered}", ordered, doing)

    def _drop_panes(self, panes: Panes, before: datetime) -> None:
        condition = f"_pane < TIMESTAMP '{before.isoformat(sep=' ')}'"
        self._session.execute(f"DELETE FROM {self._own(panes.name)} WHERE {condition}", doing="old panes cannot go")

    def query(self, sql: str, values: Mapping[str, Value], schema: pa.Schema) -> pa.Table:
        numbered, ordered = positional(sql, values)
        own = [f"c{i}" for i in range(len(schema))]
        types = [sql_type(field.type, "postgres") for field in schema]
        casts = ", ".join(f"CAST({column} AS {words}) AS {column}" for column, words in zip(own, types, strict=True))
        found = self._session.fetch(f"SELECT {casts} FROM ({numbered}\n) AS q ({', '.join(own)})", ordered)
        return _typed(found, schema)

    def attach(self, table: Table) -> None:
        if table.name in self._attached:
            return
        match table.options.get("connector", "postgres"):
            case "postgres":
                self._attach_table(table)
            case "files":
                self._attach_files(table)
            case other:
                raise DatabaseError(
                    f"table {table.name}: connector {other!r} is not readable from PostgreSQL; "
                    "known are postgres and files"
                )
        self._attached.add(table.name)

    def _attach_table(self, table: Table) -> None:
        """A view with the catalog's names and types; what it reads is read at the tick."""
        if table.options.get("url", self.url) != self.url:
            raise DatabaseError(
                f"table {table.name} is in another PostgreSQL than the window stores (at {self._session.place}); "
                "run the query with that one as its database, or copy the table to files"
            )
        options = {key: str(value) for key, value in table.options.items()}
        origin = f"{quoted(options.get('schema', 'public'))}.{quoted(options.get('table', table.name))}"
        casts = (
            f"CAST({quoted(f.name)} AS {sql_type(f.type, 'postgres')}) AS {quoted(f.name)}" for f in _schema(table)
        )
        with self._session.transaction():
            self._make_schema()
            self.view(table.name, f"SELECT {', '.join(casts)} FROM {origin}")

    def _attach_files(self, table: Table) -> None:
        """A copy of what the files hold now."""
        rows = _read_files(table)
        doing = f"table {table.name} cannot be copied from {table.options['path']}"
        with self._session.transaction():
            self._make_schema()
            if not self._make(table.name, rows.schema, key=table.primary_key):
                self._session.execute(f"TRUNCATE {self._own(table.name)}", doing=doing)
            self._session.copy(table.name, rows, doing)
            self._session.execute(f"ANALYZE {self._own(table.name)}", doing=doing)

    def read_table(self, table: Table, columns: tuple[str, ...]) -> pa.Table:
        self.attach(table)
        schema = pa.schema([_schema(table).field(column) for column in columns])
        return self.query(f"SELECT {', '.join(map(quoted, columns))} FROM {self._own(table.name)}", {}, schema)

    def size(self, store: Store) -> StoreSize:
        table = self._own(store.name)
        found = self._session.fetch(
            f"SELECT count(*) AS n, pg_total_relation_size($1::regclass) AS b FROM {table}", [table]
        )
        return StoreSize(found.column(0)[0].as_py(), found.column(1)[0].as_py())

    def settle(self, store: Store) -> None:
        """Autovacuum gets there within a minute or so."""
        self._session.execute(f"VACUUM (FREEZE, ANALYZE) {self._own(store.name)}")

    def interrupt(self) -> None:
        self._session.interrupt()

    def drop(self) -> None:
        self._session.execute(f"DROP SCHEMA IF EXISTS {quoted(self.schema)} CASCADE")
        self._forget()

    def close(self) -> None:
        self._session.close()

    def _own(self, table: str) -> str:
        return f"{quoted(self.schema)}.{quoted(table)}"


def staging_name(store: Store) -> str:
    return f"staged_{store.name}"


def filled_name(name: str) -> str:
    return f"filled_{name}"


def _server_type(words: str) -> str:
    """As `format_type` has it.

    >>> _server_type("DECIMAL(10, 2)"), _server_type("INT")
    ('numeric(10,2)', 'integer')
    """
    return _SERVER_WORDS.get(words, words.lower().replace(", ", ",").replace("decimal", "numeric"))


def _listed(columns: list[tuple[str, str]]) -> str:
    return ", ".join(f"{column} {words}" for column, words in columns)


def _schema(table: Table) -> pa.Schema:
    return pa.schema([(column.name, arrow_type(column.type)) for column in table.columns])


def _typed(found: pa.Table, schema: pa.Schema) -> pa.Table:
    """The driver has no Arrow type for NUMERIC, which comes as text, and PostgreSQL none for a byte."""
    columns = []
    for column, field in zip(found.columns, schema, strict=True):
        if isinstance(column.type, pa.BaseExtensionType):
            column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except pa.ArrowInvalid as error:
            raise DatabaseError(f"a result does not fit its type: {field.name}: {error}") from None
    return pa.table(columns, schema=schema)


def _read_files(table: Table) -> pa.Table:
    path, form = str(table.options.get("path", "")), str(table.options.get("format", "parquet"))
    if not path:
        raise DatabaseError(f"table {table.name}: connector 'files' needs path = 'directory or file'")
    if form not in ("parquet", "csv", "json"):
        raise DatabaseError(f"table {table.name}: format is parquet, csv or json, found {form!r}")
    schema = _schema(table)
    # Nothing between two commas is NULL, a pair of quotes is the empty text.
    nulls = pyarrow.csv.ConvertOptions(null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False)
    reader = pyarrow.dataset.CsvFileFormat(convert_options=nulls) if form == "csv" else form
    try:
        there = pyarrow.dataset.dataset(path, format=reader).schema.names
        if missing := [column for column in schema.names if column not in there]:
            raise SchemaMismatch(
                f"table {table.name} has no column {', '.join(missing)} in {path}; it has {', '.join(there)}"
            )
        return pyarrow.dataset.dataset(path, schema=schema, format=reader).to_table()
    except (OSError, pa.ArrowException) as error:
        raise DatabaseError(f"table {table.name} cannot be read from {path}: {error}") from None
