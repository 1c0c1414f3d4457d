"""F-Greedy: always join the stream that leaves the fewest intermediate tuples (paper 000, section 3.2).

The candidates are the streams that share an edge with one already joined; the paper does not say what it does about
cross products.
"""

from __future__ import annotations

from collections.abc import Iterable

from optimizer.join_order.masks import members
from optimizer.join_order.mjoin import Pipeline, Pipelines, StreamGraph


def order(graph: StreamGraph) -> Pipelines:
    """One greedy pipeline for each stream."""
    return tuple(pipeline(graph, start) for start in range(graph.n))


def pipeline(graph: StreamGraph, start: int) -> Pipeline:
    """The greedy pipeline of one stream.

    >>> pipeline(StreamGraph.of((2.0, 90.0, 5.0), {(0, 1): 0.9, (0, 2): 0.1, (1, 2): 0.5}), 1)
    (0, 2)
    """
    growth: Iterable[float] = graph.rates  # λ·Πσ with all streams joined so far; W is the same factor for all
    left = (1 << graph.n) - 1
    around = 0
    chosen = [start]
    while left := left & ~(1 << chosen[-1]):
        around |= graph.neighbours[chosen[-1]]
        growth = [own * sigma for own, sigma in zip(growth, graph.selectivity[chosen[-1]], strict=True)]
        chosen.append(min(members(around & left), key=growth.__getitem__))
    return tuple(chosen[1:])
