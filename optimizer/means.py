"""A value beside the mean of its own column, as in `p.value > m.avg_value`: half of the values are above it.

Without a histogram there is nothing better for one value, and for the mean of a group not even a histogram helps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from optimizer.algebra import Aggregate, Leaf, Scalar, Tree, Window, leaves, post_order

ABOVE = 0.5
_Column = tuple[str, str]  # of a relation, with its alias; or of a stream or table, with its name


@dataclass(frozen=True)
class Means:
    """Which columns of a plan are the mean of which column of a stream or table."""

    of: Mapping[_Column, _Column]
    names: Mapping[str, str]  # streams and tables by alias

    @staticmethod
    def in_plan(plan: Tree) -> Means:
        names = {leaf.alias: _name(leaf) for leaf in leaves(plan)}
        found = {
            (node.alias, function.name): (names[column.table], column.name)
            for node in post_order(plan)
            if isinstance(node, Aggregate)
            for function in node.functions
            if isinstance(function.expression, exp.Avg | exp.Median)
            and isinstance(column := function.expression.this, exp.Column)
            and column.table in names
        }
        return Means(found, names)

    def compares(self, predicate: Scalar) -> bool:
        """Whether a predicate is about a value and its mean, and nothing else."""
        if not isinstance(predicate, exp.GT | exp.GTE | exp.LT | exp.LTE):
            return False
        sides = predicate.left.unnest(), predicate.right.unnest()
        return any(self._is_mean(mean, value) for mean, value in (sides, sides[::-1]))

    def _is_mean(self, mean: Scalar, value: Scalar) -> bool:
        if not (isinstance(mean, exp.Column) and isinstance(value, exp.Column) and value.table in self.names):
            return False
        return self.of.get((mean.table, mean.name)) == (self.names[value.table], value.name)


def _name(leaf: Leaf) -> str:
    return leaf.stream if isinstance(leaf, Window) else leaf.table
