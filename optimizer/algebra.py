"""The algebra of continuous queries (paper 001, section 2): one small frozen dataclass per operator.

Windows and stored tables are leaves, relational operators stand above them, one relation-to-stream operator is the
root. Columns are written `alias.name`; a leaf, a projection and an aggregate each own an alias, the other operators
hand on what comes from below. Scalar expressions are sqlglot expressions, never changed once they are in a node.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from sqlglot import exp

Scalar = exp.Expr


class WindowUnit(StrEnum):
    TIME = "time"  # size and slide in microseconds
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """`size` back from each boundary, boundaries every `slide`; no slide: the window moves with every tuple."""

    unit: WindowUnit
    size: int
    slide: int | None

    def __str__(self) -> str:
        if self.unit is WindowUnit.ROWS:
            return f"[ROWS {self.size}" + (f" SLIDE {self.slide}]" if self.slide else "]")
        return f"[RANGE {duration(self.size)}" + (f" SLIDE {duration(self.slide)}]" if self.slide else "]")


def duration(microseconds: int) -> str:
    """
    >>> duration(300_000_000), duration(1_000_000), duration(1_500_000)
    ('5 MINUTES', '1 SECOND', '1500 MILLISECONDS')
    """
    for name, length in _UNITS:
        if microseconds % length == 0:
            count = microseconds // length
            return f"{count} {name}" + ("" if count == 1 else "S")
    raise AssertionError("a microsecond divides everything")


_UNITS = (
    ("DAY", 86_400_000_000),
    ("HOUR", 3_600_000_000),
    ("MINUTE", 60_000_000),
    ("SECOND", 1_000_000),
    ("MILLISECOND", 1_000),
    ("MICROSECOND", 1),
)


class Emission(StrEnum):
    """The relation-to-stream operators."""

    RSTREAM = "rstream"
    ISTREAM = "istream"
    DSTREAM = "dstream"


@dataclass(frozen=True, slots=True)
class Named:
    """An expression and the name it goes out under."""

    name: str
    expression: Scalar


@dataclass(frozen=True, slots=True)
class Window:
    stream: str
    alias: str
    spec: WindowSpec
    time_column: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredTable:
    table: str
    alias: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Select:
    input: Node
    predicates: tuple[Scalar, ...]  # a conjunction


@dataclass(frozen=True, slots=True)
class Project:
    input: Node
    alias: str
    items: tuple[Named, ...]


class JoinKind(StrEnum):
    INNER = "inner"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class EquiKey:
    left: Scalar
    right: Scalar


@dataclass(frozen=True, slots=True)
class Join:
    """`residue` holds the conjuncts that are not an equality between the two sides."""

    left: Node
    right: Node
    keys: tuple[EquiKey, ...]
    residue: tuple[Scalar, ...]
    kind: JoinKind = JoinKind.INNER


@dataclass(frozen=True, slots=True)
class Aggregate:
    """No keys and no functions: the distinct rows of no column, which is one row. No keys: always one row."""

    input: Node
    alias: str
    keys: tuple[Named, ...]
    functions: tuple[Named, ...]


@dataclass(frozen=True, slots=True)
class RelationToStream:
    """The root: what is emitted, and the columns in the order and under the names of the query."""

    input: Node
    emission: Emission
    items: tuple[Named, ...]


Leaf = Window | StoredTable
Relational = Select | Project | Join | Aggregate
Node = Leaf | Relational
Tree = Node | RelationToStream


def inputs(node: Tree) -> tuple[Node, ...]:
    match node:
        case Window() | StoredTable():
            return ()
        case Join():
            return (node.left, node.right)
        case _:
            return (node.input,)


def with_inputs(node: Node, new: tuple[Node, ...]) -> Node:
    """The same operator over other inputs; the node itself where nothing changed."""
    if all(a is b for a, b in zip(inputs(node), new, strict=True)):
        return node
    match node:
        case Window() | StoredTable():
            return node
        case Join():
            return replace(node, left=new[0], right=new[1])
        case _:
            return replace(node, input=new[0])


def transform(node: Node, rule: Callable[[Node], Node]) -> Node:
    """Applies a rule to every operator, inputs first."""
    return rule(with_inputs(node, tuple(transform(below, rule) for below in inputs(node))))


def post_order(node: Tree) -> Iterator[Tree]:
    """Inputs before their operator, left before right; iterative, because plans may be deep."""
    stack: list[tuple[Tree, bool]] = [(node, False)]
    while stack:
        current, expanded = stack.pop()
        if expanded:
            yield current
        else:
            stack.append((current, True))
            stack.extend((below, False) for below in reversed(inputs(current)))


def leaves(node: Tree) -> list[Leaf]:
    return [n for n in post_order(node) if isinstance(n, Window | StoredTable)]


def operators(node: Tree) -> list[Relational]:
    """The relational operators, in post-order: what phase two places."""
    return [n for n in post_order(node) if isinstance(n, Select | Project | Join | Aggregate)]


def aliases(node: Tree) -> frozenset[str]:
    """The aliases whose columns the operator's output has."""
    match node:
        case Window() | StoredTable() | Project() | Aggregate():
            return frozenset((node.alias,))
        case Join():
            return aliases(node.left) | aliases(node.right)
        case _:
            return aliases(node.input)


