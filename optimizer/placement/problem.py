"""Phase two as numbers: an operator tree with the cost of each operator in either engine.

The searches of this package see nothing but a `PlacementProblem`; what the numbers mean for an engine is the cost
model's business. The u of a DB-op is a sum over its operators, plus transfers at its borders, plus one fixed part
(paper 001, section 5.1): merging two DB-ops saves a transfer and a fixed part, which is why it is not additive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from costmodel.cost import PlanCost


class Units(StrEnum):
    """What runs on its own, and so has a second per second to itself.

    `OPERATOR` is the paper's pipeline: every SPE-op and every DB-op is a unit. `ENGINE` is a micro-batch loop with
    pipelined MIGs: all SPE-ops share the loop, each DB-op is a unit. `LOOP` runs everything one after the other.
    """

    OPERATOR = "operator"
    ENGINE = "engine"
    LOOP = "loop"


@dataclass(frozen=True, slots=True)
class Site:
    """One relational operator and what it costs in either engine, in seconds of work per second of stream.

    `spe` or `db` is infinite where the engine cannot run the operator or a hint forbids it.
    """

    inputs: tuple[int, ...]  # operators right below, by index; each smaller than the operator's own
    spe: float  # as an SPE-op
    db: float  # its part of a DB-op, with the shipping of windows that stand right below it
    send: float  # shipping its output into the database, when it is an SPE-op below a DB-op
    fetch: float  # bringing its output back, when it is the root of a DB-op


@dataclass(frozen=True, slots=True)
class PlacementProblem:
    """Operators in post-order (inputs first, the root last), and what every plan pays."""

    sites: tuple[Site, ...]
    fixed: float  # of each DB-op
    loop: float = 0.0  # of the stream engine's loop itself, whatever is placed in it
    units: Units = Units.OPERATOR


@dataclass(frozen=True, slots=True)
class Placement:
    """Where each operator runs (True: database), what that costs, and how the search went."""

    in_db: tuple[bool, ...]
    cost: PlanCost
    examined: int  # partial plans built; 0 where the search does not enumerate plans
    proven: bool = True  # no better placement exists


def fragments(problem: PlacementProblem, in_db: Sequence[bool]) -> list[list[int]]:
    """The DB-ops of a placement: maximal connected groups of database operators, each with its root last.

    >>> chain = PlacementProblem((Site((), 1, 1, 0, 0), Site((0,), 1, 1, 0, 0), Site((1,), 1, 1, 0, 0)), fixed=0.1)
    >>> fragments(chain, (True, True, False))
    [[0, 1]]
    """
    group: dict[int, list[int]] = {}
    for i, site in enumerate(problem.sites):
        if in_db[i]:
            group[i] = [o for below in site.inputs if below in group for o in group.pop(below)] + [i]
    return list(group.values())


def db_op_u(problem: PlacementProblem, members: Sequence[int]) -> float:
    """The u of one DB-op, its root last in `members`."""
    inside = set(members)
    u = problem.fixed + problem.sites[members[-1]].fetch
    for i in members:
        u += problem.sites[i].db
        u += sum(problem.sites[below].send for below in problem.sites[i].inputs if below not in inside)
    return u


def evaluate(problem: PlacementProblem, in_db: Sequence[bool]) -> PlanCost:
    """The cost of a placement, straight from the definitions; every search is checked against this."""
    spe = [site.spe for i, site in enumerate(problem.sites) if not in_db[i]]
    db = [db_op_u(problem, members) for members in fragments(problem, in_db)]
    utilization = problem.loop + sum(spe) + sum(db)
    match problem.units:
        case Units.OPERATOR:
            bottleneck = max([problem.loop, *spe, *db])
        case Units.ENGINE:
            bottleneck = max([problem.loop + sum(spe), *db])
        case Units.LOOP:
            bottleneck = utilization
    return PlanCost(bottleneck, utilization)
