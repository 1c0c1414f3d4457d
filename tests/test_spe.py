"""Spark's operators give the oracle's rows: relations at ticks, sliding aggregates, state, tuple-driven fragments."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import duckdb
import pyspark.sql.functions as F
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType, TimestampNTZType

from connectors.spark.expressions import TICK
from connectors.spark.relations import Evaluation
from connectors.spark.sliding import BUCKET, Form, SlidingAggregate, splittable
from connectors.spark.state import HadoopFiles, SpeState
from connectors.spark.tuple_driven import spark_fragment
from connectors.tick import EPOCH, Span, Tick
from optimizer.algebra import (
    Aggregate,
    Join,
    Node,
    RelationToStream,
    Select,
    StoredTable,
    Window,
    WindowUnit,
    inputs,
    leaves,
    operators,
    post_order,
    with_inputs,
)
from optimizer.catalog import Catalog
from optimizer.optimize import read_query, show
from optimizer.sql.ddl import parse_catalog
from optimizer.sql.render import flat_names
from tests import oracle
from tests.federation import Prepared, Site, boundary, same
from tests.recorded import CATALOG, START, TABLES, TIMES, random_query, record
from tests.spark_fixture import interpreted
from tests.test_equivalence import EXAMPLES, QUERIES, TICKS, TUPLE_DRIVEN, arrivals


@dataclass
class Recording:
    """The recorded streams and tables, in DuckDB for the oracle and as DataFrames."""

    spark: SparkSession
    connection: duckdb.DuckDBPyConnection
    catalog: Catalog
    frames: dict[str, DataFrame]

    def tick(self, plan: RelationToStream, at: datetime) -> Tick:
        windows = [leaf for leaf in leaves(plan) if isinstance(leaf, Window)]
        slides = {w.spec.slide for w in windows if w.spec.unit is WindowUnit.TIME}
        ends = {w.alias: boundary(at, w.spec.slide or 1) for w in windows if w.spec.unit is WindowUnit.TIME}
        site = Site(self.connection)
        lasts = {w.alias: site.last(w, at) for w in windows if w.spec.unit is WindowUnit.ROWS}
        return Tick(next(iter(ends.values())) if len(slides) == 1 and not lasts else at, ends, lasts)

    def expected(self, sql: str, at: datetime) -> list[oracle.Row]:
        return oracle.run(self.connection, sql, TIMES, at)

    def evaluation(
        self, ticks: list[Tick], given: dict[int, DataFrame] | None = None, sizes: dict[int, float] | None = None
    ) -> Evaluation:
        def window(leaf: Window) -> DataFrame:
            return self.frames[leaf.stream]

        def table(leaf: StoredTable) -> DataFrame:
            return self.frames[leaf.table]

        return Evaluation(self.spark, ticks, self.catalog, window, table, given or {}, sizes or {})


@pytest.fixture(scope="module")
def recording(spark: SparkSession) -> Iterator[Recording]:
    connection = record()
    with interpreted(spark):
        frames = {}
        for name in TABLES:
            stored = f"recorded_{name}" if name in TIMES else name
            frames[name] = spark.createDataFrame(connection.sql(f"SELECT * FROM {stored}").to_arrow_table())
        yield Recording(spark, connection, parse_catalog(CATALOG), frames)
    connection.close()


def rows_at(frame: DataFrame, plan: RelationToStream) -> dict[datetime, list[oracle.Row]]:
    """The result columns of a plan by tick, in the order of the query."""
    names = flat_names(plan.input)
    wanted = [names[i.expression.table, i.expression.name] for i in plan.items]
    assert set(frame.columns) == {*names.values(), TICK}
    found: dict[datetime, list[oracle.Row]] = {}
    for row in frame.collect():
        found.setdefault(row[TICK], []).append(tuple(row[name] for name in wanted))
    return found


def check(sql: str, recording: Recording, instants: list[datetime], in_duckdb: str | None = None) -> None:
    """Against the oracle, which is asked in other words where DuckDB does not take ours."""
    plan, _ = read_query(sql, recording.catalog)
    ticks = [recording.tick(plan, at) for at in instants]
    assert len({tick.at for tick in ticks}) == len(ticks)
    found = rows_at(recording.evaluation(ticks).relation(plan.input), plan)
    assert set(found) <= {tick.at for tick in ticks}
    for tick, at in zip(ticks, instants, strict=True):
        expected = recording.expected(in_duckdb or sql, at)
        got = found.get(tick.at, [])
        assert same(got, expected), f"{sql}\n{show(plan)}\nat {at}: {got}, expected {expected}"


# -- relations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("cq*.sql")))
def test_examples(name: str, recording: Recording) -> None:
    check((EXAMPLES / f"{name}.sql").read_text().replace("MINUTE", "SECOND"), recording, TICKS)


@pytest.mark.parametrize("name", QUERIES)
def test_written(name: str, recording: Recording) -> None:
    check(QUERIES[name], recording, TICKS)


@pytest.mark.parametrize("seed", range(12))
def test_random_queries(seed: int, recording: Recording) -> None:
    check(random_query(seed), recording, TICKS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 100))
def test_many_random_queries(seed: int, recording: Recording) -> None:
    check(random_query(seed), recording, TICKS)


@pytest.mark.parametrize("name", ["global aggregate over an empty window", "hop", "rows and range", "three slides"])
def test_one_tick(name: str, recording: Recording) -> None:
    """A batch with one tick needs no join with its ticks."""
    for at in (TICKS[2], TICKS[4]):
        check(QUERIES[name], recording, [at])


SCALARS = [
    *(
        "k / 2",
        "n / k",
        "n % k",
        "v / 0",
        "n % 0",
        "7 / 2",
        "v / k / 2",
        "-n / (k + 1)",
        "-7 % 3",
    ),
    *(
        "greatest(k, g, v)",
        "least(k, NULL, g)",
        "k IS DISTINCT FROM g",
        "k IS NOT DISTINCT FROM g",
        "k * 2.5",
        "v * 0.1",
    ),
    *("CAST(v AS INT)", "CAST(v * 2 AS BIGINT)", "CAST(2.5 AS INT)", "CAST(k AS VARCHAR)", "CAST(k / 2 AS INT)"),
    *("round(v)", "round(v, 1)", "floor(v)", "ceil(v)", "abs(n)", "sign(v)", "sqrt(abs(v))", "pow(v, 2)", "exp(k)"),
    *("substring(name, 0, 2)", "substring(name, 1, 1)", "substring(name, -1, 1)", "substring(name, k, 2)"),
    *("length(name)", "upper(name)", "trim(name)", "name || 'x'", "concat(name, k)", "coalesce(name, 'none')"),
    *(
        "name LIKE 'a%'",
        r"name LIKE 'a\%'",
        r"name || '\' LIKE '%\'",
        "name ILIKE 'AB'",
        r"name LIKE '%' || '\' || '%'",
    ),
    *("extract(second FROM ts)", "extract(minute FROM ts)", "extract(dow FROM ts)", "extract(epoch FROM ts)"),
    *(
        "extract(millisecond FROM ts)",
        "extract(microsecond FROM ts)",
        "extract(isodow FROM ts)",
        "second(ts)",
        "hour(ts)",
    ),
    *("date_trunc('minute', ts)", "date_trunc('week', ts)", "ts - INTERVAL '1500' MILLISECOND", "CAST(ts AS VARCHAR)"),
    *("ts > TIMESTAMP '2024-05-01 12:00:05'", "CAST('2024-05-01 12:00:05' AS TIMESTAMP)", "DATE '2024-05-01'"),
    *("nullif(k, 2)", "CASE WHEN k > 2 THEN 'many' WHEN k IS NULL THEN NULL ELSE 'few' END"),
    *("TRY_CAST(name AS INT)", "k IN (1, NULL)", "k NOT IN (1, 2)", "regexp_extract(name, '[a-z]+')"),
]
CALLS = [
    *("stddev(v)", "stddev_pop(v)", "variance(v)", "var_pop(n)", "avg(k * 2.5)", "avg(DISTINCT n)", "sum(DISTINCT n)"),
    *("count(DISTINCT name)", "sum(k * 2.5)", "sum(v / k)", "min(name)", "max(ts)", "skewness(v)", "kurtosis(v)"),
    *("skewness(v) FILTER (WHERE k > 0)", "kurtosis(v) FILTER (WHERE k > 9)", "median(v)", "count_if(v > 1)"),
    *("bool_and(v > 0)", "bool_or(v > 3)", "covar_samp(v, n)", "covar_pop(v, n)", "count(*) FILTER (WHERE v > 1)"),
    *("sum(n) FILTER (WHERE k > 9)", "arg_max(k, v + k * 100)", "avg(n) FILTER (WHERE name LIKE 'a%')"),
]


def _as_columns(expressions: list[str]) -> str:
    return ", ".join(f"{e} AS c{i}" for i, e in enumerate(expressions))


def test_scalar_expressions(recording: Recording) -> None:
    check(f"SELECT RSTREAM {_as_columns(SCALARS)} FROM s [RANGE 9 SECONDS SLIDE 1 SECOND]", recording, TICKS[1:4])


def test_integer_division(recording: Recording) -> None:
    sql = "SELECT RSTREAM n DIV 2 AS a, n DIV k AS b, -n DIV 2 AS c FROM s [RANGE 9 SECONDS SLIDE 1 SECOND]"
    check(sql, recording, TICKS[1:3], sql.replace("DIV", "//"))


@pytest.mark.parametrize("keys", ["", " GROUP BY k", " GROUP BY k, g, n"])
def test_aggregate_functions(keys: str, recording: Recording) -> None:
    check(f"SELECT {_as_columns(CALLS)} FROM s [RANGE 9 SECONDS SLIDE 1 SECOND]{keys}", recording, TICKS)


def test_every_column_has_the_type_that_is_declared(recording: Recording) -> None:
    """Where the plan's own annotations are lost, too: inside brackets, and for TICK()."""
    plan, _ = read_query(QUERIES["ctes read twice"], recording.catalog)
    frame = recording.evaluation([recording.tick(plan, TICKS[1])]).relation(plan.input)
    assert dict(frame.dtypes) == {"result_k": "int", "result_x": "double", "result_y": "double", TICK: "timestamp_ntz"}
    plan, _ = read_query(QUERIES["hop"], recording.catalog)
    frame = recording.evaluation([recording.tick(plan, TICKS[1])]).relation(plan.input)
    assert dict(frame.dtypes)["result_window_start"] == dict(frame.dtypes)["result_window_end"] == "timestamp_ntz"


