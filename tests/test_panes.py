"""Aggregates made from panes in a database are those of the windows, whatever the way in which the ticks come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from uuid import uuid4

import duckdb
import pyarrow as pa
import pytest
from sqlglot import exp

from connectors.database import Database, DatabaseError, Panes
from connectors.duckdb import DuckDb
from connectors.postgres import Postgres
from migration.mig import in_panes, migs
from migration.ticks import Windows, microseconds
from optimizer.algebra import Window, WindowUnit, leaves
from optimizer.catalog import Catalog
from optimizer.optimize import Options, optimize
from optimizer.physical import PhysicalPlan, Where
from optimizer.pinned import everywhere
from optimizer.sql.ddl import parse_catalog
from optimizer.sql.render import flat_names
from tests import oracle
from tests.federation import same
from tests.postgres_server import postgres_url
from tests.recorded import CATALOG, START, TABLES, TIMES, random_query, record
from tests.test_running import QUERIES, without_panes

SECOND = timedelta(seconds=1)
MORE = {
    "filters": "SELECT a.k, count(*) FILTER (WHERE a.v > 1) AS n, avg(a.n) FILTER (WHERE a.g = 1) AS m, "
    "max(a.name) AS x FROM s [RANGE 7 SECONDS SLIDE 2 SECONDS] AS a WHERE a.v IS NOT NULL GROUP BY a.k",
    "a key that is computed": "SELECT a.k % 2 AS odd, a.g > 1 AS high, sum(a.v) AS x, sum(a.n) AS y "
    "FROM s [RANGE 4 SECONDS SLIDE 1 SECONDS] AS a GROUP BY a.k % 2, a.g > 1",
    "keys alone": "SELECT DISTINCT a.k FROM s [RANGE 3 SECONDS SLIDE 1 SECONDS] AS a",
    "one row a tick": "SELECT count(*) AS n, count(a.v) AS c, sum(a.v) AS x, avg(a.v) AS m, min(a.v) AS lo "
    "FROM s [RANGE 3 SECONDS SLIDE 1 SECONDS] AS a WHERE a.k > 2",
    "an aggregate joined to its window": "SELECT a.k, count(*) AS n FROM s [RANGE 5 SECONDS SLIDE 1 SECONDS] AS a "
    "JOIN (SELECT b.k, max(b.v) AS x FROM s [RANGE 5 SECONDS SLIDE 1 SECONDS] AS b GROUP BY b.k) AS m "
    "ON a.k = m.k WHERE a.v > 0.5 * m.x GROUP BY a.k",
    "windows that move apart": "SELECT m.k, m.x, o.y FROM "
    "(SELECT b.k, max(b.v) AS x FROM s [RANGE 6 SECONDS SLIDE 3 SECONDS] AS b GROUP BY b.k) AS m "
    "JOIN (SELECT c.k, count(*) AS y FROM r [RANGE 4 SECONDS SLIDE 2 SECONDS] AS c GROUP BY c.k) AS o ON m.k = o.k",
}
TESTED = {**QUERIES, **MORE, **{f"random {seed}": random_query(seed) for seed in range(60, 130)}}
SOME = [*QUERIES, *MORE, *(f"random {seed}" for seed in range(60, 80))]


@pytest.fixture(scope="module")
def recorded() -> duckdb.DuckDBPyConnection:
    return record()


@pytest.fixture(params=["duckdb", "postgres"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    new: Database = DuckDb(None) if request.param == "duckdb" else Postgres(postgres_url(), f"panes {uuid4().hex[:8]}")
    yield new
    new.drop()
    new.close()


def plan_of(sql: str, catalog: Catalog, database: str) -> PhysicalPlan:
    return everywhere(optimize(sql, catalog, Options(database=database)), Where.DB)


def filled(database: Database, recorded: duckdb.DuckDBPyConnection, plan: PhysicalPlan) -> None:
    """With all that was recorded, under the names that the SQL of MIGs knows."""
    for name in TABLES:
        database.fill(name, recorded.sql(f"SELECT * FROM {name}").to_arrow_table())
    for leaf in leaves(plan.tree):
        if isinstance(leaf, Window):
            database.view(f"win_{leaf.alias}", f"SELECT * FROM {stored(database, leaf.stream)}")


def stored(database: Database, name: str) -> str:
    """A view that outlives the session cannot be of a name that does not."""
    return f"filled_{name}" if database.name == "postgres" else name


def instants(seed: str) -> list[datetime]:
    """Ahead, with leaps beyond a window, at times back by a few ticks, or far."""
    random, at, found = Random(seed), START, list[datetime]()
    for _ in range(14):
        at += random.choice((1, 1, 1, 2, 2, 3, 9, -1, -2, -12)) * SECOND
        found.append(at)
    return found


@pytest.mark.parametrize(
    "name", [name if name in SOME else pytest.param(name, marks=pytest.mark.slow) for name in TESTED]
)
def test_panes_give_the_same_rows(name: str, database: Database, recorded: duckdb.DuckDBPyConnection) -> None:
    sql, catalog = TESTED[name], parse_catalog(CATALOG)
    plan = plan_of(sql, catalog, database.name)
    windows = [leaf for leaf in leaves(plan.tree) if isinstance(leaf, Window)]
    if not in_panes(plan.operators) or any(w.spec.unit is WindowUnit.ROWS for w in windows):
        assert name not in MORE, "this one is meant to have panes"
        return
    with_panes, plain = (migs(p, catalog, database.dialect)[0] for p in (plan, without_panes(plan)))
    assert len(with_panes.panes) == len(in_panes(plan.operators))
    filled(database, recorded, plan)
    moving = Windows.of(plan.tree)
    for at in instants(name):
        tick = moving.tick(moving.previous(microseconds(at)) or 0, {})
        found, expected = (_rows(mig.at(database, tick)) for mig in (with_panes, plain))
        assert same(found, expected), f"{name} at {at}\n{sql}"


COMPARED = {
    "cq1": QUERIES["cq1"],
    "cq2": QUERIES["cq2"],
    "an aggregate joined to its window": MORE["an aggregate joined to its window"],
    "many functions": "SELECT a.g, count(*) AS n, sum(a.v - m.x) AS y, avg(a.v) FILTER (WHERE a.n > m.n) AS z, "
    "count(DISTINCT a.k) AS d, max(m.y) AS t FROM s [RANGE 8 SECONDS SLIDE 1 SECONDS] AS a JOIN "
    "(SELECT b.k, avg(b.v) AS x, count(*) AS n, count(b.v) AS c, sum(b.n) AS y "
    "FROM s [RANGE 6 SECONDS SLIDE 1 SECONDS] AS b WHERE b.g < 2 GROUP BY b.k) AS m ON a.k = m.k "
    "WHERE a.n + 9 > m.c AND a.v <> m.x GROUP BY a.g",
    "a key like a function": "SELECT m.n1, count(*) AS n FROM s [RANGE 8 SECONDS SLIDE 1 SECONDS] AS a JOIN "
    "(SELECT b.k AS n1, avg(b.v) AS n FROM s [RANGE 6 SECONDS SLIDE 1 SECONDS] AS b GROUP BY b.k) AS m ON m.n1 = a.k "
    "WHERE a.v > m.n GROUP BY m.n1",
    "an empty group": "SELECT a.k, count(*) AS n FROM s [RANGE 8 SECONDS SLIDE 1 SECONDS] AS a JOIN "
    "(SELECT b.k, count(b.w) AS c FROM r [RANGE 4 SECONDS SLIDE 1 SECONDS] AS b GROUP BY b.k) AS m ON m.k = a.k "
    "WHERE a.n > m.c - 3 GROUP BY a.k",
}


@pytest.mark.parametrize("name", COMPARED)
@pytest.mark.parametrize("count", [2, 3, 11])
def test_several_ticks_in_one_sql(
    name: str, count: int, database: Database, recorded: duckdb.DuckDBPyConnection
) -> None:
    sql, catalog = COMPARED[name], parse_catalog(CATALOG)
    plan = plan_of(sql, catalog, "duckdb")  # the same tree in both
    mig = migs(plan, catalog, database.dialect)[0]
    assert mig.together is not None
    filled(database, recorded, plan)
    moving = Windows.of(plan.tree)
    at_once = 0
    for first in range(0, 24, max(4, count)):
        ticks = [moving.tick(microseconds(START + (first + i) * SECOND), {}) for i in range(count)]
        at_once += mig.together.worth(ticks)
        for tick, found in mig.at_each(database, ticks):
            expected = mig.at(database, tick)
            assert found.schema == expected.schema
            assert same(_rows(found), _rows(expected)), f"{name} at {tick.at}\n{mig.together.sql(count)}"
    assert at_once or count > 3


@pytest.mark.parametrize("name", MORE)
def test_panes_give_the_oracles_rows(name: str, database: Database, recorded: duckdb.DuckDBPyConnection) -> None:
    sql, catalog = MORE[name], parse_catalog(CATALOG)
    plan = plan_of(sql, catalog, database.name)
    (mig,) = migs(plan, catalog, database.dialect)
    filled(database, recorded, plan)
    moving = Windows.of(plan.tree)
    for second in range(22):
        at = START + second * SECOND
        if moving.previous(microseconds(at)) != microseconds(at):
            continue
        result = mig.at(database, moving.tick(microseconds(at), {}))
        flat = flat_names(plan.tree.input)
        columns = [c for item in plan.tree.items for c in item.expression.find_all(exp.Column)]
        found = _rows(result.select([flat[c.table, c.name] for c in columns]))
        assert same(found, oracle.run(recorded, sql, TIMES, at)), f"at {at}"


def _rows(table: pa.Table) -> list[tuple[object, ...]]:
    return list(zip(*(c.to_pylist() for c in table.columns), strict=True))


# -- what is kept ----------------------------------------------------------------------------------------------------

PANES = Panes(
    "pane_a",
    "SELECT date_trunc('second', ts) AS _pane, count(*) AS n FROM t "
    "WHERE ts >= CAST($since AS TIMESTAMP) AND ts < CAST($until AS TIMESTAMP) GROUP BY 1",
)


@pytest.fixture
def seconds(database: Database) -> Database:
    """A tuple in each of a hundred seconds."""
    made = duckdb.sql("SELECT TIMESTAMP '2024-05-01 12:00:00' + to_seconds(range) AS ts FROM range(100)")
    assert made is not None
    database.fill("t", made.to_arrow_table())
    return database


def kept(database: Database) -> list[int]:
    """The seconds that there are panes of, as often as they are there."""
    schema = pa.schema([pa.field("_pane", pa.timestamp("us"))])
    rows = database.query('SELECT _pane FROM "pane_a" ORDER BY 1', {}, schema).column(0).to_pylist()
    return [int((at - START).total_seconds()) for at in rows]


def reach(database: Database, first: int, until: int) -> list[int]:
    database.reach(PANES, START + first * SECOND, START + until * SECOND)
    return kept(database)


def test_a_pane_is_made_once(seconds: Database) -> None:
    assert reach(seconds, 0, 20) == list(range(20))
    assert reach(seconds, 0, 20) == list(range(20))
    assert reach(seconds, 1, 21) == list(range(21))  # the old one may stay for a while
    assert reach(seconds, 2, 22) == list(range(22))


def test_old_panes_go(seconds: Database) -> None:
    for first in range(70):
        found = reach(seconds, first, first + 20)
        assert found[-20:] == list(range(first, first + 20))
        assert len(found) <= 20 + 20 // 8 + 1


def test_what_is_between_is_made_too(seconds: Database) -> None:
    reach(seconds, 0, 10)
    assert reach(seconds, 8, 18) == list(range(8, 18))
    assert reach(seconds, 18, 28) == list(range(18, 28))


def test_after_a_leap_and_on_the_way_back_panes_are_made_anew(seconds: Database) -> None:
    reach(seconds, 0, 10)
    assert reach(seconds, 40, 50) == list(range(40, 50))
    assert reach(seconds, 20, 30) == list(range(20, 30))
    assert reach(seconds, 21, 31) == list(range(20, 31))


def test_an_earlier_tick_finds_what_it_needs(seconds: Database) -> None:
    reach(seconds, 0, 30)
    reach(seconds, 1, 31)
    assert set(range(30)) <= set(reach(seconds, 0, 30))
    assert reach(seconds, 2, 32) == list(range(32))


def test_panes_that_failed_are_not_taken_for_made(seconds: Database) -> None:
    reach(seconds, 0, 10)
    broken = replace(PANES, sql=PANES.sql.replace("count(*)", "count(*) / CAST('x' AS INT)"))
    with pytest.raises(DatabaseError, match="pane_a cannot be"):
        seconds.reach(broken, START + SECOND, START + 11 * SECOND)
    assert reach(seconds, 1, 11) == list(range(11))
