"""The plans that the experiments compare: the optimizer's, all in Spark in three ways, all in the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256

from optimizer.costing import Costing
from optimizer.maximum import max_rate
from optimizer.optimize import Optimized, Options, optimize
from optimizer.physical import PhysicalPlan, Where, physical_plan, placement_problem
from optimizer.pinned import everywhere
from optimizer.placement.problem import Units
from service.bench.live import Workload
from service.bench.nway import smartplug
from service.bench.trial import How
from service.profile_lookup import find_profile

QUERIES = ("cq1", "cq2", "cq3", "cq4", "cq5", "cq6")
DATABASES = ("duckdb", "postgres")


@dataclass(frozen=True)
class Query:
    name: str
    sql: str

    @staticmethod
    def example(name: str) -> Query:
        return Query(name, smartplug(f"{name}.sql"))

    def at(self, rate: float) -> Workload:
        return Workload(self.name, self.sql, rate)

    def optimized(
        self, rate: float, database: str, feasibility_check: bool = True, units: Units | None = None
    ) -> Optimized:
        profile, name, _ = find_profile(None)
        options = Options(
            database=database, feasibility_check=feasibility_check, units=units, profile=profile, profile_name=name
        )
        return optimize(self.sql, self.at(rate).catalog, options)


class Kind(StrEnum):
    OPTIMAL = "optimal"
    PANE = "pane"
    EXPAND = "expand"
    NATIVE = "native"
    DB = "db"


ALL_IN_SPARK = (Kind.PANE, Kind.EXPAND, Kind.NATIVE)  # beside whatever database: it has a ledger to keep at most


@dataclass(frozen=True)
class Candidate:
    """A plan, and the way in which Spark aggregates its windows."""

    plan: PhysicalPlan
    how: How

    @property
    def id(self) -> str:
        """All in Spark is one plan beside any database."""
        if self.plan.migs:
            return f"{self.plan.id} {self.how}"
        shape = str([(o.id, o.inputs, o.text) for o in self.plan.operators])
        return f"{sha256(shape.encode()).hexdigest()[:16]} {self.how}"


def candidate(optimized: Optimized, kind: Kind) -> Candidate:
    match kind:
        case Kind.OPTIMAL:
            return Candidate(optimized.plan, way(optimized.plan))
        case Kind.DB:
            return Candidate(everywhere(optimized, Where.DB), How.PANE)
        case _:
            return Candidate(everywhere(optimized, Where.SPE), How(kind.value))


def way(plan: PhysicalPlan) -> How:
    """A deployment has one form for all aggregates: that of most of them in the plan, panes where they are equal."""
    forms = Counter(o.form for o in plan.operators if o.where is Where.SPE and o.form in (How.PANE, How.EXPAND))
    return How.EXPAND if forms[How.EXPAND] > forms[How.PANE] else How.PANE


def in_spark(plan: PhysicalPlan) -> tuple[str, ...]:
    return tuple(o.id for o in plan.operators if o.where is Where.SPE)


def predicted(plan: PhysicalPlan, optimized: Optimized) -> PhysicalPlan:
    """The same plan with the costs it has at the rates of `optimized`."""
    costing = _costing(plan, optimized)
    problem = placement_problem(plan.tree, costing, optimized.options.unit_rule)
    return physical_plan(plan.tree, costing, problem, [o.where is Where.DB for o in plan.operators])


def planned_at(query: Query, one: Candidate, rate: float) -> Candidate:
    """The same placement as it is deployed at a rate: which aggregates a database makes from panes depends on that."""
    return replace(one, plan=predicted(one.plan, query.optimized(rate, one.plan.database)))


def predicted_maximum(plan: PhysicalPlan, optimized: Optimized) -> float | None:
    """Tuples per second that the plan keeps up with, says the model."""
    in_db = [o.where is Where.DB for o in plan.operators]
    return max_rate(plan.tree, in_db, _costing(plan, optimized), optimized.options.unit_rule).total


def _costing(plan: PhysicalPlan, optimized: Optimized) -> Costing:
    """Costs go by the nodes of a tree, and the plan may have one of its own."""
    return Costing.of(plan.tree, optimized.catalog, optimized.options.profile, optimized.database)


def with_plan(optimized: Optimized, plan: PhysicalPlan) -> Optimized:
    return replace(optimized, plan=plan)


def label(operators: Sequence[str]) -> str:
    """
    >>> label(["select.p"]), label([])
    ('select.p', 'nothing')
    """
    return ", ".join(operators) or "nothing"