def test_the_smaller_side_of_a_join_is_copied(recording: Recording) -> None:
    """Which of them that is, only estimates say; the rows are the same."""
    plan, _ = read_query(
        "SELECT a.k, count(*) AS n FROM s [RANGE 6 SECONDS SLIDE 1 SECOND] AS a JOIN (SELECT b.k, max(b.v) AS m FROM "
        "s [RANGE 6 SECONDS SLIDE 1 SECOND] AS b GROUP BY b.k) AS x ON a.k = x.k AND a.v > 0.5 * x.m GROUP BY a.k",
        recording.catalog,
    )
    join = next(node for node in post_order(plan) if isinstance(node, Join))
    ticks = [recording.tick(plan, at) for at in TICKS[1:3]]
    rows, copied = [], []
    for left, right in ((1e6, 1e6), (100.0, 1e6), (1e6, 100.0)):
        sizes = {id(join.left): left, id(join.right): right}
        found = recording.evaluation(ticks, sizes=sizes).relation(plan.input)
        copied.append(found._jdf.queryExecution().analyzed().toString().count("strategy=broadcast"))
        rows.append(sorted(map(tuple, found.collect())))
    assert [count - copied[0] for count in copied] == [0, 1, 1]
    assert rows[0] == rows[1] == rows[2]
    assert rows[0]


