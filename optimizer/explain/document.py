"""The plan as a JSON document: a versioned schema for files, for REST, and for pinning a plan."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from costmodel.flow import Estimate
from optimizer.algebra import Window
from optimizer.explain.alternatives import Alternative
from optimizer.explain.explanation import Explanation
from optimizer.explain.ranges import Ranges, spread_of
from optimizer.explain.text import doubt_words, sweep_words
from optimizer.maximum import MaxRate
from optimizer.optimize import show
from optimizer.physical import Where, engine_name

SCHEMA_VERSION = 1


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CostDocument(_Document):
    bottleneck: float = Field(description="Cb: the busiest unit's seconds of work per second of stream")
    utilization: float = Field(description="Cu: seconds of work per second of stream, over all units")
    feasible: bool = Field(description="Cb is at most 1")
    max_rate: float | None = Field(
        description="tuples/s over all streams, scaled together, up to which it is feasible; null: see max_rate_note"
    )
    max_rates: dict[str, float] = Field(description="the same, by stream")
    max_rate_note: str = ""


class LeafDocument(_Document):
    id: str
    kind: Literal["window", "table"]
    relation: str
    window: str | None
    rate: float
    size: float
    source: str


class OperatorDocument(_Document):
    id: str
    kind: Literal["select", "project", "join", "aggregate"]
    engine: Literal["spe", "db"]
    runs_in: str = Field(description="the engine by name")
    inputs: list[str] = Field(description="ids of operators and leaves")
    rate_in: float
    rate_out: float
    size: float = Field(description="tuples of the operator's output at an instant")
    u: float = Field(description="seconds of work per second of stream; of a DB operator, its part of its MIG")
    unit: str = Field(description="what it shares a second per second with")
    mig: str | None
    form: str | None = Field(description="how an aggregate is run: expand, pane, relation; in a database pane or null")
    source: str = Field(description="where the rate out comes from, as weak as its weakest figure")
    text: str


class MigDocument(_Document):
    id: str
    engine: str
    sql: str
    operators: list[str]
    ships: list[str]
    u: float
    execution: float
    send: float
    fetch: float


class AlternativeDocument(_Document):
    name: str
    cost: CostDocument | None = Field(description="null where an engine cannot run the plan; note says why")
    spe: list[str]
    db: list[str]
    note: str


class IntervalDocument(_Document):
    low: float
    high: float
    feasible: bool
    plan: str
    spe: list[str]
    db: list[str]
    text: str


class EstimateDocument(_Document):
    what: str
    value: float
    source: str
    low: float | None = Field(default=None, description="with `high`, where the true figure lies in 95 of 100 samples")
    high: float | None = None
    sample: int | None = Field(default=None, description="tuples the interval rests on; 0 for a guess")


class RangeDocument(_Document):
    low: float
    high: float


class DoubtDocument(_Document):
    figure: str = Field(description="the figure on which the choice hangs")
    value: float = Field(description="from which on another plan is cheaper")
    upwards: bool = Field(description="whether above that value, or below it")
    low: float
    high: float
    plan: str = Field(description="the other plan's id")
    spe: list[str]
    db: list[str]
    text: str


class RangesDocument(_Document):
    """How certain costs and choice are: figures at the ends of their intervals, one at a time."""

    bottleneck: RangeDocument
    utilization: RangeDocument
    uncertain: int = Field(description="figures with an interval")
    tried: int = Field(description="of them, those at whose ends the query was optimized anew")
    doubts: list[DoubtDocument] = Field(description="empty where the same plan wins at all those ends")


class StepDocument(_Document):
    name: str
    plan: str


class SearchDocument(_Document):
    forms: int = Field(description="logical forms of the query, by moving aggregates")
    view: str = Field(description="whose unit costs gave the logical plan")
    join_orders: list[str]
    algorithms: list[str]
    pairs: int
    phase_two: str
    examined: int
    proven: bool
    bind_ms: float
    phase_one_ms: float
    phase_two_ms: float


class PlanDocument(_Document):
    """A physical plan and why it was chosen."""

    version: Literal[1] = 1
    id: str
    sql: str
    database: str
    profile: str
    drive: Literal["slide", "tuple"]
    ticks: float = Field(description="evaluations per second of stream")
    emission: Literal["rstream", "istream", "dstream"]
    columns: list[str]
    cost: CostDocument
    leaves: list[LeafDocument]
    operators: list[OperatorDocument] = Field(description="inputs before their operator, the root last")
    migs: list[MigDocument]
    units: dict[str, float]
    alternatives: list[AlternativeDocument]
    sweep: list[IntervalDocument]
    advice: list[str]
    estimates: list[EstimateDocument]
    search: SearchDocument
    trace: list[StepDocument]
    ranges: RangesDocument | None = Field(default=None, description="with ranges, where a figure is uncertain")
    profile_measured: str | None = Field(default=None, description="when the profile was measured, ISO date")
    profile_warning: str | None = Field(default=None, description="why the profile may not fit this machine")


def document(explanation: Explanation) -> PlanDocument:
    optimized = explanation.optimized
    plan, search = optimized.plan, optimized.search
    leaves = [
        LeafDocument(
            id=leaf.id,
            kind="window" if isinstance(leaf.node, Window) else "table",
            relation=leaf.node.stream if isinstance(leaf.node, Window) else leaf.node.table,
            window=str(leaf.node.spec) if isinstance(leaf.node, Window) else None,
            rate=leaf.rate,
            size=leaf.size,
            source=leaf.source.label,
        )
        for leaf in plan.leaves
    ]
    operators = [
        OperatorDocument(
            id=o.id,
            kind=o.kind,  # type: ignore[arg-type]
            engine=o.where.value,
            runs_in=engine_name(o, plan.database),
            inputs=list(o.inputs),
            rate_in=o.rate_in,
            rate_out=o.rate_out,
            size=o.size,
            u=o.u,
            unit=o.unit,
            mig=o.mig,
            form=o.form,
            source=o.source.label,
            text=o.text,
        )
        for o in plan.operators
    ]
    migs = [
        MigDocument(
            id=m.id,
            engine=m.engine,
            sql=m.sql,
            operators=list(m.operators),
            ships=list(m.ships),
            u=m.u,
            execution=m.execution,
            send=m.send,
            fetch=m.fetch,
        )
        for m in plan.migs
    ]
    return PlanDocument(
        id=plan.id,
        sql=optimized.sql,
        database=plan.database,
        profile=optimized.options.profile_name,
        drive=plan.drive.value,
        ticks=plan.ticks,
        emission=plan.tree.emission.value,
        columns=[item.name for item in plan.tree.items],
        cost=_cost(plan.cost.bottleneck, plan.cost.utilization, plan.cost.feasible, explanation.max_rate),
        leaves=leaves,
        operators=operators,
        migs=migs,
        units={unit.id: unit.u for unit in plan.units},
        alternatives=[_alternative(a) for a in explanation.alternatives],
        sweep=[
            IntervalDocument(
                low=i.low,
                high=i.high,
                feasible=i.feasible,
                plan=i.optimized.plan.id,
                spe=[o.id for o in i.optimized.plan.operators if o.where is Where.SPE],
                db=[o.id for o in i.optimized.plan.operators if o.where is Where.DB],
                text=sweep_words(i),
            )
            for i in explanation.sweep
        ],
        advice=list(explanation.advice),
        estimates=[_estimate(e, explanation.uncertain) for e in optimized.estimates],
        search=SearchDocument(
            forms=search.forms,
            view=search.view,
            join_orders=[r.order for r in search.regions],
            algorithms=[r.algorithm for r in search.regions],
            pairs=sum(r.pairs for r in search.regions),
            phase_two=search.phase_two,
            examined=search.examined,
            proven=search.proven,
            bind_ms=search.bind_ms,
            phase_one_ms=search.phase_one_ms,
            phase_two_ms=search.phase_two_ms,
        ),
        trace=[StepDocument(name=s.name, plan=show(s.tree)) for s in optimized.steps] if explanation.trace else [],
        ranges=_ranges(explanation.ranges) if explanation.ranges else None,
        profile_measured=optimized.options.profile.measured,
        profile_warning=explanation.profile.warning,
    )


def _estimate(e: Estimate, with_guesses: bool) -> EstimateDocument:
    spread = spread_of(e) if with_guesses else e.spread
    if spread is None:
        return EstimateDocument(what=e.what, value=e.value, source=e.source.label)
    return EstimateDocument(
        what=e.what, value=e.value, source=e.source.label, low=spread.low, high=spread.high, sample=spread.sample
    )


def _ranges(found: Ranges) -> RangesDocument:
    return RangesDocument(
        bottleneck=RangeDocument(low=found.bottleneck.low, high=found.bottleneck.high),
        utilization=RangeDocument(low=found.utilization.low, high=found.utilization.high),
        uncertain=found.uncertain,
        tried=found.tried,
        doubts=[
            DoubtDocument(
                figure=d.figure,
                value=d.value,
                upwards=d.upwards,
                low=d.spread.low,
                high=d.spread.high,
                plan=d.other.id,
                spe=[o.id for o in d.other.operators if o.where is Where.SPE],
                db=[o.id for o in d.other.operators if o.where is Where.DB],
                text=doubt_words(d),
            )
            for d in found.doubts
        ],
    )


def _cost(bottleneck: float, utilization: float, feasible: bool, limit: MaxRate) -> CostDocument:
    return CostDocument(
        bottleneck=bottleneck,
        utilization=utilization,
        feasible=feasible,
        max_rate=limit.total,
        max_rates=dict(limit.streams),
        max_rate_note=limit.note,
    )


def _alternative(a: Alternative) -> AlternativeDocument:
    cost = None
    if a.cost is not None:
        limit = a.max_rate or MaxRate(None, {}, "worked out with why_not")
        cost = _cost(a.cost.bottleneck, a.cost.utilization, a.cost.feasible, limit)
    return AlternativeDocument(name=a.name, cost=cost, spe=list(a.in_spark), db=list(a.in_database), note=a.note)
