"""Q-Aware: the algorithm that suits the shape of the join graph (paper 000, section 6, Table 2).

TreeOpt where the graph is acyclic, which is optimal; FAB where it is not, which is a good guess. Both are polynomial.
"""

from __future__ import annotations

from optimizer.join_order import fab, tree_opt
from optimizer.join_order.mjoin import Pipeline, Pipelines, StreamGraph, shape


def order(graph: StreamGraph) -> Pipelines:
    """Pipelines by TreeOpt or FAB."""
    return tree_opt.order(graph) if shape(graph).is_acyclic else fab.order(graph)


def pipeline(graph: StreamGraph, start: int) -> Pipeline:
    """The pipeline of one stream by TreeOpt or FAB."""
    return tree_opt.pipeline(graph, start) if shape(graph).is_acyclic else fab.pipeline(graph, start)
