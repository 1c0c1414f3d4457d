"""The paper's way with large plans: cut them into subplans and place these one after the other (001, section 7).

Subplans are taken in post-order. When one is placed, those below it are settled, and each of their roots stands in for
its subplan: as an SPE-op that costs nothing more, or as a DB-op of which so much is spent already. The latter can be
merged with, which saves the fixed part and the fetch that it pays otherwise, so borders between subplans cost nothing
that the plan would not pay anyway. What is lost is foresight: a root is placed before what is above it is known.
"""

from __future__ import annotations

from math import inf

from optimizer.placement.enumeration import enumerate_placements
from optimizer.placement.problem import Placement, PlacementProblem, Site, Units, evaluate

LIMIT = 15  # operators in a subplan (section 8.2)


def place_decomposed(problem: PlacementProblem, limit: int = LIMIT, feasibility_check: bool = True) -> Placement:
    """The placement by subplans of at most `limit` operators; the best one if one subplan holds them all."""
    settled = _Settled(problem)
    examined = 0
    subplans = cut(problem, limit)
    for members in subplans:
        found = enumerate_placements(settled.subproblem(members), feasibility_check)
        examined += found.examined
        settled.settle(members, found.in_db[len(found.in_db) - len(members) :])
    in_db = tuple(settled.in_db)
    return Placement(in_db, evaluate(problem, in_db), examined, proven=len(subplans) == 1)


def cut(problem: PlacementProblem, limit: int) -> list[list[int]]:
    """Subplans of at most `limit` operators in post-order; where a subtree gets too large, its largest parts go.

    >>> chain = PlacementProblem(tuple(Site((i - 1,) if i else (), 1, 1, 0, 0) for i in range(5)), fixed=0)
    >>> cut(chain, 2)
    [[0, 1], [2, 3], [4]]
    """
    parts: dict[int, list[int]] = {}
    subplans: list[list[int]] = []
    for i, site in enumerate(problem.sites):
        below = sorted((parts.pop(c) for c in site.inputs), key=len)
        size = 1 + sum(len(part) for part in below)
        while size > limit and below:
            largest = below.pop()
            size -= len(largest)
            subplans.append(largest)
        parts[i] = [*sorted(o for part in below for o in part), i]
    return subplans + list(parts.values())


class _Settled:
    """What has been placed so far."""

    def __init__(self, problem: PlacementProblem) -> None:
        self.problem = problem
        self.in_db = [False] * len(problem.sites)
        self.open = [0.0] * len(problem.sites)  # of each settled database operator: the DB-op up to it
        self.loop = problem.loop

    def subproblem(self, members: list[int]) -> PlacementProblem:
        """The members with what stands right below them; the members come last."""
        sites: list[Site] = []
        index: dict[int, int] = {}
        inside = set(members)
        for c in (c for i in members for c in self.problem.sites[i].inputs if c not in inside):
            site = self.problem.sites[c]
            index[c] = len(sites)
            if self.in_db[c]:
                sites.append(Site((), spe=inf, db=self.open[c], send=0.0, fetch=site.fetch))
            else:
                sites.append(Site((), spe=0.0, db=inf, send=site.send, fetch=0.0))
        for i in members:
            site = self.problem.sites[i]
            index[i] = len(sites)
            sites.append(Site(tuple(index[c] for c in site.inputs), site.spe, site.db, site.send, site.fetch))
        return PlacementProblem(tuple(sites), self.problem.fixed, self.loop, self.problem.units)

    def settle(self, members: list[int], in_db: tuple[bool, ...]) -> None:
        """Place the members. What their units take can only be added to: later subplans find it in their loop."""
        problem = self.problem
        for i, here in zip(members, in_db, strict=True):
            site = problem.sites[i]
            self.in_db[i] = here
            if here:
                self.open[i] = site.db + sum(
                    self.open[c] if self.in_db[c] else problem.sites[c].send for c in site.inputs
                )
            match problem.units:
                case Units.ENGINE:
                    self.loop += 0.0 if here else site.spe
                case Units.OPERATOR:
                    # At least so full is the fullest unit of the plan, whatever comes above.
                    self.loop = max(self.loop, self.open[i] + problem.fixed if here else site.spe)
                case Units.LOOP:
                    pass
