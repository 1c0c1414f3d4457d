"""From SQL and a catalog to the best physical plan: the steps, in the order in which they are taken."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from time import perf_counter

from costmodel.flow import Drive, Estimate
from costmodel.profile import CalibrationProfile, default_profile
from optimizer.algebra import RelationToStream, Tree, Window, describe, inputs, leaves
from optimizer.catalog import Catalog
from optimizer.costing import Costing
from optimizer.engines import Engine, database
from optimizer.errors import HintError, SqlError, position_at
from optimizer.estimate import drive_of
from optimizer.hints import Hints, forced
from optimizer.join_order.eager_aggregation import forms
from optimizer.join_order.phase_one import PAIR_BUDGET, LogicalPlan, RegionReport, Shared, View, as_written, order_joins
from optimizer.physical import PhysicalPlan, physical_plan, placement_problem
from optimizer.placement.decompose import place_decomposed
from optimizer.placement.enumeration import enumerate_placements
from optimizer.placement.exact import place
from optimizer.placement.problem import Placement, PlacementProblem, Units
from optimizer.rewrite import PASSES
from optimizer.sql.bind import bind
from optimizer.sql.build import build
from optimizer.sql.ddl import parse_catalog
from optimizer.sql.parse import TOO_DEEP


class Search(StrEnum):
    """How phase two looks for the placement."""

    EXACT = "exact"
    PAPER = "paper"
    DECOMPOSED = "decomposed"


@dataclass(frozen=True)
class Options:
    database: str = "duckdb"
    rates: Mapping[str, float] = field(default_factory=dict)
    hints: Hints = field(default_factory=Hints)
    search: Search = Search.EXACT
    feasibility_check: bool = True
    units: Units | None = None  # the profile's, where not given
    pair_budget: int = PAIR_BUDGET
    profile: CalibrationProfile = field(default_factory=default_profile)
    profile_name: str = "default"

    @property
    def unit_rule(self) -> Units:
        return self.units or Units(self.profile.units)


@dataclass(frozen=True, slots=True)
class Step:
    """The plan after one step, for `--trace`."""

    name: str
    tree: RelationToStream


@dataclass(frozen=True, slots=True)
class SearchReport:
    """How the plan was found."""

    forms: int  # logical forms of the query, by moving aggregates
    view: str  # whose unit costs gave the logical plan
    regions: tuple[RegionReport, ...]
    phase_two: str
    examined: int
    proven: bool
    bind_ms: float
    phase_one_ms: float
    phase_two_ms: float


@dataclass(frozen=True, repr=False)
class Optimized:
    """A query's best plan, and all that explain needs to say why."""

    def __repr__(self) -> str:
        return f"<Optimized plan {self.plan.id}, {self.plan.cost}>"

    sql: str
    catalog: Catalog  # with the overrides
    options: Options
    written: RelationToStream  # after the rewrites, before phase one
    plan: PhysicalPlan
    problem: PlacementProblem  # phase two's, without hints
    costing: Costing
    search: SearchReport
    estimates: tuple[Estimate, ...]
    steps: tuple[Step, ...]
    in_db: tuple[bool, ...]

    @property
    def database(self) -> Engine:
        return database(self.options.database)


def read_query(sql: str, catalog: Catalog) -> tuple[RelationToStream, list[Step]]:
    """Parse, bind, decorrelate, rewrite; with the plan after each step."""
    try:
        plan = build(bind(sql, catalog), catalog, sql)
        steps = [Step("as written", plan)]
        for rule in PASSES:
            plan = rule(plan)
            steps.append(Step(rule.__name__.replace("_", " "), plan))
    except RecursionError:
        raise SqlError(TOO_DEEP, sql, position_at(sql, 0), "fewer nested parentheses or subqueries") from None
    _check_windows(plan, sql)
    return plan, steps


def _check_windows(plan: RelationToStream, sql: str) -> None:
    windows = [leaf for leaf in leaves(plan) if isinstance(leaf, Window)]
    if not windows:
        raise SqlError("the query reads no stream", sql, position_at(sql, 0), "FROM stream [RANGE … SLIDE …]")
    still = next((w for w in windows if w.spec.slide is None), None)
    if drive_of(plan) is Drive.SLIDE and still is not None:
        brackets = [m.start(1) for m in re.finditer(rf"\b{re.escape(still.stream)}\b\W?\s*(\[)[^]]*\]", sql, re.I)]
        without = [b for b in brackets if "SLIDE" not in sql[b : sql.find("]", b)].upper()]
        hint = f"{still.stream} {str(still.spec)[:-1]} SLIDE 1 SECOND]"
        message = f"the window of {still.alias} has no SLIDE, so an aggregate or RSTREAM has no tick to be evaluated at"
        raise SqlError(message, sql, position_at(sql, without[0] if without else 0), hint)