def test_an_evaluated_operator_is_taken_as_given(recording: Recording) -> None:
    inside = "SELECT k, sum(v) AS t FROM s [RANGE 4 SECONDS SLIDE 1 SECOND] GROUP BY k"
    sql = f"SELECT max(u.t) AS m, count(*) AS n FROM ({inside}) AS u"
    plan, _ = read_query(sql, recording.catalog)
    ticks = [recording.tick(plan, at) for at in TICKS[1:3]]
    inner = next(n for n in post_order(plan) if isinstance(n, Aggregate))
    whole = recording.evaluation(ticks).relation(inner)
    given = recording.evaluation(
        ticks, {id(inner): whole.where(F.col(TICK) == F.lit(str(ticks[0].at)).cast("timestamp_ntz"))}
    )
    found = rows_at(given.relation(plan.input), plan)
    assert same(found[ticks[0].at], recording.expected(sql, TICKS[1]))
    assert found[ticks[1].at] == [(None, 0)]


# -- sliding aggregates -----------------------------------------------------------------------------------------------

SLIDING = {
    "keys": "SELECT k, g, count(*) AS a, sum(v) AS b, avg(n) AS c, min(v) AS d, max(name) AS e "
    "FROM s [RANGE 4 SECONDS SLIDE 1 SECOND] GROUP BY k, g",
    "no keys": "SELECT count(*) AS a, count(v) AS b, sum(n) AS c, avg(v) AS d, stddev(v) AS e, count(DISTINCT k) AS f "
    "FROM s [RANGE 2 SECONDS SLIDE 1 SECOND]",
    "spread": "SELECT g, stddev(v) AS a, stddev_pop(v) AS b, variance(n) AS c, var_pop(k) AS d "
    "FROM s [RANGE 5 SECONDS SLIDE 2 SECONDS] GROUP BY g",
    "sets": "SELECT g, count(DISTINCT v) AS a, count(DISTINCT name) FILTER (WHERE k > 1) AS b "
    "FROM s [RANGE 6 SECONDS SLIDE 4 SECONDS] GROUP BY g",
    "selected": "SELECT k + 1 AS x, 5 AS five, sum(v / k) AS a, sum(v) FILTER (WHERE v > 1) AS b, bool_or(v > 2) AS c "
    "FROM s [RANGE 3 SECONDS SLIDE 2 SECONDS] WHERE v > 0 AND name IS NOT NULL GROUP BY k + 1",
    "distinct": "SELECT DISTINCT k, n % 2 AS odd FROM s [RANGE 4 SECONDS SLIDE 1 SECOND]",
    "gaps": "SELECT k, count(*) AS a, avg(v) AS b FROM s [RANGE 1 SECOND SLIDE 3 SECONDS] GROUP BY k",
    "tumbling": "SELECT max(v) AS a, count(n) FILTER (WHERE n < 0) AS b FROM s [RANGE 3 SECONDS SLIDE 3 SECONDS]",
    "odd": "SELECT k, sum(n) AS a FROM s [RANGE 2500 MILLISECONDS SLIDE 1 SECOND] GROUP BY k",
    "decimals": "SELECT k, sum(k * 2.5) AS a, avg(k * 0.1) AS b FROM s [RANGE 4 SECONDS SLIDE 1 SECOND] GROUP BY k",
}
BATCH_ENDS = [START + timedelta(seconds=s) for s in (3, 8, 8.5, 30)]


