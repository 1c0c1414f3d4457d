"""DuckDB in the driver's process: a file beside the checkpoint (durable), or memory (not durable, and said so).

The window store is one plain table per stream and selection. DuckDB gives deleted rows back as long as each batch is
one transaction, so eviction is a DELETE and memory and file stay flat. Three settings are for speed, measured with CQ1
over a window of 15 million tuples: uncompressed columns, which live for minutes only, scan twice as fast; groups of a
few small keys are found by their position instead of a hash up to 2^16 of them, which takes a third off; and keys are
not packed into smaller types on the way to a group, which would cost 7%.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
from sqlglot import exp

from connectors.database import DatabaseError, LedgerEntry, Panes, SchemaMismatch, Store, StoreSize, Value
from connectors.pane_spans import PaneSpans
from connectors.types import sql_type
from optimizer.catalog import Table

KEPT_ENTRIES = 8
_SETTINGS = (
    "SET ieee_floating_point_ops = false",  # x / 0 is NULL, as everywhere in Penstock
    "SET error_on_division_by_zero = false",
    "SET TimeZone = 'UTC'",
    "SET perfect_ht_threshold = 16",
    "SET force_compression = 'uncompressed'",
    "SET disabled_optimizers = 'compressed_materialization'",
)


class DuckDb:
    name = "duckdb"
    dialect = "duckdb"

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.durable = path is not None
        self._attached: set[str] = set()
        self._panes = PaneSpans(self._make_panes, self._add_panes, self._drop_panes)
        with self._failing(f"DuckDB cannot open {path}"):
            self._connection = duckdb.connect(str(path) if path else ":memory:")
            for setting in _SETTINGS:
                self._connection.execute(setting)

    def prepare(self, stores: tuple[Store, ...]) -> None:
        with self._failing("the window stores cannot be made"):
            self._connection.execute("CREATE TABLE IF NOT EXISTS ledger (batch BIGINT PRIMARY KEY, record TEXT)")
            for store in stores:
                columns = ", ".join(f"{_name(f.name)} {sql_type(f.type, 'duckdb')}" for f in store.schema)
                self._connection.execute(f"CREATE TABLE IF NOT EXISTS {_name(store.name)} ({columns})")
                self._check(store)

    def _check(self, store: Store) -> None:
        there = self._connection.execute(f"DESCRIBE {_name(store.name)}").fetchall()
        found = [(row[0], row[1]) for row in there]
        wanted = [(f.name, _duckdb_type(sql_type(f.type, "duckdb"))) for f in store.schema]
        if found != wanted:
            raise SchemaMismatch(
                f"window store {store.name} in {self.path} has columns {_columns(found)}, "
                f"the plan needs {_columns(wanted)}; run with a fresh state directory"
            )

    def view(self, name: str, sql: str) -> None:
        with self._failing(f"view {name} cannot be made"):
            self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {_name(name)} AS {sql}")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._failing("the batch cannot be stored"):
            self._connection.execute("BEGIN")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                self._rollback()
                raise

    def _rollback(self) -> None:
        with suppress(duckdb.Error):  # a failed commit has rolled back already
            self._connection.execute("ROLLBACK")

    def append(self, store: Store, rows: pa.Table) -> None:
        columns = ", ".join(_name(name) for name in store.schema.names)
        with self._arriving(store, rows):
            self._connection.execute(f"INSERT INTO {_name(store.name)} SELECT {columns} FROM arrivals")

    def repeat(self, store: Store, rows: pa.Table, earlier: Sequence[timedelta]) -> None:
        time = _name(store.time_column)
        columns = (f"{time} - $by" if n == store.time_column else _name(n) for n in store.schema.names)
        statement = f"INSERT INTO {_name(store.name)} SELECT {', '.join(columns)} FROM arrivals"
        with self._arriving(store, rows):
            for by in earlier:
                self._connection.execute(statement, {"by": by})

    @contextmanager
    def _arriving(self, store: Store, rows: pa.Table) -> Iterator[None]:
        """New tuples as the table `arrivals`."""
        with self._failing(f"{rows.num_rows} tuples cannot be stored in {store.name}"):
            self._connection.register("arrivals", rows)
            try:
                yield
            finally:
                self._connection.unregister("arrivals")

    def evict(self, store: Store, before: datetime) -> int:
        with self._failing(f"old tuples of {store.name} cannot be dropped"):
            sql = f"DELETE FROM {_name(store.name)} WHERE {_name(store.time_column)} < ?"
            ((count,),) = self._connection.execute(sql, [before]).fetchall()
            return int(count)

    def record(self, entry: LedgerEntry) -> None:
        with self._failing("the ledger cannot be written"):
            self._connection.execute("INSERT INTO ledger VALUES (?, ?)", [entry.batch, entry.record])
            self._connection.execute("DELETE FROM ledger WHERE batch <= ?", [entry.batch - KEPT_ENTRIES])

    def last_entry(self) -> LedgerEntry | None:
        with self._failing("the ledger cannot be read"):
            rows = self._connection.execute("SELECT batch, record FROM ledger ORDER BY batch DESC LIMIT 1").fetchall()
        return LedgerEntry(*rows[0]) if rows else None

    def fill(self, name: str, rows: pa.Table) -> None:
        self._connection.register(name, rows)

    def reach(self, panes: Panes, first: datetime, until: datetime) -> None:
        with self._failing(f"{panes.name} cannot be kept"):
            self._panes.reach(panes, first, until)

    def _make_panes(self, panes: Panes, since: datetime, until: datetime) -> None:
        given = {"since": since, "until": until}
        self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {_name(panes.name)} AS {panes.sql}", given)

    def _add_panes(self, panes: Panes, since: datetime, until: datetime) -> None:
        given = {"since": since, "until": until}
        self._connection.execute(f"INSERT INTO {_name(panes.name)} {panes.sql}", given)

    def _drop_panes(self, panes: Panes, before: datetime) -> None:
        self._connection.execute(f"DELETE FROM {_name(panes.name)} WHERE _pane < ?", [before])

    def query(self, sql: str, values: Mapping[str, Value], schema: pa.Schema) -> pa.Table:
        with self._failing("a query failed"):
            found = self._connection.sql(sql, params=dict(values)).to_arrow_table()
        columns = []
        for column, field in zip(found.columns, schema, strict=True):
            try:
                columns.append(column.cast(field.type))
            except pa.ArrowInvalid as error:
                raise DatabaseError(f"a result does not fit its type: {field.name} ({field.type}): {error}") from None
        return pa.table(columns, schema=schema)

    def attach(self, table: Table) -> None:
        """A table of another DuckDB file, or a file, becomes a view; it is read at each tick."""
        if table.name in self._attached:
            return
        with self._failing(f"table {table.name} cannot be read"):
            self.view(table.name, self._origin(table))
            wanted = [c.name for c in table.columns]
            there = [row[0] for row in self._connection.execute(f"DESCRIBE {_name(table.name)}").fetchall()]
        missing = [name for name in wanted if name not in there]
        if missing:
            raise SchemaMismatch(
                f"table {table.name} has no column {', '.join(missing)}; it has {', '.join(there)}: correct the catalog"
            )
        self._attached.add(table.name)

    def _origin(self, table: Table) -> str:
        options = {key: str(value) for key, value in table.options.items()}
        match options.get("connector"):
            case "duckdb":
                if not (path := options.get("path")):
                    raise DatabaseError(f"table {table.name}: connector 'duckdb' needs path = 'file.duckdb'")
                if not Path(path).exists():
                    raise DatabaseError(f"table {table.name}: there is no file {path}")
                catalog = f"of_{table.name}"
                attach = f"ATTACH IF NOT EXISTS {_text(path)} AS {_name(catalog)} (READ_ONLY)"
                self._connection.execute(attach)
                return f"SELECT * FROM {_name(catalog)}.{_name(options.get('table', table.name))}"
            case "files":
                if not (path := options.get("path")):
                    raise DatabaseError(f"table {table.name}: connector 'files' needs path = 'directory or file'")
                form = options.get("format", "parquet")
                if form not in ("parquet", "csv", "json"):
                    raise DatabaseError(f"table {table.name}: format is parquet, csv or json, found {form!r}")
                return f"SELECT * FROM read_{form}({_text(_pattern(path, form))})"
            case other:
                raise DatabaseError(
                    f"table {table.name}: connector {other!r} is not readable from DuckDB; known are duckdb and files"
                )

    def read_table(self, table: Table, columns: tuple[str, ...]) -> pa.Table:
        self.attach(table)
        with self._failing(f"table {table.name} cannot be read"):
            chosen = ", ".join(_name(c) for c in columns)
            return self._connection.sql(f"SELECT {chosen} FROM {_name(table.name)}").to_arrow_table()

    def size(self, store: Store) -> StoreSize:
        ((rows,),) = self._connection.execute(f"SELECT count(*) FROM {_name(store.name)}").fetchall()
        wal = Path(f"{self.path}.wal")
        files = [p.stat().st_size for p in (self.path, wal) if p is not None and p.exists()]
        return StoreSize(int(rows), sum(files))

    def settle(self, store: Store) -> None:
        """Nothing to do: statistics are kept as tuples come in."""

    def interrupt(self) -> None:
        self._connection.interrupt()

    def reconnect(self) -> None:
        """Nothing to do: the database is in this process."""

    def drop(self) -> None:
        self.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)
            Path(f"{self.path}.wal").unlink(missing_ok=True)

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        try:
            yield
        except duckdb.Error as error:
            raise DatabaseError(f"{what}: {_cause(error)}") from error


def _cause(error: duckdb.Error) -> str:
    text = str(error).split("\n")[0]
    if isinstance(error, duckdb.IOException) and "lock" in text:
        return f"another process has it open ({text})"
    if "No space left" in text:
        return f"the disk is full ({text})"
    return text


def _pattern(path: str, form: str) -> str:
    return f"{path}/**/*.{form}" if Path(path).is_dir() else path


def _name(identifier: str) -> str:
    return exp.to_identifier(identifier, quoted=True).sql(dialect="duckdb")


def _text(value: str) -> str:
    return exp.Literal.string(value).sql(dialect="duckdb")


def _duckdb_type(words: str) -> str:
    return {"TEXT": "VARCHAR", "INT": "INTEGER", "REAL": "FLOAT", "TIMESTAMPTZ": "TIMESTAMP WITH TIME ZONE"}.get(
        words, words.replace(", ", ",")
    )


def _columns(pairs: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in pairs)
