"""Aggregates pushed below joins and pulled above them (paper 001, section 6): other logical forms of one query.

*Push-down* (eager aggregation): an aggregate over a join region first aggregates the one relation its arguments come
from, by the columns the rest of the query reads of it, and combines the partial results above the join. *Pull-up*
(lazy aggregation): an aggregate that joins stored tables on their primary keys is evaluated after those joins, so that
what they filter is never aggregated. Both are offered only where they are legal; phase one prices every form. A
push-down is offered only where the number of its groups is known from statistics: a guess would often be wrong, and
grouping by almost unique values is dear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from sqlglot import exp

from costmodel.flow import Source
from optimizer.algebra import (
    Aggregate,
    Join,
    JoinKind,
    Named,
    Node,
    Project,
    RelationToStream,
    Scalar,
    Select,
    StoredTable,
    aliases,
    column,
    inputs,
    post_order,
    referenced,
    scalars,
    text,
    with_inputs,
)
from optimizer.catalog import Catalog
from optimizer.estimate import Estimator
from optimizer.rewrite.equalities import bracketed, is_column_equality
from optimizer.rewrite.push_selections import join, region

MAX_FORMS = 8


def forms(plan: RelationToStream, estimator: Estimator, catalog: Catalog) -> list[RelationToStream]:
    """The query as it is, then with one or more aggregates moved."""
    found = [plan]
    seen: set[object] = set()
    for form in found:
        for moved in (*_pushed(form, estimator), *_pulled(form, catalog)):
            seen = seen or {_key(plan)}
            key = _key(moved)
            if key not in seen and len(found) < MAX_FORMS:
                seen.add(key)
                found.append(moved)
    return found


def _key(plan: RelationToStream) -> tuple[tuple[type, tuple[str, ...]], ...]:
    return tuple((type(n), tuple(text(s) for s in scalars(n))) for n in post_order(plan))


def _regions(node: Node) -> Node | None:
    """The join region right below an aggregate, if there is one."""
    top = node.input if isinstance(node, Select) else node
    return node if isinstance(top, Join) and top.kind is JoinKind.INNER else None


def rebuilt(relations: list[Node], conjuncts: list[Scalar]) -> Node:
    """A region in the order as given; phase one reorders it."""
    tree, left = relations[0], list(conjuncts)
    for relation in relations[1:]:
        here = [c for c in left if referenced(c) <= aliases(tree) | aliases(relation)]
        left = [c for c in left if c not in here]
        tree = join(tree, relation, here)
    return tree


def _replaced(
    plan: RelationToStream, old: Node, new: Node, above: Callable[[Scalar], Scalar] | None = None
) -> RelationToStream:
    """The plan with one node exchanged, and every expression above it rewritten."""

    def visit(node: Node) -> tuple[Node, bool]:
        if node is old:
            return new, True
        visited = [visit(below) for below in inputs(node)]
        result = with_inputs(node, tuple(below for below, _ in visited))
        changed = any(inside for _, inside in visited)
        return (_mapped(result, above) if changed and above else result), changed

    root, _ = visit(plan.input)
    items = tuple(Named(i.name, above(i.expression) if above else i.expression) for i in plan.items)
    return replace(plan, input=root, items=items)


def _mapped(node: Node, rule: Callable[[Scalar], Scalar]) -> Node:
    def named(items: tuple[Named, ...]) -> tuple[Named, ...]:
        return tuple(Named(i.name, rule(i.expression)) for i in items)

    match node:
        case Select():
            return replace(node, predicates=tuple(rule(p) for p in node.predicates))
        case Join():
            keys = tuple(replace(k, left=rule(k.left), right=rule(k.right)) for k in node.keys)
            return replace(node, keys=keys, residue=tuple(rule(r) for r in node.residue))
        case Aggregate():
            return replace(node, keys=named(node.keys), functions=named(node.functions))
        case Project():
            return replace(node, items=named(node.items))
        case _:
            return node


def _renaming(names: dict[tuple[str, str], tuple[str, str]]) -> Callable[[Scalar], Scalar]:
    """Columns (alias, name) to others, in every expression."""

    def one(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and (node.table, node.name) in names:
            renamed = column(*names[node.table, node.name])
            renamed.type = node.type
            return renamed
        return node

    return lambda expression: expression.transform(one)


def _fresh(plan: RelationToStream, prefix: str) -> str:
    taken = {a for n in post_order(plan) for a in aliases(n)}
    return next(name for i in range(1, len(taken) + 2) if (name := f"{prefix}{i}") not in taken)


# -- push-down --------------------------------------------------------------------------------------------------------


def _pushed(plan: RelationToStream, estimator: Estimator) -> Iterator[RelationToStream]:
    for node in post_order(plan):
        if isinstance(node, Aggregate) and _regions(node.input) is not None:
            relations, conjuncts = region(node.input)
            for i in range(len(relations)):
                pushed = _push_into(plan, node, relations, conjuncts, i, estimator)
                if pushed is not None:
                    yield _replaced(plan, node, pushed)


def _push_into(
    plan: RelationToStream,
    node: Aggregate,
    relations: list[Node],
    conjuncts: list[Scalar],
    i: int,
    estimator: Estimator,
) -> Aggregate | None:
    own = aliases(relations[i])
    calls = [f.expression for f in node.functions]
    if not node.keys or not calls or not all(_splits(call) and referenced(call) <= own for call in calls):
        return None
    read = {
        (c.table, c.name): c
        for e in (*conjuncts, *(k.expression for k in node.keys))
        for c in e.find_all(exp.Column)
        if c.table in own
    }
    keys = [read[name] for name in sorted(read)]
    if isinstance(relations[i], Aggregate) or not keys:
        return None
    if estimator.distinct(keys, relations[i]).source is Source.DEFAULT:
        return None
    alias = _fresh(plan, "part")
    names = {(c.table, c.name): (alias, _unique(c, keys)) for c in keys}
    rename = _renaming(names)
    parts: dict[str, Scalar] = {}
    combined = tuple(Named(f.name, _combine(f.expression, alias, parts)) for f in node.functions)
    partial = Aggregate(
        relations[i],
        alias,
        tuple(Named(names[c.table, c.name][1], c) for c in keys),
        tuple(Named(name, call) for name, call in parts.items()),
    )
    new = [partial if j == i else relation for j, relation in enumerate(relations)]
    grouped = tuple(Named(k.name, rename(k.expression)) for k in node.keys)
    return Aggregate(rebuilt(new, [rename(c) for c in conjuncts]), node.alias, grouped, combined)


def _unique(c: exp.Column, keys: list[exp.Column]) -> str:
    return c.name if sum(k.name == c.name for k in keys) == 1 else f"{c.table}_{c.name}"


def _splits(call: Scalar) -> bool:
    """Functions whose partial results combine: count, sum, min, max, avg, without DISTINCT."""
    simple = isinstance(call, exp.Count | exp.Sum | exp.Min | exp.Max | exp.Avg)
    return simple and not isinstance(call.this, exp.Distinct) and not call.expressions


def _combine(call: Scalar, alias: str, parts: dict[str, Scalar]) -> Scalar:
    """The function over partial results, which are noted in `parts`."""

    def part(of: Scalar) -> exp.Column:
        name = next((n for n, known in parts.items() if known == of), None)
        if name is None:
            name = f"{of.key}_{len(parts) + 1}"
            parts[name] = of
        result = column(alias, name)
        result.type = of.type
        return result

    def total(of: Scalar) -> exp.Sum:
        return exp.Sum(this=part(of))

    match call:
        case exp.Count():
            return exp.cast(total(call), "BIGINT")
        case exp.Avg():
            sums = total(exp.Sum(this=call.this.copy()))
            counts = total(exp.Count(this=call.this.copy()))
            return exp.Div(this=exp.cast(sums, "DOUBLE"), expression=counts, typed=False, safe=True)
        case _:
            return type(call)(this=part(call))


# -- pull-up ----------------------------------------------------------------------------------------------------------


def _pulled(plan: RelationToStream, catalog: Catalog) -> Iterator[RelationToStream]:
    inside: set[int] = set()
    for node in reversed(list(post_order(plan))):
        if isinstance(node, RelationToStream) or id(node) in inside or _regions(node) is None:
            continue
        inside |= {id(n) for n in post_order(node) if isinstance(n, Join)}
        relations, conjuncts = region(node)
        for i, relation in enumerate(relations):
            if not isinstance(relation, Aggregate) or not relation.keys:
                continue
            others = [r for j, r in enumerate(relations) if j != i]
            if _determined(relation, others, conjuncts, catalog) and _joins_keys_only(relation, conjuncts):
                yield _pull(plan, node, relation, others, conjuncts)


def _joins_keys_only(node: Aggregate, conjuncts: list[Scalar]) -> bool:
    keys = {k.name for k in node.keys}
    return all(c.name in keys for e in conjuncts for c in e.find_all(exp.Column) if c.table == node.alias)


def _determined(node: Aggregate, others: list[Node], conjuncts: list[Scalar], catalog: Catalog) -> bool:
    """Whether each group meets at most one row of the others: from the aggregate on, primary key by primary key."""
    known, left = {node.alias}, list(others)
    while left:
        unique = next((other for other in left if _unique_match(other, known, conjuncts, catalog)), None)
        if unique is None:
            return False
        known |= aliases(unique)
        left = [other for other in left if other is not unique]
    return True


def _unique_match(node: Node, known: set[str], conjuncts: list[Scalar], catalog: Catalog) -> bool:
    """A stored table whose whole primary key is equal to columns of the known relations."""
    while isinstance(node, Select):
        node = node.input
    if not isinstance(node, StoredTable):
        return False
    joined = {
        side.name
        for e in conjuncts
        if is_column_equality(e)
        for side, other in ((e.this, e.expression), (e.expression, e.this))
        if side.table == node.alias and other.table in known
    }
    key = catalog.tables[node.table].primary_key
    return bool(key) and set(key) <= joined


def _pull(
    plan: RelationToStream, top: Node, node: Aggregate, others: list[Node], conjuncts: list[Scalar]
) -> RelationToStream:
    stands_for = {(node.alias, k.name): k.expression for k in node.keys}

    def down(n: exp.Expr) -> exp.Expr:
        if isinstance(n, exp.Column) and (n.table, n.name) in stands_for:
            return bracketed(stands_for[n.table, n.name])
        return n

    below = rebuilt([node.input, *others], [c.transform(down) for c in conjuncts])
    outside = {id(n) for n in post_order(top)}
    carried = {
        (c.table, c.name): c
        for n in post_order(plan)
        if id(n) not in outside
        for e in scalars(n)
        for c in e.find_all(exp.Column)
        if any(c.table in aliases(other) for other in others)
    }
    taken = {k.name for k in (*node.keys, *node.functions)}
    twice = {name for _, name in carried if sum(name == other for _, other in carried) > 1}
    extra: dict[tuple[str, str], str] = {}
    for c in sorted(carried):
        name = f"{c[0]}_{c[1]}" if c[1] in taken | twice else c[1]
        while name in taken:
            name += "_"
        taken.add(name)
        extra[c] = name
    keys = (*node.keys, *(Named(extra[name], carried[name]) for name in extra))
    pulled = Aggregate(below, node.alias, keys, node.functions)
    return _replaced(plan, top, pulled, _renaming({name: (node.alias, new) for name, new in extra.items()}))