def sliding_parts(sql: str, recording: Recording, form: Form) -> tuple[RelationToStream, SlidingAggregate]:
    plan, _ = read_query(sql, recording.catalog)
    aggregate = next(n for n in post_order(plan) if isinstance(n, Aggregate))
    assert splittable(aggregate)
    return plan, SlidingAggregate(aggregate, form, recording.catalog)


def arrivals_between(recording: Recording, sliding: SlidingAggregate, first: datetime, after: datetime) -> DataFrame:
    """New tuples under flat names, after the selections: a window that shows just them."""
    window = sliding.window
    span = (after - first) // timedelta(microseconds=1)
    wide = replace(window, spec=replace(window.spec, size=span))

    def widened(node: Node) -> Node:
        return wide if node is window else with_inputs(node, tuple(widened(below) for below in inputs(node)))

    tick = Tick(after, {window.alias: after})
    return recording.evaluation([tick]).relation(widened(sliding.aggregate.input)).drop(TICK)


QUICK = ("no keys", "spread", "selected", "gaps")


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in SLIDING])
def test_sliding_aggregates(name: str, form: Form, recording: Recording, tmp_path: Path) -> None:
    sql = SLIDING[name]
    plan, sliding = sliding_parts(sql, recording, form)
    state, since = SpeState(recording.spark, str(tmp_path)), START
    first = recording.tick(plan, TICKS[0])
    rest = recording.evaluation([first], {id(sliding.aggregate): sliding.combined(recording.spark, None, [first])})
    assert same(rows_at(rest.relation(plan.input), plan).get(first.at, []), recording.expected(sql, TICKS[0]))
    for batch, until in enumerate(BATCH_ENDS):
        kept = sliding.partial(arrivals_between(recording, sliding, since, until))
        state.write("agg", batch, kept, BUCKET)
        instants = [at for at in [*TICKS, START + timedelta(seconds=3)] if since < at <= until]
        ticks, since = [recording.tick(plan, at) for at in instants], until
        if not ticks:
            continue
        combined = sliding.combined(recording.spark, state.read("agg", kept.schema), ticks)
        evaluation = recording.evaluation(ticks, {id(sliding.aggregate): combined})
        assert combined.dtypes == recording.evaluation(ticks).relation(sliding.aggregate).dtypes
        found = rows_at(evaluation.relation(plan.input), plan)
        for tick, at in zip(ticks, instants, strict=True):
            expected = recording.expected(sql, at)
            assert same(found.get(tick.at, []), expected), f"{sql} at {at}: {found.get(tick.at)}, expected {expected}"


