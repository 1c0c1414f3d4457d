"""What is known of a plan's nodes and expressions whatever the rates are, worked out once.

A plan is estimated dozens of times at other rates, to find where it stops being feasible. Nodes and expressions are
never changed, so things are remembered by identity; each entry keeps what it is about, so that no identity is reused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from costmodel.flow import Estimate
from optimizer import algebra
from optimizer.algebra import EquiKey, Node, Scalar, outputs, referenced, text


@dataclass
class Structure:
    _shares: dict[int, tuple[Scalar, Estimate]] = field(default_factory=dict)
    _aliases: dict[int, tuple[Node, frozenset[str]]] = field(default_factory=dict)
    _widths: dict[int, tuple[Node, float]] = field(default_factory=dict)
    _groups: dict[int, tuple[Sequence[EquiKey], list[list[EquiKey]]]] = field(default_factory=dict)
    _columns: dict[int, tuple[Scalar, frozenset[tuple[str, str]]]] = field(default_factory=dict)

    def share(self, predicate: Scalar, estimated: Callable[[Scalar, str], Estimate]) -> Estimate:
        """The selectivity of a predicate, under its text."""
        known = self._shares.get(id(predicate))
        if known is None:
            known = self._shares[id(predicate)] = (predicate, estimated(predicate, text(predicate)))
        return known[1]

    def aliases(self, node: Node) -> frozenset[str]:
        known = self._aliases.get(id(node))
        if known is None:
            known = self._aliases[id(node)] = (node, algebra.aliases(node))
        return known[1]

    def width(self, node: Node, column_width: Callable[[str, str], int]) -> float:
        """Bytes of a tuple of the node's output."""
        known = self._widths.get(id(node))
        if known is None:
            total = float(sum(column_width(alias, name) for alias, name in outputs(node)))
            known = self._widths[id(node)] = (node, total)
        return known[1]

    def columns(self, key: Scalar) -> frozenset[tuple[str, str]]:
        known = self._columns.get(id(key))
        if known is None:
            found = frozenset((c.table, c.name) for c in key.find_all(exp.Column))
            known = self._columns[id(key)] = (key, found)
        return known[1]

    def key_groups(self, keys: Sequence[EquiKey]) -> list[list[EquiKey]]:
        known = self._groups.get(id(keys))
        if known is None:
            known = self._groups[id(keys)] = (keys, key_groups(keys))
        return known[1]


def key_groups(keys: Sequence[EquiKey]) -> list[list[EquiKey]]:
    """Keys between the same two relations, together."""
    found: dict[tuple[tuple[str, ...], tuple[str, ...]], list[EquiKey]] = {}
    for key in keys:
        ends = (tuple(sorted(referenced(key.left))), tuple(sorted(referenced(key.right))))
        found.setdefault(ends, []).append(key)
    return list(found.values())