def outputs(node: Node) -> list[tuple[str, str]]:
    """The columns that go out, as (alias, name)."""
    match node:
        case Window() | StoredTable():
            return [(node.alias, column) for column in node.columns]
        case Project():
            return [(node.alias, item.name) for item in node.items]
        case Aggregate():
            return [(node.alias, item.name) for item in (*node.keys, *node.functions)]
        case Join():
            return outputs(node.left) + outputs(node.right)
        case Select():
            return outputs(node.input)


def column(alias: str, name: str) -> exp.Column:
    return exp.Column(this=exp.Identifier(this=name, quoted=True), table=exp.Identifier(this=alias, quoted=True))


def duplicate(expression: Scalar) -> Scalar:
    """A copy to put elsewhere. Most are plain columns, which are quicker made anew than copied."""
    if not isinstance(expression, exp.Column):
        return expression.copy()
    result = column(expression.table, expression.name)
    result.type = expression.type
    return result


def referenced(expression: Scalar) -> frozenset[str]:
    """The aliases an expression reads."""
    if isinstance(expression, exp.Column):
        return frozenset((expression.table,))
    return frozenset(c.table for c in expression.find_all(exp.Column))


def scalars(node: Tree) -> tuple[Scalar, ...]:
    """Every expression an operator holds itself."""
    match node:
        case Select():
            return node.predicates
        case Project() | RelationToStream():
            return tuple(item.expression for item in node.items)
        case Join():
            return (*(side for key in node.keys for side in (key.left, key.right)), *node.residue)
        case Aggregate():
            return tuple(item.expression for item in (*node.keys, *node.functions))
        case _:
            return ()


def describe(node: Tree) -> str:
    """One line that says what the operator does, in the words of SQL."""
    match node:
        case Window():
            return f"{node.stream} {node.spec} AS {node.alias}"
        case StoredTable():
            return f"table {node.table} AS {node.alias}"
        case Select():
            return "SELECT " + " AND ".join(_conjunct(p) for p in node.predicates)
        case Project():
            return f"PROJECT {_named(node.items)} AS {node.alias}"
        case Join():
            on = [f"{text(k.left)} = {text(k.right)}" for k in node.keys] + [_conjunct(r) for r in node.residue]
            name = "LEFT JOIN" if node.kind is JoinKind.LEFT else "JOIN"
            if not on:
                return "LEFT JOIN ON TRUE" if node.kind is JoinKind.LEFT else "CROSS JOIN"
            return f"{name} ON " + " AND ".join(on)
        case Aggregate():
            by = f" BY {_named(node.keys)}" if node.keys else ""
            return f"AGGREGATE {_named(node.functions) or 'distinct'}{by} AS {node.alias}"
        case RelationToStream():
            return f"{node.emission.name} {_named(node.items)}"


def brief(node: Tree) -> str:
    """The same, shorter where keys have one name on both sides."""
    if isinstance(node, Join) and node.keys and all(_same_name(key) for key in node.keys):
        name = "LEFT JOIN" if node.kind is JoinKind.LEFT else "JOIN"
        using = f"{name} USING (" + ", ".join(key.left.name for key in node.keys) + ")"
        return " AND ".join([using, *(_conjunct(r) for r in node.residue)])
    return describe(node)


def _same_name(key: EquiKey) -> bool:
    return isinstance(key.left, exp.Column) and isinstance(key.right, exp.Column) and key.left.name == key.right.name


def _conjunct(predicate: Scalar) -> str:
    return f"({text(predicate)})" if isinstance(predicate, exp.Or) else text(predicate)


def text(expression: Scalar) -> str:
    """SQL for people: quotes only where a name needs them.

    >>> print(text(exp.EQ(this=column("p", "kind"), expression=exp.Literal.string('the "b"'))))
    p.kind = 'the "b"'
    """
    if isinstance(expression, exp.Column):  # by far the most frequent, and sqlglot's generator takes its time
        alias, name = expression.table, expression.name
        if _PLAIN_NAME.fullmatch(alias) and _PLAIN_NAME.fullmatch(name):
            return f"{alias}.{name}"
    return _NEEDLESS_QUOTES.sub(lambda m: m[1] or m[0], expression.sql())


_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# A string is matched as a whole, so that what looks like a name inside it stays as it is.
_NEEDLESS_QUOTES = re.compile(r"""'(?:[^']|'')*'|"([A-Za-z_][A-Za-z0-9_]*)\"""")


def _named(items: tuple[Named, ...]) -> str:
    shown = []
    for item in items:
        sql = text(item.expression)
        plain = isinstance(item.expression, exp.Column) and item.expression.name == item.name
        shown.append(sql if plain else f"{sql} AS {item.name}")
    return ", ".join(shown)


def fingerprint(node: Tree) -> str:
    """A plan's id: the hash of what its operators do and how they are connected."""
    parts = [f"{len(inputs(n))} {describe(n)}" for n in post_order(node)]
    parts += [",".join(leaf.columns) for leaf in leaves(node)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
