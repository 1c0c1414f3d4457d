"""Estimates against measurements, operator by operator: the q-error of rates, sizes and u over full windows.

Half of all operators, most of them selections, are estimated and measured at less than a thousandth of a second per
second. By the rules of an analysis their error is 1, which says nothing of the model: the spread of u leaves them out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median, quantiles

from connectors.spark.sliding import Form
from migration.analysis import SMALLEST_U, Analysis
from migration.analyze import Recorder, Trial, analyze_deployment
from optimizer.algebra import Window, leaves
from service.bench.figure5 import HOPELESS
from service.bench.lab import Job, Lab, OutOfTime
from service.bench.plans import ALL_IN_SPARK, Candidate, Kind, Query, candidate, with_plan
from service.bench.trial import How

BATCHES = 6  # as many as `Measured` leaves out, and as many again
KINDS = (Kind.OPTIMAL, Kind.PANE, Kind.DB)


@dataclass(frozen=True)
class OperatorErrors:
    query: str
    database: str
    rate: float
    kind: Kind
    operator: str
    engine: str
    rate_error: float
    size_error: float
    u_estimated: float
    u_measured: float
    u_error: float

    @property
    def works(self) -> bool:
        """Whether there is anything to compare: one of the two figures is above what counts as nothing."""
        return max(self.u_estimated, self.u_measured) > SMALLEST_U


@dataclass(frozen=True)
class Spread:
    median: float
    p95: float
    worst: float


@dataclass(frozen=True)
class Accuracy:
    operators: tuple[OperatorErrors, ...]
    rates: Spread | None
    sizes: Spread | None
    u: Spread | None  # of operators that work
    working: int
    left_out: tuple[str, ...]


def run(lab: Lab, queries: Sequence[str], databases: Sequence[str], rate: float) -> Accuracy:
    found: list[OperatorErrors] = []
    jobs = []
    for kind in KINDS:
        for database in databases[:1] if kind in ALL_IN_SPARK else databases:
            for query in map(Query.example, queries):
                jobs.append(
                    Job(f"{query.name} {database} {kind}", partial(_probe, lab, query, database, kind, rate, found))
                )
    left_out = lab.run("q-errors", jobs)
    return summary(found, left_out)


def _probe(lab: Lab, query: Query, database: str, kind: Kind, rate: float, found: list[OperatorErrors]) -> None:
    optimized = query.optimized(rate, database)
    one = candidate(optimized, kind)
    if one.plan.cost.bottleneck > HOPELESS:
        return  # nothing comes to its end
    if lab.remaining < 20.0:
        raise OutOfTime
    analysis = analyzed(lab, query, one, database, rate)
    for o in analysis.operators:
        errors = (o.rate_out.q_error, o.size.q_error, o.u.estimated, o.u.measured, o.u.q_error)
        found.append(OperatorErrors(query.name, database, rate, kind, o.id, o.engine, *errors))


def analyzed(lab: Lab, query: Query, one: Candidate, database: str, rate: float) -> Analysis:
    """A plan over windows that are full from the start, with every operator measured."""
    assert one.how is not How.NATIVE
    batch = lab.limits.batch
    workload = replace(query.at(rate), pace="full", batch_seconds=batch, limit=BATCHES * batch)
    optimized = with_plan(query.optimized(rate, database), one.plan)
    optimized = replace(optimized, catalog=workload.catalog)
    longest = max(leaf.spec.size for leaf in leaves(one.plan.tree) if isinstance(leaf, Window)) / 1e6
    recorder = Recorder()
    with lab.fills.deployed(workload, one.plan, Form(one.how.value), recorder.batch) as deployment:
        try:
            trial = Trial(seconds=BATCHES * batch * lab.limits.give_up)
            return analyze_deployment(deployment, optimized, trial, recorder, longest)[0]
        finally:
            recorder.deployment = None


def summary(found: Sequence[OperatorErrors], left_out: tuple[str, ...]) -> Accuracy:
    def spread(of: Callable[[OperatorErrors], float]) -> Spread | None:
        return spread_of([of(o) for o in found])

    return Accuracy(
        tuple(found),
        spread(lambda o: o.rate_error),
        spread(lambda o: o.size_error),
        spread_of([o.u_error for o in found if o.works]),
        sum(o.works for o in found),
        left_out,
    )


def spread_of(values: Sequence[float]) -> Spread | None:
    """
    >>> spread_of([1.0, 2.0, 3.0])
    Spread(median=2.0, p95=2.9, worst=3.0)
    """
    if not values:
        return None
    high = quantiles(values, n=20, method="inclusive")[18] if len(values) > 1 else values[0]
    return Spread(median(values), high, max(values))