@pytest.mark.parametrize("form", Form)
def test_spread_far_from_zero(form: Form, recording: Recording) -> None:
    """Squares of large numbers do not swallow the spread."""
    sql = "SELECT stddev(v + 1000000000) AS a, var_pop(v + 1000000000) AS b FROM s [RANGE 9 SECONDS SLIDE 1 SECOND]"
    plan, sliding = sliding_parts(sql, recording, form)
    tick = recording.tick(plan, TICKS[3])
    kept = sliding.partial(arrivals_between(recording, sliding, START, BATCH_ENDS[-1]))
    (row,) = sliding.combined(recording.spark, kept, [tick]).collect()
    expected = recording.expected(sql.replace(" + 1000000000", ""), TICKS[3])
    assert tuple(row)[:2] == pytest.approx(expected[0], rel=1e-6)


@pytest.mark.parametrize("form", Form)
def test_approximate_quantiles(form: Form, recording: Recording) -> None:
    """So few values that a sketch holds them all: the quantile is one of the values around the true one."""
    sql = "SELECT g, approx_quantile(v, 0.5) AS a FROM s [RANGE 9 SECONDS SLIDE 1 SECOND] GROUP BY g"
    plan, sliding = sliding_parts(sql, recording, form)
    tick = recording.tick(plan, TICKS[3])
    kept = sliding.partial(arrivals_between(recording, sliding, START, BATCH_ENDS[-1]))
    found = {row[0]: row[1] for row in sliding.combined(recording.spark, kept, [tick]).collect()}
    around = "SELECT g, quantile_disc(v, 0.4), quantile_disc(v, 0.6) FROM s [RANGE 9 SECONDS SLIDE 1 SECOND] GROUP BY g"
    bounds = {g: (low, high) for g, low, high in recording.expected(around, TICKS[3])}
    assert found.keys() == bounds.keys()
    assert all(bounds[g][0] <= value <= bounds[g][1] for g, value in found.items())


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT k, median(v) AS a FROM s [RANGE 4 SECONDS SLIDE 1 SECOND] GROUP BY k",
        "SELECT k, sum(DISTINCT v) AS a FROM s [RANGE 4 SECONDS SLIDE 1 SECOND] GROUP BY k",
        "SELECT k, sum(v) AS a FROM s [ROWS 4 SLIDE 1] GROUP BY k",
        "SELECT count(*) AS a FROM s [RANGE 4 SECONDS SLIDE 1 SECOND] WHERE ts > TICK() - INTERVAL '1' SECOND",
        "SELECT d.label, count(*) AS a FROM s [RANGE 4 SECONDS SLIDE 1 SECOND] AS a JOIN d USING (k) GROUP BY d.label",
    ],
)
def test_what_cannot_be_split(sql: str, recording: Recording) -> None:
    plan, _ = read_query(sql, recording.catalog)
    assert not splittable(next(n for n in post_order(plan) if isinstance(n, Aggregate)))


