"""The paper's search: bottom-up enumeration of partial plans with pruning at SPE-ops (paper 001, section 7).

Of the partial plans rooted at an operator's SPE-op only the best is kept, of those rooted at a DB-op all are, since
what they cost is not known before the DB-op ends. It looks at whole plans only, so it also serves where the cost of a
DB-op is not a sum; the number of plans is exponential in the joins (Table 2: 11, 312 and 8411 plans).

Departures:
- Definition 1 leaves ties of infeasible plans, which are broken by Cu here. Under that order the best part is not
  always part of the best plan: of two infeasible parts the one with the smaller bottleneck is kept, and loses to the
  one with the smaller Cu when a later unit is the bottleneck of both. Hence a second pass with the bottleneck that
  the first has found as the limit of what is feasible; the best plan then is a feasible one, for which the paper's
  proof holds. `examined` counts one pass.
- Where all SPE-ops share a unit (`Units.ENGINE`), a part that is better may leave that unit fuller, and the proof
  fails: every SPE-rooted partial plan is kept that no other one beats in all of Cb, Cu and the work of the SPE-ops.
- A partial plan that needs an engine to run what it cannot is not built, and so not counted.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from optimizer.placement.limits import bits_of, exceeds, start_limit
from optimizer.placement.problem import Placement, PlacementProblem, Units, evaluate


class Partial(NamedTuple):
    """A plan of a subtree. What its root's DB-op costs so far is in `open`, not yet in the other two."""

    bottleneck: float
    utilization: float
    spe: float  # the work of its SPE-ops
    open: float
    in_db: int  # the database's operators, one bit each


def enumerate_placements(problem: PlacementProblem, feasibility_check: bool = True) -> Placement:
    """The best placement in the order of `PlanCost`; without the check, the one with the smallest Cu (section 8.4).

    >>> from optimizer.placement.problem import Site
    >>> chain = PlacementProblem((Site((), 0.2, 0.1, 0.1, 0.1), Site((0,), 0.9, 0.1, 0.1, 0.1)), fixed=0.1)
    >>> enumerate_placements(chain)
    Placement(in_db=(True, True), cost=PlanCost(bottleneck=0.4, utilization=0.4), examined=3, proven=True)
    """
    limit = start_limit(problem, feasibility_check)
    found = _one_pass(problem, limit)
    if exceeds(found.cost.bottleneck, limit):
        again = _one_pass(problem, found.cost.bottleneck)
        return Placement(again.in_db, again.cost, found.examined)
    return found


def _one_pass(problem: PlacementProblem, limit: float) -> Placement:
    """All plans up to the pruned ones, and the best of those with a bottleneck within `limit`, if there are any."""
    shared = problem.units is Units.ENGINE and limit < inf
    spe_rooted: list[list[Partial]] = []
    db_rooted: list[list[Partial]] = []
    closed: list[list[Partial]] = []

    def key(plan: Partial) -> tuple[float, float]:
        bottleneck = max(plan.bottleneck, problem.loop + plan.spe) if shared else plan.bottleneck
        return (bottleneck if exceeds(bottleneck, limit) else limit, plan.utilization)

    for i, site in enumerate(problem.sites):
        below = [Partial(0.0 if shared else site.spe, site.spe, site.spe, 0.0, 0)] if site.spe < inf else []
        for c in site.inputs:
            below = [_beside(a, b) for a in below for b in closed[c]]
        spe_rooted.append(_undominated(below, limit) if shared else below)

        merged = [Partial(0.0, 0.0, 0.0, site.db, 1 << i)] if site.db < inf else []
        for c in site.inputs:
            send = problem.sites[c].send
            tops = [plan._replace(open=send) for plan in spe_rooted[c]] + db_rooted[c]
            merged = [_beside(a, b) for a in merged for b in tops]
        db_rooted.append(merged)

        ended = spe_rooted[i] + [_close(plan, problem.fixed + site.fetch) for plan in merged]
        if not ended:
            raise ValueError(f"operator {i} can run in neither engine")
        # Above an SPE-op the rest of the plan costs the same whatever is below: one plan is enough.
        closed.append(_undominated(ended, limit) if shared else [min(ended, key=key)])

    if not problem.sites:
        return Placement((), evaluate(problem, ()), examined=0)
    in_db = bits_of(min(closed[-1], key=key).in_db, len(problem.sites))
    return Placement(in_db, evaluate(problem, in_db), examined=len(spe_rooted[-1]) + len(db_rooted[-1]))


def _beside(a: Partial, b: Partial) -> Partial:
    """Two parts of one plan; if both have an open DB-op, it is the same one."""
    return Partial(
        a.bottleneck if a.bottleneck > b.bottleneck else b.bottleneck,
        a.utilization + b.utilization,
        a.spe + b.spe,
        a.open + b.open,
        a.in_db | b.in_db,
    )


def _close(plan: Partial, ending: float) -> Partial:
    u = plan.open + ending
    return Partial(max(plan.bottleneck, u), plan.utilization + u, plan.spe, 0.0, plan.in_db)


def _undominated(plans: list[Partial], limit: float) -> list[Partial]:
    """The plans that no other one equals or beats in all three numbers; bottlenecks within the limit are all alike."""
    kept: list[Partial] = []
    for plan in sorted(plans, key=lambda p: (p.utilization, p.spe, p.bottleneck)):
        if not any(k.spe <= plan.spe and (k.bottleneck <= plan.bottleneck or k.bottleneck <= limit) for k in kept):
            kept.append(plan)
    return kept
