"""Hints: what a person may decide instead of the optimizer, and the errors of those that cannot hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

from optimizer.algebra import RelationToStream, Select, Window, operators
from optimizer.engines import SPARK, Engine
from optimizer.errors import HintError
from optimizer.physical import Where, operator_ids
from optimizer.placement.problem import PlacementProblem


@dataclass(frozen=True, slots=True)
class Hints:
    """`force` maps an operator's id, or a stream's name for all selections right above it, to an engine.

    Phase one off keeps the join order as written; phase two off puts every operator into Spark that Spark can run.
    """

    force: Mapping[str, Where] = field(default_factory=dict)
    join_order: str | None = None
    phase_one: bool = True
    phase_two: bool = True


def forced(problem: PlacementProblem, tree: RelationToStream, hints: Hints, database: Engine) -> PlacementProblem:
    """The problem with the other engine made impossible wherever a hint decides."""
    nodes = operators(tree)
    ids = operator_ids(tree)
    sites = list(problem.sites)
    for name, where in hints.force.items():
        chosen = [i for i, node in enumerate(nodes) if ids[id(node)] == name]
        if not chosen:
            chosen = [
                i
                for i, node in enumerate(nodes)
                if isinstance(node, Select) and isinstance(node.input, Window) and node.input.stream == name
            ]
        if not chosen:
            known = ", ".join(ids[id(node)] for node in nodes)
            raise HintError(f"nothing is called {name}: the plan has the operators {known}")
        for i in chosen:
            engine = SPARK if where is Where.SPE else database
            lacking = engine.lacks(nodes[i])
            if lacking:
                raise HintError(f"{ids[id(nodes[i])]} cannot run in {engine.name}, which has no {lacking}")
            sites[i] = replace(sites[i], db=inf) if where is Where.SPE else replace(sites[i], spe=inf)
    if not hints.phase_two:
        sites = [s if s.spe == inf else replace(s, db=inf) for s in sites]
    for i, site in enumerate(sites):
        if site.spe == site.db == inf:
            name, in_spark, in_db = ids[id(nodes[i])], SPARK.lacks(nodes[i]), database.lacks(nodes[i])
            raise HintError(
                f"{name} can run in neither engine: spark has no {in_spark}, {database.name} has no {in_db}"
                if in_spark and in_db
                else f"the hints on {name} contradict each other"
            )
    return replace(problem, sites=tuple(sites))
