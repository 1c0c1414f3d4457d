"""Selections to the leaves, join conditions to the joins, left joins made inner where a selection drops their NULLs.

A *join region* is a maximal tree of inner joins. Its conjuncts are taken as one set, completed by the constants that
transitive equalities imply, and handed to the lowest place that has all their columns. Phase one reorders regions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sqlglot import exp

from optimizer.algebra import (
    Aggregate,
    EquiKey,
    Join,
    JoinKind,
    Named,
    Node,
    Project,
    RelationToStream,
    Scalar,
    Select,
    aliases,
    duplicate,
    referenced,
    text,
)
from optimizer.rewrite.equalities import EqualityClasses, bracketed, implied_constants, rejects_null


def push_selections(plan: RelationToStream) -> RelationToStream:
    return replace(plan, input=_push(plan.input, []))


def _push(node: Node, above: list[Scalar]) -> Node:
    """The node with the conjuncts that come from above it, each as low as it can go."""
    match node:
        case Select():
            return _push(node.input, [*above, *node.predicates])
        case Join(kind=JoinKind.INNER):
            return _push_region(node, above)
        case Join():
            return _push_left_join(node, above)
        case Aggregate():
            below, kept = _through(above, node.keys, node.alias) if node.keys else ([], above)
            return selected(replace(node, input=_push(node.input, below)), kept)
        case Project():
            below, kept = _through(above, node.items, node.alias)
            return selected(replace(node, input=_push(node.input, below)), kept)
        case _:
            return selected(node, above)


def selected(node: Node, predicates: Iterable[Scalar]) -> Node:
    ordered = sorted({canonical(p) for p in predicates}, key=text)
    return Select(node, tuple(ordered)) if ordered else node


def canonical(predicate: Scalar) -> Scalar:
    """A comparison with its plain column on the left, so that equal conditions are equal texts.

    >>> import sqlglot
    >>> text(canonical(sqlglot.parse_one("0.9 * m.top < p.v")))
    'p.v > 0.9 * m.top'
    """
    if type(predicate) not in _MIRROR:
        return predicate
    left, right = predicate.this, predicate.expression

    def rank(side: exp.Expr) -> tuple[bool, bool, str]:
        return (not isinstance(side, exp.Column), isinstance(side, exp.Literal), text(side))

    if rank(left) <= rank(right):
        return predicate
    return _MIRROR[type(predicate)](this=duplicate(right), expression=duplicate(left))


_MIRROR: dict[type[exp.Expr], type[exp.Binary]] = {
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
}


def _through(predicates: list[Scalar], items: tuple[Named, ...], alias: str) -> tuple[list[Scalar], list[Scalar]]:
    """Predicates that read only these output columns, rewritten to what the columns stand for; and the others."""
    stands_for = {item.name: item.expression for item in items}
    below, kept = [], []
    for predicate in predicates:
        columns = list(predicate.find_all(exp.Column))
        if columns and all(c.table == alias and c.name in stands_for for c in columns):
            below.append(substitute(predicate, alias, stands_for))
        else:
            kept.append(predicate)
    return below, kept


def substitute(expression: Scalar, alias: str, stands_for: dict[str, Scalar]) -> Scalar:
    def one(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and node.table == alias and node.name in stands_for:
            return bracketed(stands_for[node.name])
        return node

    result = expression.transform(one)
    assert isinstance(result, exp.Expression)
    return result


# -- join regions -----------------------------------------------------------------------------------------------------


def region(node: Node) -> tuple[list[Node], list[Scalar]]:
    """The inputs of a join region, left to right, and all its conjuncts.

    Selections between the joins belong to the region; one right above an input stays with it.
    """
    if isinstance(node, Join) and node.kind is JoinKind.INNER:
        left, conjuncts = region(node.left)
        right, more = region(node.right)
        keys = [exp.EQ(this=duplicate(k.left), expression=duplicate(k.right)) for k in node.keys]
        return left + right, conjuncts + more + keys + list(node.residue)
    if isinstance(node, Select) and isinstance(node.input, Join) and node.input.kind is JoinKind.INNER:
        inside, conjuncts = region(node.input)
        return inside, conjuncts + list(node.predicates)
    return [node], []


def _push_region(node: Join, above: list[Scalar]) -> Node:
    relations, conjuncts = region(node)
    conjuncts = [canonical(c) for c in (*conjuncts, *above)]
    conjuncts += implied_constants(conjuncts)
    owned = [aliases(relation) for relation in relations]
    conjuncts += _equal_within(conjuncts, owned)
    down: list[list[Scalar]] = [[] for _ in relations]
    joining: list[Scalar] = []
    for conjunct in dict.fromkeys(conjuncts):
        used = referenced(conjunct)
        home = next((i for i, names in enumerate(owned) if used <= names), None)
        if home is None:
            joining.append(conjunct)
        else:
            down[home].append(conjunct)
    pushed = [_push(relation, predicates) for relation, predicates in zip(relations, down, strict=True)]
    tree = pushed[0]
    for relation in pushed[1:]:
        here = [c for c in joining if referenced(c) <= aliases(tree) | aliases(relation)]
        joining = [c for c in joining if c not in here]
        tree = join(tree, relation, here)
    return tree


def _equal_within(conjuncts: list[Scalar], owned: list[frozenset[str]]) -> list[Scalar]:
    """`a.x = b.z AND a.y = b.z` also says `a.x = a.y`: one column of a relation then stands for its class."""
    found: list[Scalar] = []
    for group in EqualityClasses(conjuncts).groups():
        for names in owned:
            own = [c for c in group if referenced(c) <= names]
            found += [canonical(exp.EQ(this=own[0].copy(), expression=other.copy())) for other in own[1:]]
    return found


def join(left: Node, right: Node, conjuncts: Iterable[Scalar], kind: JoinKind = JoinKind.INNER) -> Join:
    """Equalities between the two sides become keys, the rest is residue."""
    on_left, on_right = aliases(left), aliases(right)
    keys, residue = [], []
    for conjunct in conjuncts:
        key = _key(conjunct, on_left, on_right)
        if key is not None:
            keys.append(key)
        else:
            residue.append(canonical(conjunct))
    keys.sort(key=lambda k: (text(k.left), text(k.right)))
    residue.sort(key=text)
    return Join(left, right, tuple(keys), tuple(residue), kind)


def _key(conjunct: Scalar, on_left: frozenset[str], on_right: frozenset[str]) -> EquiKey | None:
    if not isinstance(conjunct, exp.EQ):
        return None
    a, b = referenced(conjunct.this), referenced(conjunct.expression)
    if a and b and a <= on_left and b <= on_right:
        return EquiKey(conjunct.this, conjunct.expression)
    if a and b and a <= on_right and b <= on_left:
        return EquiKey(conjunct.expression, conjunct.this)
    return None


def _push_left_join(node: Join, above: list[Scalar]) -> Node:
    on_right = aliases(node.right)
    if any(rejects_null(predicate, on_right) for predicate in above):
        return _push_region(replace(node, kind=JoinKind.INNER), above)
    to_left = [p for p in above if referenced(p) <= aliases(node.left)]
    kept = [p for p in above if p not in to_left]
    condition = [exp.EQ(this=k.left, expression=k.right) for k in node.keys] + list(node.residue)
    to_right = [c for c in condition if referenced(c) <= on_right]
    on = [c for c in condition if c not in to_right]
    pushed = join(_push(node.left, to_left), _push(node.right, to_right), on, JoinKind.LEFT)
    return selected(pushed, kept)
