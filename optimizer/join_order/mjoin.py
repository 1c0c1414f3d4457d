"""The join graph of an mjoin, its probe pipelines, and what they cost (paper 000, section 2).

An mjoin keeps one state per stream. A new tuple of stream k is inserted into its own state and then probes the others
in the order of k's *pipeline*; the algorithms next to this file choose those orders. On a cyclic graph the selectivity
of a probe is the product over all streams already joined that share an edge with the probed one.

Departures from the paper:

- Equation (3) charges a probe for every tuple of the state (λ·W), the recursion of section 4 and the experiments for
  the tuples that come out (λ·σ·W). These are different optimisation problems with different optima, so `Charge` names
  them, and every algorithm that looks at costs works under either. The default is equation (3).
- The paper does not say whether pipelines may contain cross products. Here they may not: each stream of a pipeline
  shares an edge with a stream before it. That is the precedence TreeOpt needs, and with one space for all algorithms
  "optimal" means one thing. Where a query has unconnected parts, `StreamGraph.of` links them by edges of selectivity 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from math import isfinite, prod

from optimizer.join_order.masks import members, parts

Pipeline = tuple[int, ...]  # the other streams, in the order in which their states are probed
Pipelines = tuple[Pipeline, ...]  # one for each stream


class Charge(StrEnum):
    """Which tuple pairs a probe is charged for."""

    PAIRS = "pairs"  # all it compares: equation (3), a state without an index
    MATCHES = "matches"  # those that join: intermediate tuples, section 4, a state with an index


class Shape(StrEnum):
    """The shape of a join graph; each value excludes those before it."""

    LINEAR = "linear"
    STAR = "star"
    ACYCLIC = "acyclic"
    COMPLETE = "complete"
    CYCLIC = "cyclic"

    @property
    def is_acyclic(self) -> bool:
        return self in (Shape.LINEAR, Shape.STAR, Shape.ACYCLIC)


@dataclass(frozen=True)
class StreamGraph:
    """A connected join graph with the terms of Table 1. Streams are 0 … n-1, sets of streams are bit masks."""

    rates: tuple[float, ...]  # λ, tuples per second
    selectivity: tuple[tuple[float, ...], ...]  # σ, symmetric; 1 where there is no edge
    edges: tuple[tuple[int, int], ...]  # (i, j) with i < j
    window: float = 1.0  # W, seconds
    c_insert: float = 1.0
    c_delete: float = 1.0
    c_join: float = 1.0
    charge: Charge = Charge.PAIRS

    def __post_init__(self) -> None:
        if not self.rates or not all(isfinite(x) and x > 0 for x in (*self.rates, self.window)):
            raise ValueError("rates and the window must be positive numbers; leave out streams that send nothing")
        if not all(0 < sigma <= 1 for row in self.selectivity for sigma in row):
            raise ValueError("selectivities must lie in (0, 1]; use a small positive number where nothing joins")
        if len(parts(self.neighbours)) > 1:
            raise ValueError("the join graph is not connected; StreamGraph.of links its parts")

    @classmethod
    def of(
        cls,
        rates: tuple[float, ...],
        joins: Mapping[tuple[int, int], float],
        window: float = 1.0,
        charge: Charge = Charge.PAIRS,
    ) -> StreamGraph:
        """The graph with these rates and join edges.

        Parts without a common edge are linked at their slowest streams, where a cross product hurts least.

        >>> StreamGraph.of((10.0, 5.0, 20.0), {(1, 0): 0.1}).edges
        ((0, 1), (1, 2))
        """
        sigma = [[1.0] * len(rates) for _ in rates]
        edges = {(min(i, j), max(i, j)) for i, j in joins}
        for (i, j), value in joins.items():
            if i == j:
                raise ValueError(f"stream {i} is joined with itself; give each use of a stream its own number")
            sigma[i][j] = sigma[j][i] = value
        slowest = [min(members(part), key=rates.__getitem__) for part in parts(_neighbours(len(rates), edges))]
        slowest.sort(key=rates.__getitem__)
        edges |= {(min(slowest[0], other), max(slowest[0], other)) for other in slowest[1:]}
        return cls(rates, tuple(map(tuple, sigma)), tuple(sorted(edges)), window, charge=charge)

    @property
    def n(self) -> int:
        return len(self.rates)

    @cached_property
    def neighbours(self) -> tuple[int, ...]:
        """Of each stream, the set of streams it shares an edge with."""
        return _neighbours(self.n, self.edges)


def shape(graph: StreamGraph) -> Shape:
    """The shape that decides which algorithm Q-Aware takes (section 6).

    >>> shape(StreamGraph.of((1.0, 1.0, 1.0, 1.0), {(0, 1): 0.5, (0, 2): 0.5, (0, 3): 0.5})).value
    'star'
    """
    degree = max(around.bit_count() for around in graph.neighbours)
    if len(graph.edges) == graph.n - 1:
        if degree <= 2:
            return Shape.LINEAR
        return Shape.STAR if degree == graph.n - 1 else Shape.ACYCLIC
    return Shape.COMPLETE if len(graph.edges) == graph.n * (graph.n - 1) // 2 else Shape.CYCLIC


def pipeline_cost(graph: StreamGraph, start: int, pipeline: Pipeline) -> float:
    """Equation (2): the CPU cost per second of the new tuples of stream `start`.

    >>> pipeline_cost(StreamGraph.of((2.0, 3.0, 5.0), {(0, 1): 0.5, (1, 2): 0.1}), 0, (1, 2))
    25.0
    """
    tuples = graph.rates[start]  # that reach the next probe, per second
    cost = tuples * (graph.c_insert + graph.c_delete)
    joined = [start]
    for stream in pipeline:
        pairs = tuples * graph.rates[stream] * graph.window
        tuples = pairs * prod(map(graph.selectivity[stream].__getitem__, joined))
        cost += graph.c_join * (pairs if graph.charge is Charge.PAIRS else tuples)
        joined.append(stream)
    return cost


def cpu_cost(graph: StreamGraph, pipelines: Pipelines) -> float:
    """Equation (3): the CPU cost per second of the whole mjoin."""
    return sum(pipeline_cost(graph, start, pipeline) for start, pipeline in enumerate(pipelines))


def _neighbours(n: int, edges: tuple[tuple[int, int], ...] | set[tuple[int, int]]) -> tuple[int, ...]:
    around = [0] * n
    for i, j in edges:
        around[i] |= 1 << j
        around[j] |= 1 << i
    return tuple(around)
