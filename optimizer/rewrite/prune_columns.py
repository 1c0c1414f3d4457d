"""Columns nobody reads leave the plan: at the leaves, before they are shipped, and among an aggregate's functions."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from optimizer.algebra import (
    Aggregate,
    Join,
    Node,
    Project,
    RelationToStream,
    Select,
    StoredTable,
    Window,
    scalars,
)

Read = frozenset[tuple[str, str]]


def prune_columns(plan: RelationToStream) -> RelationToStream:
    return replace(plan, input=_prune(plan.input, _columns(*scalars(plan))))


def _columns(*expressions: exp.Expr) -> Read:
    return frozenset((c.table, c.name) for e in expressions for c in e.find_all(exp.Column))


def _prune(node: Node, read: Read) -> Node:
    match node:
        case Window():
            kept = (c for c in node.columns if (node.alias, c) in read or c == node.time_column)
            return replace(node, columns=tuple(kept))
        case StoredTable():
            names = tuple(c for c in node.columns if (node.alias, c) in read)
            return replace(node, columns=names or node.columns[:1])
        case Select():
            return replace(node, input=_prune(node.input, read | _columns(*scalars(node))))
        case Join():
            below = read | _columns(*scalars(node))
            return replace(node, left=_prune(node.left, below), right=_prune(node.right, below))
        case Project():
            items = tuple(i for i in node.items if (node.alias, i.name) in read) or node.items[:1]
            return replace(node, items=items, input=_prune(node.input, _columns(*(i.expression for i in items))))
        case Aggregate():
            # With keys the functions may all go; without, one is kept, because it gives the row.
            functions = tuple(f for f in node.functions if (node.alias, f.name) in read)
            if not functions and not node.keys:
                functions = node.functions[:1]
            pruned = replace(node, functions=functions)
            return replace(pruned, input=_prune(node.input, _columns(*scalars(pruned))))
