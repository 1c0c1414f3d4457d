"""The smallest sum of costs over a tree, with no limit on any unit: the first of the exact search's programs.

Per operator three numbers suffice: the best plan rooted at an SPE-op, the best one whose DB-op is still open at the
top, and (the smaller of the first and the second closed) the best plan of the subtree. The same numbers seen from
outside, what everything but a subtree costs at least, bound the searches that do have limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optimizer.placement.problem import PlacementProblem


@dataclass(frozen=True, slots=True)
class Prices:
    """A placement problem by columns, so that other numbers (whole ones, or with multipliers) can stand in."""

    inputs: Sequence[tuple[int, ...]]
    spe: Sequence[float]
    db: Sequence[float]
    send: Sequence[float]
    close: Sequence[float]  # what ending a DB-op at this operator adds: its fixed part and the fetch


@dataclass(frozen=True, slots=True)
class Best:
    """The smallest sums per operator: `spe` rooted at an SPE-op, `db` with the DB-op at the top still open."""

    spe: list[float]
    db: list[float]


def prices_of(problem: PlacementProblem) -> Prices:
    sites = problem.sites
    return Prices(
        inputs=[site.inputs for site in sites],
        spe=[site.spe for site in sites],
        db=[site.db for site in sites],
        send=[site.send for site in sites],
        close=[problem.fixed + site.fetch for site in sites],
    )


def inside(p: Prices) -> Best:
    """The best of each subtree.

    >>> from optimizer.placement.problem import Site
    >>> inside(prices_of(PlacementProblem((Site((), 1, 5, 1, 0), Site((0,), 9, 2, 0, 1)), fixed=0.5)))
    Best(spe=[1, 10], db=[5, 4])
    """
    best = Best([], [])
    for i, inputs in enumerate(p.inputs):
        spe, db = p.spe[i], p.db[i]
        for c in inputs:
            s, d = best.spe[c], best.db[c]
            spe += min(s, d + p.close[c])
            db += min(s + p.send[c], d)
        best.spe.append(spe)
        best.db.append(db)
    return best


def outside(p: Prices, best: Best) -> Best:
    """The best of everything but each subtree; where the subtree's top is an open DB-op, with what closes it."""
    n = len(p.inputs)
    out = Best([0.0] * n, [0.0] * n)
    if n:
        out.db[-1] = p.close[-1]
    for i in range(n - 1, -1, -1):
        inputs = p.inputs[i]
        below_spe = [min(best.spe[c], best.db[c] + p.close[c]) for c in inputs]
        below_db = [min(best.spe[c] + p.send[c], best.db[c]) for c in inputs]
        for k, c in enumerate(inputs):  # summed without k, not subtracted: the parts may be infinite
            under_spe = out.spe[i] + p.spe[i] + sum(below_spe[:k]) + sum(below_spe[k + 1 :])
            under_db = out.db[i] + p.db[i] + sum(below_db[:k]) + sum(below_db[k + 1 :])
            out.spe[c] = min(under_spe, under_db + p.send[c])
            out.db[c] = min(under_spe + p.close[c], under_db)
    return out


def cheapest(p: Prices, best: Best) -> tuple[bool, ...]:
    """A placement with the smallest sum: the choices behind `inside`, read from the root down."""
    n = len(p.inputs)
    in_db = [False] * n
    if n:
        in_db[-1] = best.db[-1] + p.close[-1] < best.spe[-1]
    for i in range(n - 1, -1, -1):
        for c in p.inputs[i]:
            s, d = best.spe[c], best.db[c]
            in_db[c] = d < s + p.send[c] if in_db[i] else d + p.close[c] < s
    return tuple(in_db)
