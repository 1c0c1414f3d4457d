"""The optimizer as a whole: placement under hints, capabilities, rates, and what it says of the plans it rejects."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from math import inf, isclose
from pathlib import Path

import pytest

from costmodel.profile import default_profile
from optimizer.costing import Costing
from optimizer.errors import HintError, SqlError
from optimizer.explain.alternatives import pure_plans, rejected_plans
from optimizer.explain.explanation import SweepRange, explain_plan
from optimizer.explain.sweep import sweep
from optimizer.hints import Hints
from optimizer.maximum import max_rate
from optimizer.optimize import Optimized, Options, Search, optimize, replanned
from optimizer.physical import Where, placement_problem
from optimizer.placement.problem import Units, evaluate

EXAMPLES = Path(__file__).parent.parent / "examples" / "smartplug"
CATALOG = (EXAMPLES / "catalog.sql").read_text()


SPREAD = "spread"  # an aggregate that no database makes from panes


def cq(number: int | str, rate: float = 20_000.0, **options: object) -> Optimized:
    sql = (EXAMPLES / (f"{number}.sql" if number == SPREAD else f"cq{number}.sql")).read_text()
    return optimize(sql, CATALOG, Options(rates={"plugs": rate}, **options))  # type: ignore[arg-type]


def where(optimized: Optimized) -> dict[str, Where]:
    return {o.id: o.where for o in optimized.plan.operators}


@pytest.mark.parametrize("number", range(1, 7))
@pytest.mark.parametrize("database", ["duckdb", "postgres"])
@pytest.mark.parametrize("units", list(Units))
def test_the_plan_is_the_best_of_all_placements(number: int, database: str, units: Units) -> None:
    found = cq(number, database=database, units=units)
    problem = found.problem
    every = [evaluate(problem, placed) for placed in product((False, True), repeat=len(problem.sites))]
    assert isclose(found.plan.cost.key[0], min(every).key[0], rel_tol=1e-9)
    assert isclose(found.plan.cost.key[1], min(every).key[1], rel_tol=1e-9)


def test_the_searches_agree() -> None:
    exact, paper = cq(6, units=Units.OPERATOR), cq(6, units=Units.OPERATOR, search=Search.PAPER)
    assert exact.plan.signature() == paper.plan.signature()
    assert exact.search.examined == 0
    assert paper.search.examined == 32
    assert cq(6, units=Units.OPERATOR, search=Search.DECOMPOSED).plan.cost == exact.plan.cost


def test_selections_run_in_spark_and_the_window_in_the_database() -> None:
    """The plan of paper 001, section 8.3, for CQ1: less is shipped."""
    assert where(cq(1)) == {
        "select.p": Where.SPE,
        "select.q": Where.SPE,
        "agg1": Where.DB,
        "join1": Where.DB,
        "agg2": Where.DB,
    }
    (mig,) = cq(1).plan.migs
    assert mig.operators == ("agg1", "join1", "agg2")
    assert set(mig.ships) == {"select.p", "select.q"}


def test_spark_keeps_nothing_of_what_the_database_selects() -> None:
    """It gets the tuples anew at each tick: neither a window of its own nor panes are paid for."""
    ways = [Hints({"select.q": where, "agg1": Where.SPE, "select.p": Where.SPE, "join1": Where.SPE}) for where in Where]
    own, fetched = (cq(1, hints=h).plan for h in ways)
    aggregate = {o.id: o for o in own.operators}["agg1"], {o.id: o for o in fetched.operators}["agg1"]
    assert (aggregate[0].form, aggregate[1].form) == ("pane", "relation")
    spe, batches = default_profile().spe, 1 / default_profile().batch_interval
    assert aggregate[1].u == pytest.approx(batches * spe.stage + 3_000_000 * spe.aggregate)
    for plan in (own, fetched):
        parts = sum(o.u for o in plan.operators if o.where is Where.SPE) + sum(m.u for m in plan.migs)
        assert plan.cost.utilization == pytest.approx(plan.loop + parts)
        assert all(m.fetch >= 0 for m in plan.migs)


def test_what_a_mig_costs_adds_up() -> None:
    found = cq(1, rate=10_000.0, database="postgres")
    (mig,) = found.plan.migs
    parts = {o.id: o.u for o in found.plan.operators}
    assert isclose(mig.u, sum(parts[o] for o in mig.operators) + mig.execution + mig.send + mig.fetch)
    loop = next(u for u in found.plan.units if u.id == "loop")
    assert isclose(loop.u, found.plan.loop + parts["select.p"] + parts["select.q"] + mig.u)
    assert found.plan.cost.bottleneck == loop.u


# -- hints ------------------------------------------------------------------------------------------------------------


def test_forcing_an_operator() -> None:
    assert where(cq(1, hints=Hints(force={"agg2": Where.SPE})))["agg2"] is Where.SPE
    streams = where(cq(1, hints=Hints(force={"plugs": Where.DB})))
    assert streams["select.p"] is streams["select.q"] is Where.DB


def test_forcing_costs_what_the_forced_placement_costs() -> None:
    forced = cq(1, hints=Hints(force={"agg2": Where.SPE}))
    at = [o.id for o in forced.plan.operators].index("agg2")
    every = product((False, True), repeat=len(forced.problem.sites))
    best = min(evaluate(forced.problem, placed) for placed in every if not placed[at])
    assert forced.plan.cost == best


def test_phase_two_off_is_all_spark() -> None:
    assert set(where(cq(3, hints=Hints(phase_two=False))).values()) == {Where.SPE}


@pytest.mark.parametrize(
    ("force", "says"),
    [
        ({"agg9": Where.DB}, "nothing is called agg9: the plan has the operators select.p, select.q, agg1"),
        ({"plugs": Where.DB, "select.p": Where.SPE}, "the hints on select.p contradict each other"),
    ],
)
def test_hints_that_cannot_hold(force: dict[str, Where], says: str) -> None:
    with pytest.raises(HintError) as error:
        cq(1, hints=Hints(force=force))
    assert says in str(error.value)


# -- capabilities -----------------------------------------------------------------------------------------------------

QUANTILE = """
SELECT plug_id, APPROX_QUANTILE(value, 0.5) AS middle
FROM plugs [RANGE 1 MINUTE SLIDE 1 SECOND] WHERE property = 1 GROUP BY plug_id
"""
SIMILAR = """
SELECT a.name, COUNT(*) AS hits
FROM names [RANGE 1 MINUTE SLIDE 1 SECOND] AS a, names [RANGE 1 MINUTE SLIDE 1 SECOND] AS b
WHERE JARO_WINKLER_SIMILARITY(a.name, b.name) > 0.9 GROUP BY a.name
"""
NAMES = "CREATE STREAM names (ts TIMESTAMP, name VARCHAR, WATERMARK FOR ts AS ts) WITH (rate = 100)"


def test_a_function_the_database_lacks_stays_in_spark() -> None:
    plan = optimize(QUANTILE, CATALOG, Options(database="postgres"))
    assert where(plan)["agg1"] is Where.SPE
    at = [o.id for o in plan.plan.operators].index("agg1")
    assert plan.problem.sites[at].db == inf
    assert plan.problem.sites[at].spe < inf


def test_a_function_spark_lacks_goes_to_the_database() -> None:
    plan = optimize(SIMILAR, NAMES)
    assert where(plan)["join1"] is Where.DB
    everything = next(a for a in pure_plans(plan, limits=False) if a.name == "all in spark")
    assert everything.cost is None
    assert "spark has no JARO_WINKLER_SIMILARITY, which join1 needs" in everything.note


def test_a_function_no_engine_of_the_deployment_has() -> None:
    with pytest.raises(HintError, match=r"join1 can run in neither engine: spark has no JARO_WINKLER_SIMILARITY"):
        optimize(SIMILAR, NAMES, Options(database="postgres"))


def test_forcing_an_operator_where_it_cannot_run() -> None:
    with pytest.raises(HintError, match="agg1 cannot run in postgres, which has no ApproxQuantile"):
        optimize(QUANTILE, CATALOG, Options(database="postgres", hints=Hints(force={"agg1": Where.DB})))


# -- stored tables ----------------------------------------------------------------------------------------------------

TABLES = (
    CATALOG
    + """
