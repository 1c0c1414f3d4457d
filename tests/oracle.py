"""The oracle of the design's section 3: the original SQL, its windows as filters on the recorded stream, run by DuckDB.

Nothing of the optimizer is imported: windows are found in sqlglot's plain tokens and replaced in the text. A stream is
a table of its tuples in order of arrival, so `rowid` is the arrival order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import duckdb
from sqlglot.tokens import Token, Tokenizer

EPOCH = datetime(1970, 1, 1)
_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
}
_STARTS_NO_ALIAS = {"WHERE", "GROUP", "JOIN", "LEFT", "RIGHT", "INNER", "CROSS", "ON", "USING", "HAVING", "ORDER"}
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Piece:
    """A stretch of the text, and what stands there at a tick."""

    start: int
    end: int
    at: Callable[[datetime], str]


def run(connection: duckdb.DuckDBPyConnection, sql: str, times: Mapping[str, str], tick: datetime) -> list[Row]:
    """The rows of a query at a tick; `times` names the time column of every stream."""
    return connection.sql(plain_sql(sql, times, tick)).fetchall()


def columns(connection: duckdb.DuckDBPyConnection, sql: str, times: Mapping[str, str], tick: datetime) -> list[str]:
    return list(connection.sql(plain_sql(sql, times, tick)).columns)


def plain_sql(sql: str, times: Mapping[str, str], tick: datetime) -> str:
    """
    >>> plain_sql("SELECT * FROM s [RANGE 5 SECONDS SLIDE 2 SECONDS]", {"s": "ts"}, datetime(1970, 1, 1, 0, 0, 9))
    ... # doctest: +NORMALIZE_WHITESPACE
    "SELECT * FROM (SELECT * FROM s WHERE ts >= TIMESTAMP '1970-01-01 00:00:03' AND
    ts < TIMESTAMP '1970-01-01 00:00:08') AS s"
    """
    result, end = [], 0
    for piece in sorted(pieces(sql, times), key=lambda p: p.start):
        result += [sql[end : piece.start], piece.at(tick)]
        end = piece.end
    return "".join([*result, sql[end:]])


def pieces(sql: str, times: Mapping[str, str]) -> list[Piece]:
    tokens = Tokenizer().tokenize(sql)
    found: list[Piece] = []
    spark = _spark(sql, tokens)
    i = 0
    while i < len(tokens):
        word, after = tokens[i].text.upper(), tokens[i + 1].text if i + 1 < len(tokens) else ""
        if word in ("RSTREAM", "ISTREAM", "DSTREAM"):
            found.append(Piece(tokens[i].start, tokens[i].end + 1, lambda _: ""))
        elif word == "TABLE" and after == "(":  # FROM TABLE(HOP(…))
            close = _closing(tokens, i + 1)
            found += [Piece(t.start, t.end + 1, lambda _: "") for t in (tokens[i], tokens[i + 1], tokens[close])]
            inner, _ = _hop(sql, tokens, i + 2, _alias(tokens, close + 1, ""))
            found.append(inner)
            i = close
        elif word in ("HOP", "TUMBLE") and after == "(":
            piece, i = _hop(sql, tokens, i, None)
            found.append(piece)
        elif tokens[i].text.lower() in times and after == "[":
            piece, i = _bracket(sql, tokens, i, times)
            found.append(piece)
        elif spark and tokens[i].text.lower() in times and _in_from(tokens, i):
            stream, (size, slide) = tokens[i].text, spark
            alias = _alias(tokens, i + 1, f" AS {stream}")
            text = _windowed(
                stream, times[stream.lower()], size, slide, "{{'start': {first}, 'end': {last}}} AS \"window\""
            )
            found.append(Piece(tokens[i].start, tokens[i].end + 1, lambda t, f=text, a=alias: f(t) + a))
        elif word == "WINDOW" and after == "(":
            close = _closing(tokens, i + 1)
            found.append(Piece(tokens[i].start, tokens[close].end + 1, lambda _: '"window"'))
            i = close
        elif word == "WINDOW" and after == ".":
            field = tokens[i + 2]
            text_ = f'"window"."{field.text.lower()}"'
            found.append(Piece(tokens[i].start, field.end + 1, lambda _, s=text_: s))
            i += 2
        i += 1
    return found


def _spark(sql: str, tokens: list[Token]) -> tuple[int, int] | None:
    """Size and slide of `window(ts, '5 minutes', '1 second')`."""
    for i, token in enumerate(tokens[:-1]):
        if token.text.upper() == "WINDOW" and tokens[i + 1].text == "(":
            arguments = _arguments(sql, tokens, i + 1)
            lengths = [_microseconds(a) for a in arguments[1:]]
            return lengths[0], lengths[-1]
    return None


def _in_from(tokens: list[Token], i: int) -> bool:
    before = tokens[i - 1].text.upper()
    return before in ("FROM", "JOIN", ",")


def _bracket(sql: str, tokens: list[Token], i: int, times: Mapping[str, str]) -> tuple[Piece, int]:
    stream = tokens[i].text.lower()
    close = next(j for j in range(i, len(tokens)) if tokens[j].text == "]")
    inside = sql[tokens[i + 1].end + 1 : tokens[close].start]
    kind, size, slide = re.fullmatch(r"(?is)\s*(RANGE|ROWS)\s+(.*?)(?:\s+SLIDE\s+(.*?))?\s*", inside).groups()  # type: ignore[union-attr]
    alias = _alias(tokens, close + 1, f" AS {stream}")
    if kind.upper() == "ROWS":
        text = _last_rows(stream, times[stream], int(size), int(slide or 1))
    else:
        text = _windowed(stream, times[stream], _microseconds(size), _microseconds(slide) if slide else None)
    return Piece(tokens[i].start, tokens[close].end + 1, lambda t: text(t) + alias), close


def _hop(sql: str, tokens: list[Token], i: int, alias: str | None) -> tuple[Piece, int]:
    arguments = _arguments(sql, tokens, i + 1)
    close = _closing(tokens, i + 1)
    stream = re.sub(r"(?i)^TABLE\s+", "", arguments[0])
    column = re.sub(r"(?i)^DESCRIPTOR\s*\(\s*(\w+)\s*\)$", r"\1", arguments[1])
    lengths = [_microseconds(a) for a in arguments[2:]]
    text = _windowed(stream, column, lengths[-1], lengths[0], "{first} AS window_start, {last} AS window_end")
    name = _alias(tokens, close + 1, f" AS {stream}") if alias is None else alias or f" AS {stream}"
    return Piece(tokens[i].start, tokens[close].end + 1, lambda t: text(t) + name), close


def _arguments(sql: str, tokens: list[Token], opening: int) -> list[str]:
    close, depth, start, result = _closing(tokens, opening), 0, tokens[opening].end + 1, []
    for token in tokens[opening + 1 : close]:
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if token.text == "," and depth == 0:
            result.append(sql[start : token.start].strip())
            start = token.end + 1
    return [*result, sql[start : tokens[close].start].strip()]


def _closing(tokens: list[Token], opening: int) -> int:
    depth = 0
    for i in range(opening, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[i].text, 0)
        if depth == 0:
            return i
    raise ValueError("a parenthesis is not closed")


def _alias(tokens: list[Token], i: int, otherwise: str) -> str:
    """Nothing where the text goes on with an alias."""
    if i < len(tokens):
        word = tokens[i].text.upper()
        if word == "AS" or (re.fullmatch(r"[A-Z_]\w*", word) and word not in _STARTS_NO_ALIAS):
            return ""
    return otherwise


def _windowed(
    stream: str, column: str, size: int, slide: int | None, more: str | None = None
) -> Callable[[datetime], str]:
    def at(tick: datetime) -> str:
        now = (tick - EPOCH) // timedelta(microseconds=1)
        last = now // slide * slide if slide else now
        first, after = _stamp(last - size), _stamp(last)
        extra = ", " + more.format(first=first, last=after) if more else ""
        return f"(SELECT *{extra} FROM {stream} WHERE {column} >= {first} AND {column} < {after})"

    return at


def _last_rows(stream: str, column: str, size: int, slide: int) -> Callable[[datetime], str]:
    def at(tick: datetime) -> str:
        seen = f"{stream} WHERE {column} < {_stamp((tick - EPOCH) // timedelta(microseconds=1))}"
        counted = f"SELECT rowid AS i, row_number() OVER (ORDER BY {column}, rowid) AS n FROM {seen}"
        last = f"(SELECT count(*) // {slide} * {slide} FROM {seen})"
        kept = f"SELECT i FROM ({counted}) WHERE n <= {last} AND n > {last} - {size}"
        return f"(SELECT * FROM {stream} WHERE rowid IN ({kept}))"

    return at


def _stamp(microseconds: int) -> str:
    return f"TIMESTAMP '{EPOCH + timedelta(microseconds=microseconds)}'"


def _microseconds(words: str) -> int:
    """`5 MINUTES`, `'5 minutes'`, `INTERVAL '5' MINUTE`."""
    amount, unit = re.sub(r"(?i)interval|'", " ", words).split()
    return round(float(amount) * _UNITS[unit.lower().removesuffix("s")])
