"""The SQL of fragments means on PostgreSQL what it means to the oracle: whole queries on recorded streams."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest

from connectors.database import Store
from connectors.postgres import Postgres
from costmodel.flow import Drive
from optimizer.algebra import RelationToStream, Window, leaves, operators, outputs
from optimizer.catalog import Catalog
from optimizer.optimize import read_query
from optimizer.physical import one_tick
from optimizer.sql.ddl import parse_catalog
from optimizer.sql.render import fragment_sql
from tests import oracle
from tests.federation import Site, same
from tests.fixtures import sections
from tests.postgres_server import postgres_url
from tests.recorded import CATALOG, TIMES, random_query, record
from tests.test_equivalence import EXAMPLES, FEW

QUERIES = sections(Path(__file__).parent / "fixtures" / "sql" / "equivalence.sql")
QUERIES |= sections(Path(__file__).parent / "fixtures" / "sql" / "postgres.sql")
QUERIES |= {path.stem: path.read_text().replace("MINUTE", "SECOND") for path in sorted(EXAMPLES.glob("cq*.sql"))}


@dataclass
class Recorded:
    """The same streams and tables in DuckDB, for the oracle, and in PostgreSQL."""

    site: Site
    postgres: Postgres
    catalog: Catalog

    def check(self, sql: str) -> None:
        plan, _ = read_query(sql, self.catalog)
        if not operators(plan):
            return  # a window and nothing else is no fragment
        for tick in FEW:
            plain = oracle.plain_sql(sql, TIMES, tick).replace(" DIV ", " // ").replace("regexp_like", "regexp_matches")
            expected = self.site.connection.sql(plain)
            text, found = self.run(plan, tick, expected.to_arrow_table().schema.types)
            rows = expected.fetchall()
            assert same(found, rows), f"{sql}\n{text}\nat {tick}: {found}, expected {rows}"

    def run(self, plan: RelationToStream, tick: datetime, types: list[pa.DataType]) -> tuple[str, list[oracle.Row]]:
        """The rows as the query orders its columns, in the oracle's types."""
        windows = [leaf for leaf in leaves(plan) if isinstance(leaf, Window)]
        for window in windows:
            self.postgres.view(f"win_{window.alias}", f"SELECT * FROM recorded_{window.stream}")
        sql = fragment_sql(plan.input, {}, Drive.SLIDE, one_tick(plan), "postgres")
        below, chosen = outputs(plan.input), [(i.expression.table, i.expression.name) for i in plan.items]
        wanted = {
            own: pa.float64() if pa.types.is_decimal(kind) else kind for own, kind in zip(chosen, types, strict=True)
        }
        schema = pa.schema([(f"c{i}", wanted.get(own, pa.string())) for i, own in enumerate(below)])
        values = self.site.parameters(sql, plan, {"tick": tick})
        columns = self.postgres.query(sql, values, schema).columns  # type: ignore[arg-type]
        return sql, list(zip(*(columns[below.index(own)].to_pylist() for own in chosen), strict=True))


@pytest.fixture(scope="module")
def recorded() -> Iterator[Recorded]:
    connection = record()
    postgres = Postgres(postgres_url(), "recorded")
    postgres.drop()
    for stream, time in TIMES.items():
        rows = connection.sql(f"SELECT * FROM recorded_{stream}").to_arrow_table()
        store = Store(f"recorded_{stream}", rows.schema, time)
        postgres.prepare((store,))
        postgres.append(store, rows)
    for table in ("d", "e"):
        postgres.fill(table, connection.sql(f"SELECT * FROM {table}").to_arrow_table())
    yield Recorded(Site(connection), postgres, parse_catalog(CATALOG))
    postgres.drop()
    postgres.close()
    connection.close()


@pytest.mark.parametrize("name", list(QUERIES))
def test_written(name: str, recorded: Recorded) -> None:
    recorded.check(QUERIES[name])


@pytest.mark.parametrize("seed", range(80))
def test_random_queries(seed: int, recorded: Recorded) -> None:
    recorded.check(random_query(seed))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_many_random_queries(block: int, recorded: Recorded) -> None:
    for seed in range(1000 + 50 * block, 1050 + 50 * block):
        recorded.check(random_query(seed))
