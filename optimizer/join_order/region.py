"""Between the algebra and the join graph: a join region becomes a graph, a join tree becomes operators again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from optimizer.algebra import EquiKey, Join, Node, Scalar, aliases, duplicate, referenced
from optimizer.estimate import Estimator
from optimizer.join_order.dpccp import JoinTree
from optimizer.join_order.graph import Condition, JoinGraph, KeyClass
from optimizer.join_order.masks import members, parts
from optimizer.rewrite.equalities import EqualityClasses, is_column_equality
from optimizer.rewrite.push_selections import join


@dataclass(frozen=True)
class Region:
    """The relations of a join region and what joins them.

    `keys` has one entry per composite key: of each relation that has it, the key's columns, in the same order.
    """

    relations: tuple[Node, ...]
    keys: tuple[dict[int, tuple[Scalar, ...]], ...]
    residue: tuple[Scalar, ...]
    graph: JoinGraph

    def joined(self, left: Node, right: Node, in_left: int, in_right: int) -> Join:
        """The join of two sets: one equality per key column, and the residue that becomes applicable here."""
        conjuncts: list[Scalar] = []
        for key in self.keys:
            here, there = _first(key, in_left), _first(key, in_right)
            if here is not None and there is not None:
                conjuncts += [
                    exp.EQ(this=duplicate(a), expression=duplicate(b)) for a, b in zip(here, there, strict=True)
                ]
        available, on_left, on_right = aliases(left) | aliases(right), aliases(left), aliases(right)
        for conjunct in self.residue:
            used = referenced(conjunct)
            if used <= available and not used <= on_left and not used <= on_right:
                conjuncts.append(conjunct)
        return join(left, right, conjuncts)

    def build(self, tree: JoinTree) -> Node:
        """The operators of a join tree, iteratively: trees may be deep."""
        done: dict[int, Node] = {}
        stack = [tree]
        while stack:
            top = stack[-1]
            if top.left is None or top.right is None:
                done[top.mask] = self.relations[top.mask.bit_length() - 1]
                stack.pop()
            elif top.left.mask in done and top.right.mask in done:
                left, right = done[top.left.mask], done[top.right.mask]
                done[top.mask] = self.joined(left, right, top.left.mask, top.right.mask)
                stack.pop()
            else:
                stack += [top.right, top.left]
        return done[tree.mask]


def _first(key: dict[int, tuple[Scalar, ...]], mask: int) -> tuple[Scalar, ...] | None:
    return next((key[i] for i in members(mask) if i in key), None)


def make_region(relations: Sequence[Node], conjuncts: Sequence[Scalar], estimator: Estimator) -> Region:
    owner = {alias: i for i, relation in enumerate(relations) for alias in aliases(relation)}
    spans: dict[frozenset[int], list[dict[int, Scalar]]] = {}
    for group in EqualityClasses(conjuncts).groups():
        by_relation: dict[int, Scalar] = {}
        for column in group:
            assert isinstance(column, exp.Column)
            by_relation.setdefault(owner[column.table], column)
        if len(by_relation) > 1:
            spans.setdefault(frozenset(by_relation), []).append(by_relation)
    keys = [{i: tuple(part[i] for part in columns) for i in sorted(span)} for span, columns in spans.items()]
    residue = [c for c in conjuncts if not is_column_equality(c)]
    conditions = [Condition(_mask(c, owner), _share(c, relations, owner, estimator)) for c in residue]
    classes: list[KeyClass] = []
    for key in keys:
        declared = _declared(key, estimator)
        if declared is not None:
            conditions.append(declared)
        else:
            counts = [0.0] * len(relations)
            for i, columns in key.items():
                counts[i] = max(estimator.domain(columns, relations[i]).value, 1.0)
            classes.append(KeyClass(tuple(counts)))
    flows = tuple(estimator.flow(relation) for relation in relations)
    graph = JoinGraph(flows, tuple(classes), tuple(conditions), estimator.drive, estimator.ticks)
    components = parts(graph.neighbours)
    if len(components) > 1:
        smallest = [min(members(part), key=lambda i: flows[i].size) for part in components]
        smallest.sort(key=lambda i: flows[i].size)
        links = tuple(Condition(1 << smallest[0] | 1 << other, 1.0) for other in smallest[1:])
        graph = JoinGraph(flows, graph.classes, graph.conditions + links, estimator.drive, estimator.ticks)
    return Region(tuple(relations), tuple(keys), tuple(residue), graph)


def _mask(conjunct: Scalar, owner: dict[str, int]) -> int:
    mask = 0
    for alias in referenced(conjunct):
        mask |= 1 << owner[alias]
    return mask


def _share(conjunct: Scalar, relations: Sequence[Node], owner: dict[str, int], estimator: Estimator) -> float:
    if isinstance(conjunct, exp.EQ):  # an equality of expressions is a key, too
        ends = [{owner[a] for a in referenced(side)} for side in (conjunct.this, conjunct.expression)]
        if len(ends[0]) == len(ends[1]) == 1 and ends[0] != ends[1]:
            key = EquiKey(conjunct.this, conjunct.expression)
            return estimator.key_share([key], relations[ends[0].pop()], relations[ends[1].pop()]).value
    return estimator.share(conjunct).value


def _declared(key: dict[int, tuple[Scalar, ...]], estimator: Estimator) -> Condition | None:
    """A selectivity the catalog gives for a key of one column between two relations."""
    if len(key) != 2 or any(len(columns) != 1 for columns in key.values()):
        return None
    (i, (a,)), (j, (b,)) = key.items()
    share = estimator.share_of_equality(EquiKey(a, b))
    return None if share is None else Condition(1 << i | 1 << j, share.value)