def optimize(sql: str, catalog: Catalog | str, options: Options | None = None) -> Optimized:
    """The best plan of a continuous query."""
    options = options or Options()
    parsed = parse_catalog(catalog) if isinstance(catalog, str) else catalog
    known = parsed.with_rates(options.rates)
    engine = database(options.database)
    if engine.name not in options.profile.databases:
        raise HintError(f"profile {options.profile_name} has no costs for {engine.name}; measure them or use another")
    started = perf_counter()
    written, steps = read_query(sql, known)
    return _optimize_tree(sql, written, tuple(steps), known, options, (perf_counter() - started) * 1000)


def _optimize_tree(
    sql: str, written: RelationToStream, steps: tuple[Step, ...], known: Catalog, options: Options, bind_ms: float
) -> Optimized:
    """The two phases, for a query that is read already."""
    engine = database(options.database)
    bound = perf_counter()
    costing = Costing.of(written, known, options.profile, engine)
    candidates = logical_plans(written, costing, known, options)
    ordered = perf_counter()
    placed = [_place(logical, costing, options) for logical in candidates]
    best = min(range(len(placed)), key=lambda i: placed[i][1].cost)
    logical, (problem, placement) = candidates[best], placed[best]
    plan = physical_plan(logical.logical.plan, costing, problem, placement.in_db)
    done = perf_counter()
    steps = (*steps, Step("phase one", logical.logical.plan))
    report = SearchReport(
        logical.forms,
        logical.view,
        logical.logical.regions,
        options.search.value if options.hints.phase_two else "off",
        placement.examined,
        placement.proven,
        bind_ms,
        (ordered - bound) * 1000,
        (done - ordered) * 1000,
    )
    # Estimated afresh, so that only the figures this plan rests on are named.
    final = costing.estimator.at(1.0)
    final.flow(plan.tree.input)
    estimates = tuple(final.notes.values())
    return Optimized(sql, known, options, written, plan, problem, costing, report, estimates, steps, placement.in_db)


@dataclass(frozen=True)
class Candidate:
    """A logical plan that phase two is asked about."""

    logical: LogicalPlan
    view: str
    forms: int


def logical_plans(written: RelationToStream, costing: Costing, catalog: Catalog, options: Options) -> list[Candidate]:
    """The best logical plan under each engine's unit costs, once where both agree."""
    hints = options.hints
    if not hints.phase_one:
        return [Candidate(as_written(written, costing), "as written", 1)]
    moved = forms(written, costing.estimator, catalog)
    found: dict[tuple[int, tuple[str, ...]], Candidate] = {}
    shared = Shared()
    for view in View:
        ordered = [order_joins(form, costing, view, options.pair_budget, hints.join_order, shared) for form in moved]
        which = min(range(len(moved)), key=lambda i: ordered[i].cost)
        orders = tuple(report.order for report in ordered[which].regions)
        found.setdefault((which, orders), Candidate(ordered[which], view.value, len(moved)))
    return list(found.values())


def _place(candidate: Candidate, costing: Costing, options: Options) -> tuple[PlacementProblem, Placement]:
    tree = candidate.logical.plan
    problem = placement_problem(tree, costing, options.unit_rule)
    return problem, search_placement(forced(problem, tree, options.hints, costing.database), options)


def search_placement(problem: PlacementProblem, options: Options) -> Placement:
    match options.search:
        case Search.EXACT:
            return place(problem, options.feasibility_check)
        case Search.PAPER:
            return enumerate_placements(problem, options.feasibility_check)
        case Search.DECOMPOSED:
            return place_decomposed(problem, feasibility_check=options.feasibility_check)


def replanned(optimized: Optimized, rates: Mapping[str, float]) -> Optimized:
    """The best plan of the same query at other rates."""
    options = replace(optimized.options, rates={**optimized.options.rates, **rates})
    return reoptimized(replace(optimized, options=options), optimized.catalog.with_rates(rates))


def reoptimized(optimized: Optimized, known: Catalog) -> Optimized:
    """The best plan of the same query under other statistics."""
    read = optimized.steps[:-1]  # all but phase one's
    written, options = optimized.written, optimized.options
    return _optimize_tree(optimized.sql, written, read, known, options, optimized.search.bind_ms)


def show(tree: RelationToStream) -> str:
    """A logical plan as an indented tree."""
    lines: list[str] = []
    stack: list[tuple[Tree, int]] = [(tree, 0)]
    while stack:
        node, depth = stack.pop()
        lines.append("  " * depth + describe(node))
        stack.extend((below, depth + 1) for below in reversed(inputs(node)))
    return "\n".join(lines)
