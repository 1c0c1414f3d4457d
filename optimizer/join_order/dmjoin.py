"""DMJoin: the optimal pipelines by dynamic programming over sets of streams (paper 000, section 3.1).

Departure: the paper builds plans up from one start stream and repeats that for every stream. The number of tuples that
leave a set of joined streams does not depend on the order inside it nor on the stream it started from, so neither does
the cheapest way to *finish* from that set. One table of costs to go, filled from the full set down, answers for all
start streams at once: O(n·2ⁿ) in place of O(n²·2ⁿ), a layer of equally large sets at a time in numpy.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from optimizer.join_order.mjoin import Charge, Pipeline, Pipelines, StreamGraph

MAX_STREAMS = 22  # the widest layer, C(22, 11) sets by 22 streams, is 124 MB, a few times over

Sets = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]


def order(graph: StreamGraph) -> Pipelines:
    """The cheapest pipelines without cross products.

    >>> order(StreamGraph.of((2.0, 90.0, 5.0), {(0, 1): 0.9, (0, 2): 0.1, (1, 2): 0.5}))
    ((2, 1), (2, 0), (0, 1))
    """
    table = _Table(graph)
    return tuple(table.pipeline(start) for start in range(graph.n))


def pipeline(graph: StreamGraph, start: int) -> Pipeline:
    """The cheapest pipeline of one stream; as much work as `order`, which fills the same table."""
    return _Table(graph).pipeline(start)


class _Table:
    """Of each connected set of streams, the least cost of joining all others to it, and the stream to join next."""

    def __init__(self, graph: StreamGraph) -> None:
        n = graph.n
        if n > MAX_STREAMS:
            raise ValueError(f"DMJoin needs tables of 2^{n} entries for {n} streams; use q_aware.order")
        around, tuples = _around(graph), _tuples(graph)
        streams = np.arange(n)[:, None]
        states = np.array(graph.rates)[:, None] * graph.window
        cost = np.zeros(1 << n)
        self.n = n
        self.next = np.zeros(1 << n, dtype=np.int8)
        for layer in reversed(_layers(n, around)[:-1]):
            grown = layer | 1 << streams
            pairs = tuples[layer] * states if graph.charge is Charge.PAIRS else tuples[grown]
            to_go = np.where(_legal(around, layer, streams), pairs + cost[grown], np.inf)
            self.next[layer] = to_go.argmin(axis=0)
            cost[layer] = to_go.min(axis=0)

    def pipeline(self, start: int) -> Pipeline:
        joined = 1 << start
        chosen: list[int] = []
        for _ in range(self.n - 1):
            chosen.append(int(self.next[joined]))
            joined |= 1 << chosen[-1]
        return tuple(chosen)


def _legal(around: Sets, layer: Sets, streams: Sets) -> npt.NDArray[np.bool_]:
    """For each stream (a row) and each set of a layer, whether the stream may be joined next."""
    legal: npt.NDArray[np.bool_] = (around[layer] & ~layer) >> streams & 1 == 1
    return legal


def _layers(n: int, around: Sets) -> list[Sets]:
    """The connected sets of one stream, of two, … of all."""
    streams = np.arange(n)[:, None]
    layers: list[Sets] = [1 << np.arange(n)]
    reached = np.zeros(1 << n, dtype=bool)
    while len(layers) < n:
        grown = layers[-1] | 1 << streams
        reached[grown[_legal(around, layers[-1], streams)]] = True
        layers.append(np.flatnonzero(reached))
        reached[layers[-1]] = False
    return layers


def _tuples(graph: StreamGraph) -> Reals:
    """Of each set of streams, the tuples that leave its join; times W, which is the same factor for all plans."""
    tuples = np.ones(1 << graph.n)
    for stream, rate in enumerate(graph.rates):
        factor = np.array([rate * graph.window])  # of joining `stream` to each set of the streams before it
        for sigma in graph.selectivity[stream][:stream]:
            factor = np.concatenate((factor, factor * sigma))
        tuples[1 << stream : 2 << stream] = tuples[: 1 << stream] * factor
    return tuples


def _around(graph: StreamGraph) -> Sets:
    """Of each set of streams, those that share an edge with a member of it."""
    around = np.zeros(1 << graph.n, dtype=np.int64)
    for stream, neighbours in enumerate(graph.neighbours):
        around[1 << stream : 2 << stream] = around[: 1 << stream] | neighbours
    return around
