"""Recorded streams with NULLs and duplicates, and random continuous queries over them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

import duckdb

START = datetime(2024, 5, 1, 12, 0, 0)
CATALOG = """
CREATE STREAM s (ts TIMESTAMP NOT NULL, k INT, g INT, v DOUBLE, n BIGINT, name VARCHAR, WATERMARK FOR ts AS ts)
  WITH (rate = 2000);
CREATE STREAM r (ts TIMESTAMP NOT NULL, k INT, g INT, w DOUBLE, m INT, WATERMARK FOR ts AS ts) WITH (rate = 500);
CREATE STREAM plugs (id BIGINT NOT NULL, ts TIMESTAMP NOT NULL, value DOUBLE, property INT NOT NULL,
  plug_id INT NOT NULL, household_id INT NOT NULL, house_id INT NOT NULL, WATERMARK FOR ts AS ts) WITH (rate = 2000);
CREATE TABLE d (k INT PRIMARY KEY, label VARCHAR, grp INT, factor DOUBLE) WITH (rows = 5);
CREATE TABLE e (grp INT PRIMARY KEY, title VARCHAR, h INT) WITH (rows = 3);
CREATE STATISTICS ON s (k) WITH (distinct = 5);
CREATE STATISTICS ON s (g) WITH (distinct = 3);
CREATE STATISTICS ON s (v) WITH (distinct = 20);
CREATE STATISTICS ON s (n) WITH (distinct = 9);
CREATE STATISTICS ON r (k) WITH (distinct = 5);
CREATE STATISTICS ON r (g) WITH (distinct = 3);
CREATE STATISTICS ON r (w) WITH (distinct = 20);
CREATE STATISTICS ON r (m) WITH (distinct = 4);
CREATE STATISTICS ON plugs (house_id, household_id, plug_id) WITH (distinct = 12);
CREATE STATISTICS ON plugs (property) WITH (distinct = 2);
"""
TIMES = {"s": "ts", "r": "ts", "plugs": "ts"}
TABLES = {
    "s": "ts TIMESTAMP, k INT, g INT, v DOUBLE, n BIGINT, name VARCHAR",
    "r": "ts TIMESTAMP, k INT, g INT, w DOUBLE, m INT",
    "plugs": "id BIGINT, ts TIMESTAMP, value DOUBLE, property INT, plug_id INT, household_id INT, house_id INT",
    "d": "k INT, label VARCHAR, grp INT, factor DOUBLE",
    "e": "grp INT, title VARCHAR, h INT",
}


def record(seed: int = 7) -> duckdb.DuckDBPyConnection:
    """A database with twenty seconds of every stream in order of arrival, nothing from second 12 to 16."""
    random = Random(seed)
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    # x / 0 and x % 0 are NULL in Penstock's dialect, whatever an engine does by default.
    connection.execute("SET ieee_floating_point_ops = false; SET error_on_division_by_zero = false")
    for name, columns in TABLES.items():
        connection.execute(f"CREATE TABLE {name} ({columns})")

    def often_null(value: object, share: float = 0.15) -> object:
        return None if random.random() < share else value

    def stamps(count: int) -> list[datetime]:
        # Whole and half seconds, so that tuples stand on the borders of windows; some at the same instant.
        choices = [i / 4 for i in range(80) if not 48 <= i < 64]
        return sorted(START + timedelta(seconds=random.choice(choices)) for _ in range(count))

    # Values are multiples of a quarter: sums are exact in any order.
    for ts in stamps(90):
        row = (ts, often_null(random.randrange(5)), often_null(random.randrange(3)), often_null(_quarters(random)))
        text = often_null(random.choice(["a", "bb", "Ab", ""]))
        connection.execute("INSERT INTO s VALUES (?,?,?,?,?,?)", [*row, often_null(random.randrange(-3, 6)), text])
    for ts in stamps(45):
        row = (ts, often_null(random.randrange(5)), often_null(random.randrange(3)), often_null(_quarters(random)))
        connection.execute("INSERT INTO r VALUES (?,?,?,?,?)", [*row, often_null(random.randrange(4))])
    for i, ts in enumerate(stamps(120)):
        keys = [random.randrange(2), random.randrange(2), random.randrange(2)]
        row = (i, ts, often_null(random.randrange(400) / 4), random.randrange(2))
        connection.execute("INSERT INTO plugs VALUES (?,?,?,?,?,?,?)", [*row, *keys])
    for k, label, grp, factor in ((0, "x", 0, 1.5), (1, "y", 1, None), (2, "x", None, 0.0), (3, None, 1, -2.0)):
        connection.execute("INSERT INTO d VALUES (?,?,?,?)", [k, label, grp, factor])
    for grp, title, h in ((0, "zero", 0), (1, "one", None), (5, "five", 5)):
        connection.execute("INSERT INTO e VALUES (?,?,?)", [grp, title, h])
    for stream, time in TIMES.items():
        numbered = f"SELECT *, row_number() OVER (ORDER BY {time}, rowid) AS _seq FROM {stream}"
        connection.execute(f"CREATE TABLE recorded_{stream} AS {numbered}")
    return connection


def _quarters(random: Random) -> float:
    return random.randrange(-6, 20) / 4


NUMBERS = {"s": ("k", "g", "v", "n"), "r": ("k", "g", "w", "m"), "d": ("k", "grp", "factor"), "e": ("grp", "h")}
KEYS = {"s": ("k", "g"), "r": ("k", "g"), "d": ("k", "grp"), "e": ("grp",)}


@dataclass
class Generator:
    """A random query; every choice comes from the seed."""

    random: Random
    relations: int = 0

    def query(self) -> str:
        shape = self.random.random()
        if shape < 0.12:
            return self.common()
        if shape < 0.3:
            return self.nested()
        return self.select()

    def alias(self) -> str:
        self.relations += 1
        return f"t{self.relations}"

    def relation(self, alias: str, stream: bool) -> tuple[str, str]:
        name = self.random.choice(("s", "r") if stream else ("s", "s", "r", "d", "e"))
        if name in ("d", "e"):
            return name, f"{name} AS {alias}"
        return name, f"{name} {self.window()} AS {alias}"

    def window(self) -> str:
        slide = self.random.choice((1, 1, 2, 3))
        if self.random.random() < 0.06:
            return f"[ROWS {self.random.randint(1, 20)} SLIDE {self.random.randint(1, 4)}]"
        return f"[RANGE {self.random.randint(1, 8)} SECONDS SLIDE {slide} SECONDS]"

    def number(self, scope: dict[str, str], depth: int = 1) -> str:
        if depth and self.random.random() < 0.35:
            a, b = self.number(scope, depth - 1), self.number(scope, depth - 1)
            form = self.random.choice(
                ("{a} + {b}", "{a} - ({b})", "({a}) * ({b})", "({a}) / ({b})", "coalesce({a}, {b})", "abs({a})",
                 "CASE WHEN {a} > {b} THEN {a} WHEN {b} IS NULL THEN 1 ELSE {b} END", "-({a})", "nullif({a}, {b})",
                 "({a}) % 3", "greatest({a}, {b})")
            )  # fmt: skip
            return form.format(a=a, b=b)
        if self.random.random() < 0.2:
            return self.random.choice(("0", "1", "2", "2.5", "-1"))
        alias = self.random.choice(list(scope))
        return f"{alias}.{self.random.choice(NUMBERS[scope[alias]])}"

    def predicate(self, scope: dict[str, str], depth: int = 1) -> str:
        if depth and self.random.random() < 0.3:
            a, b = self.predicate(scope, depth - 1), self.predicate(scope, depth - 1)
            return self.random.choice((f"({a} OR {b})", f"({a} AND {b})", f"NOT ({a})"))
        a, b = self.number(scope), self.number(scope)
        form = self.random.choice(
            ("{a} > {b}", "{a} <= {b}", "{a} = {b}", "{a} <> {b}", "{a} < 3", "{a} IS NULL", "{a} IS NOT NULL",
             "{a} IN (0, 1, 2)", "{a} BETWEEN 0 AND 2", "{a} NOT IN (1, 2)", "{a} >= 1", "{a} IS DISTINCT FROM {b}")
        )  # fmt: skip
        return form.format(a=a, b=b)

    def sources(self, at_most: int = 4) -> tuple[str, dict[str, str]]:
        first = self.alias()
        name, text = self.relation(first, stream=True)
        scope = {first: name}
        for _ in range(self.random.choice((0, 0, 1, 1, 2, 3)) if at_most > 1 else 0):
            alias = self.alias()
            name, relation = self.relation(alias, stream=False)
            other = self.random.choice(list(scope))
            a, b = self.random.choice(KEYS[scope[other]]), self.random.choice(KEYS[name])
            scope[alias] = name
            on = f"{other}.{a} = {alias}.{b}"
            if self.random.random() < 0.3:
                on += f" AND {self.predicate(scope)}"
            kind = self.random.choice(("JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN"))
            text += f" {kind} {relation} ON {on}"
        return text, scope

    def subquery_predicate(self, scope: dict[str, str]) -> str:
        outer = self.random.choice(list(scope))
        key = self.random.choice(KEYS[scope[outer]])
        alias = self.alias()
        name, inner = self.relation(alias, stream=True)
        own = self.random.choice(KEYS[name])
        call = self.random.choice(("count(*)", "max({x})", "avg({x})", "sum({x})", "count({x})", "min({x})"))
        value = call.format(x=f"{alias}.{self.random.choice(NUMBERS[name])}")
        where = f"{alias}.{own} = {outer}.{key}"
        if self.random.random() < 0.5:
            where += f" AND {self.predicate({alias: name}, 0)}"
        return self.random.choice(
            (
                f"{outer}.{key} IN (SELECT {alias}.{own} FROM {inner})",
                f"EXISTS (SELECT 1 FROM {inner} WHERE {where})",
                f"{self.number(scope, 0)} >= (SELECT {value} FROM {inner} WHERE {where})",
                f"{self.number(scope, 0)} < (SELECT {value} FROM {inner} WHERE {where})",
                f"{self.number(scope, 0)} <= (SELECT {value} FROM {inner})",
            )
        )

    def where(self, scope: dict[str, str]) -> str:
        parts = [self.predicate(scope) for _ in range(self.random.choice((0, 0, 1, 1, 2)))]
        if self.random.random() < 0.25:
            parts.append(self.subquery_predicate(scope))
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def call(self, scope: dict[str, str]) -> str:
        x = self.number(scope)
        form = self.random.choice(
            ("count(*)", "count({x})", "sum({x})", "avg({x})", "min({x})", "max({x})", "stddev({x})",
             "count(DISTINCT {x})", "sum({x}) FILTER (WHERE {x} > 0)")
        )  # fmt: skip
        return form.format(x=x)

    def select(self, at_most: int = 4) -> str:
        text, scope = self.sources(at_most)
        text += self.where(scope)
        if self.random.random() < 0.35:
            columns = [self.number(scope) for _ in range(self.random.randint(1, 3))]
            word = self.random.choice(("RSTREAM", "DISTINCT"))
            return f"SELECT {word} {_named(columns)} FROM {text}"
        keys = list(dict.fromkeys(self.number(scope, self.random.choice((0, 0, 0, 1))) for _ in range(2)))
        keys = [k for k in keys if "." in k][: self.random.choice((0, 1, 1, 2))]
        calls = [self.call(scope) for _ in range(self.random.randint(1, 3))]
        if self.random.random() < 0.2:
            calls[0] = f"{calls[0]} + {self.random.choice(calls)}"
        query = f"SELECT {_named([*keys, *calls])} FROM {text}"
        query += f" GROUP BY {', '.join(keys)}" if keys else ""
        if self.random.random() < 0.3:
            query += f" HAVING {self.call(scope)} {self.random.choice(('>', '<=', '<>'))} {self.random.randint(0, 3)}"
        return query

    def grouped(self) -> tuple[str, list[str]]:
        text, scope = self.sources(2)
        alias = self.random.choice(list(scope))
        key = f"{alias}.{self.random.choice(KEYS[scope[alias]])}"
        query = f"SELECT {key} AS key, {self.call(scope)} AS x, {self.call(scope)} AS y FROM {text}{self.where(scope)}"
        return f"{query} GROUP BY {key}", ["key", "x", "y"]

    def nested(self) -> str:
        """An aggregate over an aggregate, or a stream joined with one."""
        inner, _ = self.grouped()
        if self.random.random() < 0.5:
            having = self.random.choice(("", " WHERE u.x > 0", " WHERE u.key IN (0, 1)"))
            return f"SELECT max(u.x) AS c0, count(*) AS c1, sum(u.y) AS c2 FROM ({inner}) AS u{having}"
        alias = self.alias()
        name, relation = self.relation(alias, stream=False)
        kind = self.random.choice(("JOIN", "LEFT JOIN"))
        on = f"u.key = {alias}.{self.random.choice(KEYS[name])}"
        keep = self.random.choice(("", " WHERE u.x >= 1", f" WHERE {self.predicate({alias: name})}"))
        if self.random.random() < 0.5:
            columns = [f"{alias}.{c}" for c in NUMBERS[name][:2]]
            chosen = _named(["u.key", "u.x", *columns])
            return f"SELECT RSTREAM {chosen} FROM ({inner}) AS u {kind} {relation} ON {on}{keep}"
        number = f"{alias}.{NUMBERS[name][-1]}"
        calls = _named(["u.key", "count(*)", f"sum({number})", "max(u.x)"])
        return f"SELECT {calls} FROM ({inner}) AS u {kind} {relation} ON {on}{keep} GROUP BY u.key"

    def common(self) -> str:
        inner, _ = self.grouped()
        on = self.random.choice(("p.key = q.key", "p.key = q.key AND p.x <= q.y", "p.x = q.y"))
        kind = self.random.choice(("JOIN", "LEFT JOIN"))
        return f"WITH c AS ({inner}) SELECT p.key AS a, p.x AS b, q.y AS c FROM c AS p {kind} c AS q ON {on}"


def _named(columns: list[str]) -> str:
    return ", ".join(f"{column} AS c{i}" for i, column in enumerate(columns))


def random_query(seed: int) -> str:
    return Generator(Random(seed)).query()