CREATE TABLE plans (house_id INT PRIMARY KEY, tariff INT) WITH (connector = 'postgres', rows = 1000000);
"""
)
JOINED = """
SELECT t.tariff, AVG(p.value) AS mean FROM plugs [RANGE 1 MINUTE SLIDE 1 SECOND] AS p
JOIN plans AS t ON p.house_id = t.house_id GROUP BY t.tariff
"""


def test_a_stored_table_is_joined_where_it_lives() -> None:
    at_home = optimize(JOINED, TABLES, Options(database="postgres"))
    assert where(at_home)["join1"] is Where.DB
    assert "t" not in at_home.plan.migs[0].ships
    join = next(i for i, o in enumerate(at_home.plan.operators) if o.id == "join1")
    abroad = optimize(JOINED, TABLES.replace("'postgres'", "'duckdb'"), Options(database="postgres"))
    assert abroad.problem.sites[join].db > 2 * at_home.problem.sites[join].db


# -- rates ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 3, 5, 6])
@pytest.mark.parametrize("database", ["duckdb", "postgres"])
def test_the_maximum_rate_is_where_feasibility_ends(number: int, database: str) -> None:
    found = cq(number, database=database)
    plan = found.plan
    limit = max_rate(plan.tree, found.in_db, found.costing, plan.units_are)
    assert limit.total is not None

    def feasible(rate: float) -> bool:
        costing = Costing.of(plan.tree, found.catalog.with_rates({"plugs": rate}), default_profile(), found.database)
        return evaluate(placement_problem(plan.tree, costing, plan.units_are), found.in_db).feasible

    assert feasible(limit.total * 0.998)
    assert not feasible(limit.total * 1.002)


def test_a_sweep_finds_where_the_plan_changes() -> None:
    start = cq(SPREAD, rate=1_000.0, database="postgres")
    intervals = sweep(start, "plugs", 1_000.0, 80_000.0)
    assert len(intervals) > 1
    assert intervals[0].low == 1_000.0
    assert intervals[-1].high == 80_000.0
    for one, after in pairwise(intervals):
        assert one.high == after.low
    for interval in intervals:
        middle = replanned(start, {"plugs": (interval.low * interval.high) ** 0.5})
        assert middle.plan.signature() == interval.optimized.plan.signature()
        assert middle.plan.cost.feasible == interval.feasible


def test_a_plan_has_one_id_at_all_rates() -> None:
    assert cq(1, rate=1_000.0).plan.id == cq(1, rate=30_000.0).plan.id
    slow, fast = (cq(SPREAD, rate=rate, database="postgres") for rate in (1_000.0, 100_000.0))
    assert slow.plan.id != fast.plan.id


def test_replanning_is_planning_anew() -> None:
    again = replanned(cq(3, rate=1_000.0), {"plugs": 30_000.0})
    assert again.plan.id == cq(3, rate=30_000.0).plan.id
    assert again.plan.cost == cq(3, rate=30_000.0).plan.cost


@pytest.mark.parametrize(
    ("stream", "low", "high", "says"),
    [("nothing", 1.0, 2.0, "no stream of the catalog"), ("plugs", 5.0, 5.0, "from a smaller to a larger")],
)
def test_sweeps_that_cannot_be(stream: str, low: float, high: float, says: str) -> None:
    with pytest.raises(HintError, match=says):
        explain_plan(cq(1), over=SweepRange(stream, low, high))


def test_rates_of_nothing_are_refused() -> None:
    with pytest.raises(HintError, match="the catalog has no such stream or table"):
        optimize(QUANTILE, CATALOG, Options(rates={"plgs": 10.0}))


# -- why not ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(1, 7))
def test_rejected_plans_are_worse(number: int) -> None:
    found = cq(number, database="postgres")
    others = pure_plans(found, limits=True) + rejected_plans(found)
    names = [a.name for a in others]
    assert names[:3] == ["all in spark", "all in postgres", "second-best placement"]
    for other in others:
        assert other.cost is not None
        assert other.cost >= found.plan.cost or isclose(other.cost.utilization, found.plan.cost.utilization)


def test_without_the_feasibility_check_only_utilization_counts() -> None:
    """Paper 001, section 8.4: an infeasible plan is taken where its utilization is smaller."""
    rate = 35_000.0
    checked = cq(6, rate=rate, database="postgres")
    unchecked = cq(6, rate=rate, database="postgres", feasibility_check=False)
    assert unchecked.plan.cost.utilization <= checked.plan.cost.utilization
    every = [
        evaluate(unchecked.problem, placed).utilization
        for placed in product((False, True), repeat=len(unchecked.problem.sites))
    ]
    assert isclose(unchecked.plan.cost.utilization, min(every))


# -- advice -----------------------------------------------------------------------------------------------------------


def advice_for(sql: str, catalog: str) -> str:
    return "\n".join(explain_plan(optimize(sql, catalog)).advice)


def test_advice() -> None:
    bare = "CREATE STREAM s (ts TIMESTAMP, k INT, v DOUBLE)"
    sql = "SELECT k, AVG(v) AS m FROM s [RANGE 10 MINUTES SLIDE 1 SECOND] GROUP BY k"
    lines = advice_for(sql, bare)
    assert "the slide of s is 600 times smaller than the window" in lines
    assert "stream s has no watermark" in lines
    assert "stream s has no rate in the catalog; 1,000 tuples/s is a guess" in lines
    assert "stream s has no statistics" in lines
    crossed = "SELECT COUNT(*) AS n FROM s [RANGE 1 SECOND SLIDE 1 SECOND] AS a, s [RANGE 1 SECOND SLIDE 1 SECOND] AS b"
    assert "cross product" in advice_for(crossed, bare)
    assert "cross product" not in lines
    assert "were size and slide meant the other way round?" in advice_for(
        "SELECT COUNT(*) AS n FROM HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '5' MINUTE, INTERVAL '1' SECOND)", bare
    )
    slow = "no plan keeps up at this rate; this one comes closest and holds up to"
    assert slow in "\n".join(explain_plan(cq(1, rate=5e6)).advice)


def test_a_slide_is_needed_where_something_is_evaluated_at_ticks() -> None:
    with pytest.raises(SqlError, match="has no SLIDE"):
        optimize("SELECT COUNT(*) AS n FROM plugs [RANGE 1 MINUTE]", CATALOG)


def test_a_projection_that_would_hide_arrival_times_is_refused() -> None:
    long = " + ".join(["COALESCE(plug_id, 1)"] * 40)
    sql = (
        f"SELECT a.z, b.value FROM (SELECT house_id, {long} AS z FROM plugs [RANGE 3 SECONDS]) AS a "
        "JOIN plugs [RANGE 2 SECONDS] AS b ON a.house_id = b.house_id"
    )
    with pytest.raises(SqlError, match="a column computed in a subquery has more than 60 parts"):
        optimize(sql, CATALOG)


def test_a_profile_without_the_database() -> None:
    profile = replace(default_profile(), databases={"duckdb": default_profile().databases["duckdb"]})
    with pytest.raises(HintError, match="has no costs for postgres"):
        optimize(QUANTILE, CATALOG, Options(database="postgres", profile=profile))
