"""Every plan of a query gives the oracle's rows: both views, every form, whole and cut at random operators."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

import duckdb
import pytest
import sqlglot

from costmodel.flow import Drive
from optimizer.algebra import Aggregate, Project, RelationToStream, fingerprint, operators, post_order
from optimizer.catalog import Catalog
from optimizer.optimize import read_query, show
from optimizer.sql.ddl import parse_catalog
from optimizer.sql.render import fragment_sql
from tests import oracle
from tests.federation import Prepared, Site, same
from tests.fixtures import sections
from tests.recorded import CATALOG, START, TIMES, random_query, record

EXAMPLES = Path(__file__).parent.parent / "examples" / "smartplug"
TICKS = [START + timedelta(seconds=s) for s in (0, 5, 7.5, 9, 15, 20)]  # before, partly filled, off a boundary, empty
FEW = [TICKS[2], TICKS[4]]
QUERIES = sections(Path(__file__).parent / "fixtures" / "sql" / "equivalence.sql")
PUSHED = [name for name in QUERIES if name.startswith("pushed")]
PULLED = [name for name in QUERIES if name.startswith("pulled")]
NOT_PULLED = [name for name in QUERIES if name.startswith("not pulled")]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    connection = record()
    yield Site(connection)
    connection.close()


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return parse_catalog(CATALOG)


def check(sql: str, site: Site, catalog: Catalog, ticks: list[datetime], seed: int = 0) -> list[RelationToStream]:
    """Runs every logical plan: all in the database, all in the stream engine, and placed at random."""
    prepared, random = Prepared.of(sql, catalog), Random(seed)
    plans = list({fingerprint(plan): plan for plan in prepared.plans if operators(plan)}.values())
    for tick in ticks if plans else []:  # a query that is a window and nothing else has nothing to place
        expected = oracle.run(site.connection, sql, TIMES, tick)
        for plan in plans:
            n = len(operators(plan))
            for in_db in ([True] * n, [False] * n, [random.random() < 0.5 for _ in range(n)]):
                found = site.run(plan, prepared.costing, in_db, {"tick": tick})
                assert same(found, expected), f"{sql}\n{show(plan)}\nat {tick}, {in_db}: {found}, expected {expected}"
    names = [item.name for item in prepared.plans[0].items]
    assert names == [c.lower() for c in oracle.columns(site.connection, sql, TIMES, ticks[0])]
    return plans


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("cq*.sql")))
def test_examples(name: str, site: Site, catalog: Catalog) -> None:
    sql = (EXAMPLES / f"{name}.sql").read_text().replace("MINUTE", "SECOND")
    check(sql, site, catalog, TICKS)


@pytest.mark.parametrize("name", [name for name in QUERIES if name not in (*PUSHED, *PULLED, *NOT_PULLED)])
def test_written(name: str, site: Site, catalog: Catalog) -> None:
    check(QUERIES[name], site, catalog, TICKS)


def _aggregates(plan: RelationToStream) -> int:
    return sum(isinstance(node, Aggregate) for node in post_order(plan))


@pytest.mark.parametrize("name", PUSHED)
def test_aggregates_are_pushed_down(name: str, site: Site, catalog: Catalog) -> None:
    plans = check(QUERIES[name], site, catalog, TICKS)
    assert max(map(_aggregates, plans)) > _aggregates(plans[0])


@pytest.mark.parametrize("name", PULLED)
def test_aggregates_are_pulled_up(name: str, site: Site, catalog: Catalog) -> None:
    plans = check(QUERIES[name], site, catalog, TICKS)
    assert isinstance(_top(plans[0]), Aggregate) is False
    assert any(isinstance(_top(plan), Aggregate) for plan in plans[1:])


def _top(plan: RelationToStream) -> object:
    return plan.input.input if isinstance(plan.input, Project) else plan.input


@pytest.mark.parametrize("name", NOT_PULLED)
def test_aggregates_are_not_pulled_up(name: str, site: Site, catalog: Catalog) -> None:
    plans = check(QUERIES[name], site, catalog, TICKS)
    assert not any(isinstance(_top(plan), Aggregate) for plan in plans)


@pytest.mark.parametrize("seed", range(80))
def test_random_queries(seed: int, site: Site, catalog: Catalog) -> None:
    check(random_query(seed), site, catalog, FEW, seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_many_random_queries(block: int, site: Site, catalog: Catalog) -> None:
    for seed in range(1000 + 50 * block, 1050 + 50 * block):
        check(random_query(seed), site, catalog, TICKS, seed)


@pytest.mark.parametrize("seed", range(80))
def test_postgres_text_parses(seed: int, catalog: Catalog) -> None:
    plan, _ = read_query(random_query(seed), catalog)
    sqlglot.parse_one(fragment_sql(plan.input, {}, Drive.SLIDE, True, "postgres"), dialect="postgres")


# -- tuple-driven queries: a row comes out once, when the last of its tuples arrives ---------------------------------

TUPLE_DRIVEN = [
    ("SELECT a.k, a.v + 1 AS x FROM s [RANGE 3 SECONDS] AS a WHERE a.v > 0", {"a": ("s", 3)}),
    (
        "SELECT a.k, a.v, b.w FROM s [RANGE 3 SECONDS] AS a JOIN r [RANGE 2 SECONDS] AS b ON a.k = b.k WHERE b.w > 0",
        {"a": ("s", 3), "b": ("r", 2)},
    ),
    (
        "SELECT a.v, b.w, c.v AS y, d.label FROM s [RANGE 3 SECONDS SLIDE 1 SECOND] AS a JOIN r [RANGE 2 SECONDS] AS b "
        "ON a.k = b.k JOIN s [RANGE 1 SECOND] AS c ON c.g = b.g JOIN d ON d.k = c.k",
        {"a": ("s", 3), "b": ("r", 2), "c": ("s", 1)},
    ),
    (
        "SELECT a.v, d.label FROM s [RANGE 3 SECONDS] AS a LEFT JOIN d ON a.k = d.k AND d.factor > 0",
        {"a": ("s", 3)},
    ),
]


def arrivals(
    connection: duckdb.DuckDBPyConnection, sql: str, windows: dict[str, tuple[str, int]], at: datetime
) -> list[oracle.Row]:
    """What arrives at an instant: the join of the windows (τ-w, τ], less the join of the tuples that were there."""
    rows: list[oracle.Row] = []
    for sign, newest in ((1, "<="), (-1, "<")):
        text = sql
        for alias, (stream, size) in windows.items():
            kept = f"ts > TIMESTAMP '{at - timedelta(seconds=size)}' AND ts {newest} TIMESTAMP '{at}'"
            for clause in (
                f"[RANGE {size} SECONDS]",
                f"[RANGE {size} SECOND]",
                f"[RANGE {size} SECONDS SLIDE 1 SECOND]",
            ):
                named = f"{stream} {clause}" if alias == stream else f"{stream} {clause} AS {alias}"
                text = text.replace(named, f"(SELECT * FROM {stream} WHERE {kept}) AS {alias}")
        found = connection.sql(text).fetchall()
        for row in found:
            if sign > 0:
                rows.append(row)
            else:
                rows.remove(row)
    return rows


@pytest.mark.parametrize(("sql", "windows"), TUPLE_DRIVEN)
@pytest.mark.parametrize("step", [0.25, 2.0])
def test_tuple_driven(sql: str, windows: dict[str, tuple[str, int]], step: float, site: Site, catalog: Catalog) -> None:
    prepared = Prepared.of(sql, catalog)
    assert prepared.costing.engines.drive is Drive.TUPLE
    plan = prepared.plans[-1]
    n, random = len(operators(plan)), Random(1)
    placements = [[True] * n, *([random.random() < 0.5 for _ in range(n)] for _ in range(2))]
    instants = [START + timedelta(seconds=i / 4) for i in range(-1, 80)]
    expected = {at: arrivals(site.connection, sql, windows, at) for at in instants}
    assert sum(map(len, expected.values())) > 0
    for in_db in placements[: 1 if step < 1 else 3]:
        since = START - timedelta(seconds=1)
        while since < instants[-1]:
            until = since + timedelta(seconds=step)
            found = site.run(plan, prepared.costing, in_db, {"since": since, "until": until})
            want = [row for at, rows in expected.items() if since < at <= until for row in rows]
            assert same(found, want), f"{show(plan)}\n{since} to {until}: {found}, expected {want}"
            since = until
