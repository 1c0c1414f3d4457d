"""Transitive equalities: the classes of columns that must be equal, and the constants they are equal to."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from optimizer.algebra import Scalar, duplicate, referenced, text


class EqualityClasses:
    """A union-find over columns.

    >>> import sqlglot
    >>> classes = EqualityClasses(sqlglot.parse_one("a.x = b.x AND b.x = c.x").flatten())
    >>> [[c.sql() for c in group] for group in classes.groups()]
    [['a.x', 'b.x', 'c.x']]
    """

    def __init__(self, conjuncts: Iterable[exp.Expr]) -> None:
        self._parent: dict[Scalar, Scalar] = {}
        for conjunct in conjuncts:
            if is_column_equality(conjunct):
                self._union(conjunct.this, conjunct.expression)

    def find(self, column: Scalar) -> Scalar:
        root = self._parent.setdefault(column, column)
        while root is not self._parent[root]:
            root = self._parent[root]
        self._parent[column] = root
        return root

    def _union(self, a: Scalar, b: Scalar) -> None:
        self._parent[self.find(a)] = self.find(b)

    def groups(self) -> list[list[Scalar]]:
        """Classes of two or more columns, in an order that does not depend on hashing."""
        found: dict[Scalar, list[Scalar]] = {}
        for column in self._parent:
            found.setdefault(self.find(column), []).append(column)
        return [sorted(group, key=text) for group in found.values() if len(group) > 1]


def bracketed(expression: Scalar) -> Scalar:
    """A copy that may stand in place of a column: what an operator beside it could tear apart is put in brackets.

    >>> import sqlglot
    >>> [bracketed(sqlglot.parse_one(sql)).sql() for sql in ("a + b", "NOT a", "abs(a)", "a IN (1)")]
    ['(a + b)', '(NOT a)', 'ABS(a)', '(a IN (1))']
    """
    copy = duplicate(expression)
    whole = isinstance(copy, exp.Column | exp.Literal | exp.Func | exp.Paren | exp.Null | exp.Boolean)
    return copy if whole and not isinstance(copy, exp.Connector) else exp.paren(copy, copy=False)


def is_column_equality(conjunct: exp.Expr) -> bool:
    return (
        isinstance(conjunct, exp.EQ)
        and isinstance(conjunct.this, exp.Column)
        and isinstance(conjunct.expression, exp.Column)
        and conjunct.this != conjunct.expression
    )


def implied_constants(conjuncts: list[Scalar]) -> list[Scalar]:
    """`a.x = b.x AND a.x = 5` also says `b.x = 5`, which can be pushed to b.

    >>> import sqlglot
    >>> [p.sql() for p in implied_constants(list(sqlglot.parse_one("a.x = b.x AND a.x > 5").flatten()))]
    ['b.x > 5']
    """
    classes = EqualityClasses(conjuncts)
    peers = {column: group for group in classes.groups() for column in group}
    present = set(conjuncts)
    found: list[Scalar] = []
    for conjunct in conjuncts:
        columns = set(conjunct.find_all(exp.Column))
        comparison = isinstance(conjunct, exp.EQ | exp.GT | exp.GTE | exp.LT | exp.LTE | exp.In | exp.Between)
        if not comparison or len(columns) != 1 or conjunct.find(exp.Func):
            continue
        column = columns.pop()
        for peer in peers.get(column, []):
            if referenced(peer) != {column.table} and _same_reading(column, peer, conjunct):
                implied = conjunct.transform(lambda n, of=column, to=peer: to.copy() if n == of else n)
                if implied not in present:
                    present.add(implied)
                    found.append(implied)
    return found


def _same_reading(column: exp.Column, peer: Scalar, conjunct: Scalar) -> bool:
    """Whether a quoted constant means the same beside both columns: '2024-01-01' is not the same DATE and text."""
    quoted = any(literal.is_string for literal in conjunct.find_all(exp.Literal))
    return not quoted or (column.type is not None and peer.type is not None and column.type.this == peer.type.this)


def rejects_null(predicate: exp.Expr, aliases: frozenset[str]) -> bool:
    """Whether the predicate is never true when the columns of these aliases are NULL.

    >>> import sqlglot
    >>> rejects_null(sqlglot.parse_one("p.v > 0.9 * m.top"), frozenset({"m"}))
    True
    >>> rejects_null(sqlglot.parse_one("coalesce(m.top, 0) < p.v"), frozenset({"m"}))
    False
    """
    if isinstance(predicate, exp.Not) and isinstance(predicate.this.unnest(), exp.Is):
        test = predicate.this.unnest()
        return isinstance(test.expression, exp.Null) and _strict(test.this, aliases)
    if isinstance(predicate, exp.EQ | exp.NEQ | exp.GT | exp.GTE | exp.LT | exp.LTE | exp.Like):
        return _strict(predicate.this, aliases) or _strict(predicate.expression, aliases)
    if isinstance(predicate, exp.Between | exp.In):
        return _strict(predicate.this, aliases)
    return False


_STRICT = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Paren, exp.Literal, exp.Column, exp.Identifier, exp.Abs)


def _strict(expression: exp.Expr, aliases: frozenset[str]) -> bool:
    """NULL whenever one of the aliases' columns is."""
    return (
        isinstance(expression, exp.Expression)
        and bool(referenced(expression) & aliases)
        and all(isinstance(node, _STRICT) for node in expression.walk())
    )
