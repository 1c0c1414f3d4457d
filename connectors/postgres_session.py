"""One connection to PostgreSQL through ADBC: statements in, Arrow out, errors in words.

A session is used by one thread at a time. Whatever the driver raises leaves as a DatabaseError; as a
DatabaseUnavailable where the same transaction may succeed on a new connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from urllib.parse import parse_qs, urlsplit

import adbc_driver_manager
import pyarrow as pa
from adbc_driver_postgresql import dbapi
from sqlglot import exp

from connectors.database import DatabaseError, DatabaseUnavailable, Value

URL_FORM = "postgresql://user:password@host:5432/database, with @ : / ? # in a password percent-encoded"
_DEFAULTS = {
    "connect_timeout": "5",
    # A peer that is gone without a word is noticed within half a minute.
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "application_name": "penstock",
}
# What another try at connecting does not change.
_FINAL = re.compile(
    r"authentication failed|no password supplied|does not exist|pg_hba\.conf|permission denied|invalid|missing", re.I
)
# Connection lost, server starting or stopping, too many connections, deadlock or serialization failure.
_PASSING = ("08", "40", "57P", "53300")
_MESSAGE = re.compile(r"(?:ERROR|FATAL|PANIC):\s+(.*)", re.S)
_AFTER_MESSAGE = re.compile(r"\s*(?:\nLINE \d|\n\s*Query was:|\nCONTEXT:|\.?\s*SQLSTATE:).*", re.S)
# Strings and quoted names are matched as a whole, so that what looks like a parameter inside them stays as it is.
_PARAMETER = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\$([A-Za-z_]\w*)""")


class Session:
    def __init__(self, url: str, schema: str, settings: Mapping[str, str] | None = None) -> None:
        """`settings` are the server's own, for this session."""
        self.place = place_of(url)
        self._settings = {"TimeZone": "UTC", "client_min_messages": "warning", **(settings or {})}
        self._url = with_defaults(url)
        self._schema = schema
        self._inside = False
        self._connection: dbapi.Connection | None = None
        self._open()

    @property
    def _live(self) -> dbapi.Connection:
        if self._connection is None:
            raise DatabaseUnavailable(f"there is no connection to PostgreSQL at {self.place}")
        return self._connection

    def _open(self) -> None:
        try:
            self._connection = dbapi.connect(self._url, autocommit=True)
        except dbapi.Error as error:
            cause = server_message(error)
            if _FINAL.search(cause):
                raise DatabaseError(f"PostgreSQL at {self.place} refuses the connection: {cause}") from None
            raise DatabaseUnavailable(f"PostgreSQL at {self.place} cannot be reached: {cause}") from None
        for name, value in self._settings.items():  # libpq prints messages below a warning
            self.execute(f"SET {quoted(name)} TO '{value}'")
        self.execute(f"SET search_path TO {quoted(self._schema)}, public")

    def reconnect(self) -> None:
        self.close()
        self._open()

    def interrupt(self) -> None:
        """From another thread. Nothing in flight, or nothing to reach it by, is nothing to do."""
        with suppress(dbapi.Error):
            if self._connection is not None:
                self._connection.adbc_cancel()

    def close(self) -> None:
        self._inside = False
        with suppress(dbapi.Error):
            if self._connection is not None:
                self._connection.close()
        self._connection = None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Committed together or not at all; inside another transaction it is part of that one."""
        if self._inside:
            yield
            return
        connection = self._live.adbc_connection
        with self._translated("a transaction cannot be started"):
            connection.set_autocommit(False)
        self._inside = True
        try:
            yield
            with self._translated("a transaction cannot be committed"):
                connection.commit()
        except BaseException:
            with suppress(dbapi.Error):  # on a lost connection there is nothing left to undo
                connection.rollback()
            raise
        finally:
            self._inside = False
            with suppress(dbapi.Error):
                connection.set_autocommit(True)

    def execute(self, sql: str, values: Sequence[object] = (), doing: str = "a statement failed") -> int:
        """The number of rows it touched; not known (-1) where values are given."""
        with self._translated(doing), self._live.cursor() as cursor:
            cursor.execute(sql, tuple(values) or None)
            return int(cursor.rowcount)

    def fetch(self, sql: str, values: Sequence[object] = (), doing: str = "a query failed") -> pa.Table:
        with self._translated(doing), self._live.cursor() as cursor:
            cursor.execute(sql, tuple(values) or None)
            return cursor.fetch_arrow_table()

    def copy(self, table: str, rows: pa.Table, doing: str) -> None:
        """Rows into a table that is there, by COPY."""
        with self._translated(doing), self._live.cursor() as cursor:
            cursor.adbc_ingest(table, rows, mode="append", db_schema_name=self._schema)

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        try:
            yield
        except dbapi.Error as error:
            cause, state = server_message(error), error.sqlstate or ""
            # Without a state the server did not speak: the connection broke.
            silent = not state and error.status_code == adbc_driver_manager.AdbcStatusCode.IO
            if silent or state.startswith(_PASSING):
                raise DatabaseUnavailable(f"PostgreSQL at {self.place}: {doing}: {cause}") from None
            raise DatabaseError(f"PostgreSQL at {self.place}: {doing}: {cause}") from None


def quoted(identifier: str) -> str:
    return exp.to_identifier(identifier, quoted=True).sql(dialect="postgres")


def place_of(url: str) -> str:
    """Host, port and database, without the user's secrets.

    >>> place_of("postgresql://ann:secret@db.example:5433/plugs")
    'db.example:5433/plugs'
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise DatabaseError(f"the URL of PostgreSQL cannot be read; write {URL_FORM}") from None
    if parts.scheme not in ("postgresql", "postgres") or parts.netloc.count("@") > 1:
        raise DatabaseError(f"the URL of PostgreSQL cannot be read; write {URL_FORM}")
    options = parse_qs(parts.query)
    host = host or options.get("host", ["localhost"])[0]
    return f"{host}:{port or options.get('port', ['5432'])[0]}{parts.path}"


def with_defaults(url: str) -> str:
    """
    >>> with_defaults("postgresql:///a?connect_timeout=1").split("&")[:2]
    ['postgresql:///a?connect_timeout=1', 'keepalives_idle=10']
    """
    given = parse_qs(urlsplit(url).query)
    more = "&".join(f"{key}={value}" for key, value in _DEFAULTS.items() if key not in given)
    return url + ("&" if given else "?") + more


def server_message(error: Exception) -> str:
    """What the server said, without the driver's frame and the text of the query."""
    text = str(error)
    found = _MESSAGE.search(text)
    cause = found[1] if found else text.split("[libpq] ")[-1].removeprefix("Failed to connect: ")
    return " ".join(_AFTER_MESSAGE.sub("", cause).split())


def positional(sql: str, values: Mapping[str, Value]) -> tuple[str, list[Value]]:
    """`$name` to `$1`, and the values in that order.

    >>> positional('SELECT \\'$a\\', "$a", $b, $a + $b', {"a": 1, "b": 2})
    ('SELECT \\'$a\\', "$a", $1, $2 + $1', [2, 1])
    """
    order: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return f"${order.setdefault(match[1], len(order) + 1)}" if match[1] else match[0]

    return _PARAMETER.sub(number, sql), [values[key] for key in order]