# -- state ------------------------------------------------------------------------------------------------------------

SCHEMA = StructType([StructField("t", TimestampNTZType()), StructField("x", LongType())])


@pytest.fixture(params=["local", "hadoop"])
def state(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> SpeState:
    state = SpeState(spark, str(tmp_path / "a state"))
    if request.param == "hadoop":
        state.files = HadoopFiles(spark)
    return state


def numbers(spark: SparkSession, *seconds: float) -> DataFrame:
    return spark.createDataFrame([(START + timedelta(seconds=s), int(s)) for s in seconds], SCHEMA)


def held(state: SpeState) -> list[int]:
    frame = state.read("w", SCHEMA)
    return sorted(row.x for row in frame.collect()) if frame is not None else []


def entries(state: SpeState) -> list[str]:
    return sorted(state.files.names(f"{state.directory}/w"))


def test_a_replayed_batch_replaces_its_own(state: SpeState, spark: SparkSession) -> None:
    assert state.read("w", SCHEMA) is None
    state.write("w", 0, numbers(spark, 1, 2), "t")
    state.write("w", 1, numbers(spark, 3), "t")
    state.write("w", 1, numbers(spark, 4, 5), "t")
    assert held(state) == [1, 2, 4, 5]
    state.write("w", 1, numbers(spark, 4, 5), "t")
    assert held(state) == [1, 2, 4, 5]
    state.write("w", 1, numbers(spark), "t")
    assert held(state) == [1, 2]
    assert len(entries(state)) == 1


def test_old_batches_go(state: SpeState, spark: SparkSession) -> None:
    for batch in range(3):
        state.write("w", batch, numbers(spark, batch, batch + 1), "t")
    state.evict("w", START + timedelta(seconds=2))
    assert held(state) == [1, 2, 2, 3]  # batch 1 still has a tuple of second 2
    state.evict("w", START + timedelta(seconds=2, microseconds=1))
    assert held(state) == [2, 3]
    state.evict("w", START + timedelta(seconds=9))
    assert state.read("w", SCHEMA) is None


def test_many_small_batches_become_one(spark: SparkSession, tmp_path: Path) -> None:
    state = SpeState(spark, str(tmp_path))
    merged = 0
    for batch in range(20):
        state.write("w", batch, numbers(spark, batch), "t")
        merged += state.compact("w", SCHEMA, "t", START + timedelta(seconds=3))
    assert merged == 1
    assert len(entries(state)) == 4  # 0 to 16, 17, 18, 19
    assert held(state) == list(range(3, 20))
    state.evict("w", START + timedelta(seconds=17))
    assert held(state) == [17, 18, 19]


def test_a_crash_in_the_middle_of_a_merge(spark: SparkSession, tmp_path: Path) -> None:
    state = SpeState(spark, str(tmp_path))
    for batch in range(19):
        state.write("w", batch, numbers(spark, batch), "t")
    copy = tmp_path / "before"
    shutil.copytree(tmp_path / "w", copy)
    assert state.compact("w", SCHEMA, "t", START)
    for entry in copy.iterdir():  # it fell before the small ones were deleted
        shutil.copytree(entry, tmp_path / "w" / entry.name, dirs_exist_ok=True)
    (tmp_path / "w" / "_writing-19").mkdir()  # and while a batch was written
    (tmp_path / "w" / "_writing-19" / "part-0.parquet").write_bytes(b"half")
    assert len(entries(state)) == 21
    again = SpeState(spark, str(tmp_path))
    assert held(again) == list(range(19))
    again.write("w", 18, numbers(spark, 18), "t")
    again.evict("w", START)
    assert held(again) == list(range(19))
    assert len(entries(again)) == 3


def test_a_store_may_be_written_from_what_it_holds(state: SpeState, spark: SparkSession) -> None:
    state.write("w", 0, numbers(spark, 1, 2), "t")
    before = state.read("w", SCHEMA)
    assert before is not None
    state.write("w", 0, before.where("x > 1"), "t")
    assert held(state) == [2]


# -- tuple-driven -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sql", "windows"), TUPLE_DRIVEN)
def test_tuple_driven(sql: str, windows: dict[str, tuple[str, int]], recording: Recording) -> None:
    prepared = Prepared.of(sql, recording.catalog)
    plan, spark = prepared.plans[-1], recording.spark
    names = {id(node): f"in_{i}" for i, node in enumerate(operators(plan))}
    instants = [START + timedelta(seconds=i / 4) for i in range(-1, 80)]
    expected = {at: arrivals(recording.connection, sql, windows, at) for at in instants}
    assert sum(map(len, expected.values())) > 0
    edges = [START + timedelta(seconds=s) for s in (-1, 2, 2.25, 9, 21)]

    def evaluated(node: Node, span: Span) -> DataFrame:
        sources: dict[str, DataFrame] = {}
        shipped: dict[int, str] = {}
        for below in inputs(node):
            match below:
                case Window():
                    sources[f"win_{below.alias}"] = recording.frames[below.stream]
                case StoredTable():
                    sources[below.table] = recording.frames[below.table]
                case _:
                    shipped[id(below)] = names[id(below)]
                    frame = evaluated(below, Span(EPOCH, span.until))
                    own = {flat: name for (_, name), flat in flat_names(below).items()}
                    sources[names[id(below)]] = frame.withColumnsRenamed(own) if is_store(below) else frame
        return spark_fragment(spark, node, sources, shipped, span, recording.catalog)

    def is_store(node: Node) -> bool:
        while isinstance(node, Select):
            node = node.input
        return isinstance(node, Window)

    for since, until in pairwise(edges):
        flat = flat_names(plan.input)
        frame = evaluated(plan.input, Span(since, until))
        found = [
            tuple(row)
            for row in frame.select(*(flat[i.expression.table, i.expression.name] for i in plan.items)).collect()
        ]
        want = [row for at, rows in expected.items() if since < at <= until for row in rows]
        assert same(found, want), f"{show(plan)}\n{since} to {until}: {found}, expected {want}"
    assert not spark.sql("SHOW VIEWS IN global_temp").where("namespace = 'global_temp'").collect()
