"""Predicates that compare a value with an aggregate of its own group, as in `p.value > 0.9 * m.max_value`.

Such a predicate is written out under the names of streams and tables, `plugs.value > 0.9 * MAX(plugs.value)`, which is
how a catalog declares its selectivity. Where it does not, half of the values are above their mean; of other aggregates
nothing better than a guess is known, as a histogram of a column says nothing of its groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from optimizer.algebra import Aggregate, Leaf, Scalar, Tree, Window, leaves, post_order

ABOVE = 0.5
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LT,
    exp.LT: exp.GT,
    exp.GTE: exp.LTE,
    exp.LTE: exp.GTE,
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
}


@dataclass(frozen=True)
class Aggregated:
    """What the columns of a plan's aggregates stand for, under the names of streams and tables."""

    columns: Mapping[tuple[str, str], Scalar]  # by alias and name
    names: Mapping[str, str]  # streams and tables by alias

    @staticmethod
    def in_plan(plan: Tree) -> Aggregated:
        alone = Aggregated({}, {leaf.alias: _name(leaf) for leaf in leaves(plan)})
        found = {
            (node.alias, function.name): plain
            for node in post_order(plan)
            if isinstance(node, Aggregate)
            for function in node.functions
            if (plain := alone.plain(function.expression)) is not None
        }
        return Aggregated(found, alone.names)

    def plain(self, scalar: Scalar) -> Scalar | None:
        """The same under the names of streams and tables; None where it is about something else as well."""

        def renamed(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column):
                return node
            if node.table in self.names:
                return exp.column(node.this.copy(), exp.to_identifier(self.names[node.table], quoted=True))
            return self.columns[node.table, node.name].copy()

        known = all(c.table in self.names or (c.table, c.name) in self.columns for c in scalar.find_all(exp.Column))
        return scalar.transform(renamed) if known else None

    def compares_mean(self, predicate: Scalar) -> bool:
        """Whether a predicate is about a value and its mean, and nothing else."""
        plain = self.plain(predicate)
        if not isinstance(plain, exp.GT | exp.GTE | exp.LT | exp.LTE):
            return False
        sides = plain.left.unnest(), plain.right.unnest()
        return any(
            isinstance(mean, exp.Avg | exp.Median) and isinstance(value, exp.Column) and mean.this == value
            for mean, value in (sides, sides[::-1])
        )


def same(one: Scalar, other: Scalar) -> bool:
    """Whether two predicates are one, also where the sides of a comparison have changed places.

    >>> from sqlglot import parse_one
    >>> same(parse_one("a < max(b)"), parse_one("max(b) > a")), same(parse_one("a < b"), parse_one("b < a"))
    (True, False)
    """
    if one == other:
        return True
    turned = _MIRRORED.get(type(one))
    return turned is type(other) and one.args["expression"] == other.this and one.this == other.args["expression"]


def _name(leaf: Leaf) -> str:
    return leaf.stream if isinstance(leaf, Window) else leaf.table
