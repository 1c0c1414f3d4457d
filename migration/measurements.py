"""From an observed run to measurements that profile numbers can be fitted to.

The plan is found again from its query, its windows are made as long as they were filled, and the model is asked, number
by number, how much of each goes into the run's cost (`costmodel.parameters`). A run gives up to five measurements, one
for each part of its time; every profile number belongs to one part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from costmodel.fit import Measurement
from costmodel.operators import AggregateForm
from costmodel.parameters import factors, parameters
from costmodel.profile import CalibrationProfile
from migration.observations import Observation
from optimizer.algebra import Node, RelationToStream, Window, transform
from optimizer.catalog import Catalog
from optimizer.costing import Costing
from optimizer.engines import Engine
from optimizer.optimize import Options, optimize
from optimizer.physical import Where, placement_problem
from optimizer.pinned import found_again
from optimizer.placement.problem import Units, evaluate

SMALLEST = 1e-4  # seconds of work per second of stream; less is noise
_RUN = ("execution", "select", "project", "aggregate", "pane_group", "group", "join_in", "join_out", "result")
_TICKS = ("window_row", "combine", "pane_group", "expand_group", "stage", "job", "aggregate", "join_in", "join_out")
_TICKS_TOO = ("window", "join", "probe", "project", "stored", "bring", "give", "merge")


def part_of(parameter: str) -> str:
    """Which part of a run's time a profile number is about.

    >>> part_of("duckdb.join_in"), part_of("spe.join_in"), part_of("postgres.send.row"), part_of("spe.batch")
    ('run', 'ticks', 'arrival', 'arrival')
    """
    engine, name, *_ = parameter.split(".")
    if engine == "spe":
        return "ticks" if name in (*_TICKS, *_TICKS_TOO) else "arrival"
    if name in (*_RUN, "functions"):
        return "run"
    return {"send": "arrival", "ship": "ship", "fetch": "fetch"}[name]


@dataclass(frozen=True)
class Seen:
    """A run's plan, with its windows as they were filled."""

    tree: RelationToStream
    in_db: Sequence[bool]
    form: AggregateForm | None
    engine: Engine
    catalog: Catalog
    batch_seconds: float

    def cost(self, profile: CalibrationProfile) -> float:
        as_run = replace(profile, batch_interval=self.batch_seconds)
        costing = Costing.of(self.tree, self.catalog, as_run, self.engine, self.form)
        return evaluate(placement_problem(self.tree, costing, Units.LOOP), self.in_db).utilization


def seen(observed: Observation, profile: CalibrationProfile) -> Seen | None:
    """The plan of a line; None where the optimizer no longer makes that plan of the query."""
    options = Options(database=observed.database, rates=observed.rates, profile=profile)
    optimized = optimize(observed.sql, observed.catalog, options)
    names = [o.id for o in optimized.plan.operators]
    in_db = {name: name in observed.in_database for name in {*names, *observed.in_database}}
    plan = found_again(observed.plan, in_db, observed.join_orders, optimized)
    if plan is None:
        return None

    def as_filled(node: Node) -> Node:
        if not isinstance(node, Window) or node.alias not in observed.filled:
            return node
        return replace(node, spec=replace(node.spec, size=observed.filled[node.alias]))

    tree = replace(plan.tree, input=transform(plan.tree.input, as_filled))
    forms = set(observed.forms.values())
    form = AggregateForm(forms.pop()) if len(forms) == 1 else None
    in_database = [o.where is Where.DB for o in plan.operators]
    return Seen(tree, in_database, form, optimized.database, optimized.catalog, observed.batch_seconds)


def measurements(observations: Iterable[Observation], profile: CalibrationProfile) -> Iterator[Measurement]:
    names = parameters(profile)
    for observed in observations:
        plan = seen(observed, profile)
        if plan is None:
            continue
        own = [n for n in names if n.split(".")[0] in ("spe", observed.database)]
        found = factors(plan.cost, profile, own)
        for part in ("run", "ticks", "fetch", "ship", "arrival"):
            seconds = getattr(observed.parts, part)
            terms = {name: factor for name, factor in found.items() if part_of(name) == part}
            if terms and seconds > SMALLEST:
                yield Measurement(part, f"{observed.what} ({observed.database})", seconds, terms)
