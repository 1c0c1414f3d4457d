"""TreeOpt: optimal pipelines for acyclic join graphs in polynomial time (paper 000, section 4, after Ibaraki-Kameda).

Seen from the start stream, an acyclic graph is a rooted tree, and a stream has to wait for its parent. A sequence of
streams has a cost C and a growth T, and C(ab) = C(a) + T(a)·C(b): sequences in ascending rank (T - 1)/C are optimal.
Bottom-up, children's sequences are merged by rank, and a parent that ranks above its first follower is fused with it.

Departures from the paper:

- The printed recursion has C = T = λσW for a single stream, while equation (2) charges its probe λW before σ applies.
  Equation (2) is obtained with C = λW and T = λσW; the printed one remains for `Charge.MATCHES`, where it is right.
- The sequence below a stream depends on the edge it is reached by and on nothing else, so the n pipelines share the
  sequences of the 2(n - 1) directed edges.

A cyclic graph is ordered along its minimum spanning tree, an edge weighing λi·λj·σij; that is a heuristic.
"""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.join_order.mjoin import Charge, Pipeline, Pipelines, StreamGraph

Tree = tuple[tuple[int, ...], ...]  # of each stream, its neighbours


@dataclass(frozen=True, slots=True)
class _Node:
    """Streams that stand next to each other in every optimal order, as one."""

    streams: Pipeline
    cost: float  # C
    growth: float  # T

    @property
    def rank(self) -> float:
        return (self.growth - 1.0) / self.cost

    def then(self, other: _Node) -> _Node:
        return _Node(self.streams + other.streams, self.cost + self.growth * other.cost, self.growth * other.growth)


Sequences = dict[tuple[int, int], list[_Node]]  # by directed edge (parent, child)


def order(graph: StreamGraph) -> Pipelines:
    """Optimal pipelines where the graph is acyclic."""
    tree, sequences = spanning_tree(graph), Sequences()
    return tuple(_pipeline(graph, tree, start, sequences) for start in range(graph.n))


def pipeline(graph: StreamGraph, start: int) -> Pipeline:
    """The pipeline of one stream, optimal where the graph is acyclic.

    Stream 1 looks bad but opens the way to stream 2, which leaves next to nothing; a greedy choice takes 3 first.

    >>> pipeline(StreamGraph.of((1.0, 9.0, 9.0, 8.0), {(0, 1): 1.0, (1, 2): 0.001, (0, 3): 1.0}), 0)
    (1, 2, 3)
    """
    return _pipeline(graph, spanning_tree(graph), start, {})


def spanning_tree(graph: StreamGraph) -> Tree:
    """The minimum spanning tree by λi·λj·σij (Kruskal); of an acyclic graph, all its edges."""
    rates, sigma = graph.rates, graph.selectivity
    part = list(range(graph.n))
    tree: list[list[int]] = [[] for _ in part]
    for i, j in sorted(graph.edges, key=lambda edge: rates[edge[0]] * rates[edge[1]] * sigma[edge[0]][edge[1]]):
        if part[i] != part[j]:
            part = [part[i] if p == part[j] else p for p in part]
            tree[i].append(j)
            tree[j].append(i)
    return tuple(map(tuple, tree))


def _pipeline(graph: StreamGraph, tree: Tree, start: int, sequences: Sequences) -> Pipeline:
    edges = [(start, child) for child in tree[start]]
    for parent, child in edges:  # grows while it is walked: parents before children
        edges += [(child, below) for below in tree[child] if below != parent]
    for edge in reversed(edges):
        if edge not in sequences:
            sequences[edge] = _sequence(graph, tree, edge, sequences)
    return tuple(stream for node in _merged(tree, start, None, sequences) for stream in node.streams)


def _sequence(graph: StreamGraph, tree: Tree, edge: tuple[int, int], sequences: Sequences) -> list[_Node]:
    """The nodes below a directed edge, in ascending rank with the child's own first."""
    parent, child = edge
    state = graph.rates[child] * graph.window
    growth = state * graph.selectivity[parent][child]
    node = _Node((child,), state if graph.charge is Charge.PAIRS else growth, growth)
    followers = _merged(tree, child, parent, sequences)
    fused = 0
    while fused < len(followers) and node.rank > followers[fused].rank:
        node = node.then(followers[fused])
        fused += 1
    return [node, *followers[fused:]]


def _merged(tree: Tree, stream: int, parent: int | None, sequences: Sequences) -> list[_Node]:
    """The sequences of all children in one; each is ascending and the sort is stable, so none is reordered inside."""
    nodes = [node for child in tree[stream] if child != parent for node in sequences[stream, child]]
    return sorted(nodes, key=lambda node: node.rank)
