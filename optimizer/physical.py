"""The physical plan: for every operator the engine it runs in, one MIG per DB-op, and what all that costs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from costmodel.cost import PlanCost
from costmodel.flow import Drive, Source
from costmodel.operators import AggregateForm
from optimizer.algebra import (
    Aggregate,
    Join,
    Leaf,
    Node,
    Project,
    Relational,
    RelationToStream,
    Select,
    Window,
    describe,
    fingerprint,
    inputs,
    leaves,
    operators,
    post_order,
)
from optimizer.costing import Costing, OperatorCost
from optimizer.placement.problem import PlacementProblem, Site, Units, db_op_u, evaluate, fragments
from optimizer.sql.render import fragment_sql
from optimizer.sql.several import compared

LOOP = "loop"


class Where(StrEnum):
    SPE = "spe"
    DB = "db"


@dataclass(frozen=True, slots=True)
class PlanLeaf:
    id: str
    node: Leaf
    rate: float
    size: float
    source: Source


@dataclass(frozen=True, slots=True)
class PlanOperator:
    """One relational operator where it runs. `u` of a DB operator is its part of its MIG's."""

    id: str
    kind: str
    node: Relational
    where: Where
    inputs: tuple[str, ...]
    rate_in: float
    rate_out: float
    size: float
    u: float
    unit: str
    mig: str | None
    form: str | None
    source: Source
    text: str


@dataclass(frozen=True, slots=True)
class Mig:
    """A DB-op as deployed: the operators it holds, what it ships in, its SQL, and what its u is made of."""

    id: str
    engine: str
    operators: tuple[str, ...]
    ships: tuple[str, ...]
    sql: str
    u: float
    execution: float
    send: float
    fetch: float


@dataclass(frozen=True, slots=True)
class Unit:
    """What runs on its own: an operator, a MIG, or the stream engine's loop."""

    id: str
    u: float


@dataclass(frozen=True)
class PhysicalPlan:
    id: str
    tree: RelationToStream
    drive: Drive
    ticks: float
    database: str
    units_are: Units
    leaves: tuple[PlanLeaf, ...]
    operators: tuple[PlanOperator, ...]
    migs: tuple[Mig, ...]
    units: tuple[Unit, ...]
    loop: float  # of the loop itself
    cost: PlanCost

    def signature(self) -> tuple[str, tuple[bool, ...]]:
        """What makes two plans the same whatever they cost: the logical plan and the placement."""
        return fingerprint(self.tree), tuple(o.where is Where.DB for o in self.operators)


def operator_ids(tree: RelationToStream) -> dict[int, str]:
    """Readable names, by identity of the node: `select.p`, `agg1`, `join2`, `result`; a leaf goes by its alias."""
    ids: dict[int, str] = {}
    counts: dict[str, int] = {}
    for node in post_order(tree):
        match node:
            case Select():
                below = node.input
                name = f"select.{below.alias}" if isinstance(below, Leaf | Aggregate | Project) else "select"
            case Join():
                name = "join"
            case RelationToStream():
                continue
            case _:
                name = node.alias
        if name in ("select", "join"):
            counts[name] = counts.get(name, 0) + 1
            name = f"{name}{counts[name]}"
        ids[id(node)] = name
    return ids


def placement_problem(tree: RelationToStream, costing: Costing, units: Units) -> PlacementProblem:
    """Phase two's numbers for a logical plan; operators in post-order, as `operators` lists them."""
    nodes = operators(tree)
    number = {id(node): i for i, node in enumerate(nodes)}
    sites = []
    for node, cost in zip(nodes, _costs(tree, costing), strict=True):
        below = tuple(number[id(b)] for b in inputs(node) if id(b) in number)
        # Where all units share the loop, it does not matter whose account it goes to.
        fetch = cost.fetch + (cost.instead if units is Units.LOOP else 0.0)
        sites.append(Site(below, cost.spe, cost.db, cost.send, fetch))
    return PlacementProblem(tuple(sites), costing.engines.db_fixed, costing.loop, units)


def _costs(tree: RelationToStream, costing: Costing) -> list[OperatorCost]:
    nodes = operators(tree)
    found = [costing.root_cost(node) if node is nodes[-1] else costing.cost(node) for node in nodes]
    panes = {id(n): "" for n, cost in zip(nodes, found, strict=True) if cost.db_form is AggregateForm.PANE}
    for node in nodes if panes and one_tick(tree) else ():
        if (parts := compared(node, panes)) is not None:
            # Taken as if the aggregate were in the database, too: a join without it seldom is.
            join = next(i for i, n in enumerate(nodes) if n is parts.join)
            saved = costing.engines.db_shared(costing.flow(parts.join.left), costing.flow(parts.join.right))
            found[join] = replace(found[join], db=found[join].db - saved)
    return found


def physical_plan(
    tree: RelationToStream, costing: Costing, problem: PlacementProblem, in_db: Sequence[bool]
) -> PhysicalPlan:
    nodes, ids = operators(tree), operator_ids(tree)
    costs = _costs(tree, costing)
    mig_of: dict[int, str] = {}
    migs = []
    instead: dict[int, float] = {}  # by SPE-op
    for k, members in enumerate(fragments(problem, in_db), 1):
        in_mig = [(nodes[i], costs[i]) for i in members]
        root = members[-1]
        if saved := problem.sites[root].fetch - costs[root].fetch:
            above = next(i for i, site in enumerate(problem.sites) if root in site.inputs)
            instead[above] = instead.get(above, 0.0) + saved
        mig = _mig(f"mig{k}", in_mig, costing, ids, tree, db_op_u(problem, members) - saved)
        migs.append(mig)
        mig_of |= dict.fromkeys(members, mig.id)
    for i, more in instead.items():
        form = AggregateForm.RELATION if costs[i].form else None
        costs[i] = replace(costs[i], spe=costs[i].spe + more, form=form)
    placed = tuple(
        _operator(node, costs[i], costing, ids, mig_of.get(i), problem.units) for i, node in enumerate(nodes)
    )
    found = {id(leaf): leaf for leaf in leaves(tree)}.values()
    flows = [(leaf, costing.flow(leaf)) for leaf in found]
    plan_leaves = tuple(PlanLeaf(leaf.alias, leaf, f.rate, f.size, f.source) for leaf, f in flows)
    cost = evaluate(problem, in_db)
    units = _units(problem, placed, migs)
    shape = [f"{o.id} {o.where.value} {o.inputs} {o.text}" for o in placed] + [describe(leaf) for leaf, _ in flows]
    body = f"{shape} {describe(tree)} {costing.database.name}"  # no costs: one plan has one id at all rates
    return PhysicalPlan(
        hashlib.sha256(body.encode()).hexdigest()[:16],
        tree,
        costing.engines.drive,
        costing.engines.ticks,
        costing.database.name,
        problem.units,
        plan_leaves,
        placed,
        tuple(migs),
        units,
        problem.loop,
        cost,
    )


def _operator(
    node: Relational, cost: OperatorCost, costing: Costing, ids: dict[int, str], mig: str | None, units: Units
) -> PlanOperator:
    where = Where.SPE if mig is None else Where.DB
    out = costing.flow(node)
    name = ids[id(node)]
    if units is Units.OPERATOR:
        unit = mig or name
    else:
        unit = mig if mig and units is Units.ENGINE else LOOP
    return PlanOperator(
        name,
        kind_of(node),
        node,
        where,
        tuple(ids[id(below)] for below in inputs(node)),
        sum(costing.flow(below).rate for below in inputs(node)),
        out.rate,
        out.size,
        cost.spe if mig is None else cost.db,
        unit,
        mig,
        _form(cost.form if mig is None else cost.db_form),
        out.source,
        describe(node),
    )


def _form(form: AggregateForm | None) -> str | None:
    return form.value if form else None


def kind_of(node: Relational) -> str:
    return type(node).__name__.lower()


def _mig(
    name: str,
    placed: list[tuple[Relational, OperatorCost]],
    costing: Costing,
    ids: dict[int, str],
    tree: RelationToStream,
    u: float,
) -> Mig:
    members = [node for node, _ in placed]
    inside = {id(node) for node in members}
    below = [b for node in members for b in inputs(node) if id(b) not in inside and not isinstance(b, Leaf)]
    shipped = {id(b): store_name(b, ids) for b in below}
    send = sum(cost.windows for _, cost in placed) + sum(costing.cost(b).send for b in below)
    windows = [b.alias for node in members for b in inputs(node) if isinstance(b, Window)]
    panes = {id(n): pane_name(ids[id(n)]) for n, cost in placed if cost.db_form is AggregateForm.PANE}
    sql = fragment_sql(members[-1], shipped, costing.engines.drive, one_tick(tree), costing.database.dialect, panes)
    return Mig(
        name,
        costing.database.name,
        tuple(ids[id(node)] for node in members),
        (*windows, *(ids[key] for key in shipped)),
        sql,
        u,
        costing.engines.db_fixed,
        send,
        placed[-1][1].fetch,
    )


def one_tick(tree: RelationToStream) -> bool:
    """Whether all windows move together, so that one instant says where each of them stands."""
    return len({(leaf.spec.unit, leaf.spec.slide) for leaf in leaves(tree) if isinstance(leaf, Window)}) <= 1


def pane_name(operator: str) -> str:
    """The table of an aggregate's panes."""
    return f"pane_{operator}"


def store_name(node: Node, ids: dict[int, str]) -> str:
    """A selection right above a window fills the window's store; anything else a table of its own."""
    base = node
    while isinstance(base, Select):
        base = base.input
    if isinstance(base, Window):
        return f"win_{base.alias}"
    return f"in_{ids[id(node)].replace('.', '_')}"


def _units(problem: PlacementProblem, placed: tuple[PlanOperator, ...], migs: list[Mig]) -> tuple[Unit, ...]:
    spe = [o for o in placed if o.where is Where.SPE]
    match problem.units:
        case Units.OPERATOR:
            found = [Unit(LOOP, problem.loop), *(Unit(o.id, o.u) for o in spe), *(Unit(m.id, m.u) for m in migs)]
        case Units.ENGINE:
            found = [Unit(LOOP, problem.loop + sum(o.u for o in spe)), *(Unit(m.id, m.u) for m in migs)]
        case Units.LOOP:
            found = [Unit(LOOP, problem.loop + sum(o.u for o in spe) + sum(m.u for m in migs))]
    return tuple(found)


def engine_name(operator: PlanOperator, database: str) -> str:
    return "spark" if operator.where is Where.SPE else database
