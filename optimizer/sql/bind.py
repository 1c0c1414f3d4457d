"""Binding: every name resolved against the catalog, every expression typed, every subquery turned into a join.

The work is done by sqlglot's own passes (qualify, annotate_types, unnest_subqueries, simplify); this module feeds them
the catalog, keeps their failures from leaving as anything but a located `SqlError`, and refuses what they would leave
half done.
"""

from __future__ import annotations

from difflib import get_close_matches

from sqlglot import exp
from sqlglot.errors import OptimizeError, SchemaError, SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, traverse_scope
from sqlglot.optimizer.simplify import simplify
from sqlglot.optimizer.unnest_subqueries import unnest_subqueries
from sqlglot.schema import MappingSchema

from optimizer.catalog import Catalog
from optimizer.errors import SqlError, position_at
from optimizer.sql.dialect import Penstock
from optimizer.sql.parse import TOO_DEEP, parse_statements, position_of, refused
from optimizer.sql.supported import check_supported
from optimizer.sql.windows import resolve_windows

_JOIN_INSTEAD = "the subquery in FROM, joined ON its key"


def bind(text: str, catalog: Catalog) -> exp.Select:
    """A qualified, typed SELECT without subqueries outside FROM.

    >>> from optimizer.sql.ddl import parse_catalog
    >>> catalog = parse_catalog("CREATE STREAM s (ts TIMESTAMP, v INT, WATERMARK FOR ts AS ts) WITH (rate = 10)")
    >>> bind("SELECT sum(v) AS total FROM s [RANGE 5 SECONDS SLIDE 1 SECOND]", catalog).sql()
    'SELECT SUM(s.v) AS total FROM s AS s'
    """
    statements = parse_statements(text)
    if len(statements) != 1:
        found = f"{len(statements)} statements" if statements else "no statement"
        raise SqlError(f"expected one SELECT, found {found}", text, position_at(text, 0), "one SELECT statement")
    try:
        query = check_supported(statements[0], text)
        resolve_windows(query, catalog, text)
        schema = _schema(catalog)
        bound = _qualify(query, schema, text)
        if _has_subqueries(bound):
            _check_scalar_subqueries(bound, text)
            bound = unnest_subqueries(bound)
            _check_decorrelated(bound, text)
        safe = _safe_remainders(simplify(bound, dialect=Penstock) if _can_be_simpler(bound) else bound)
        result = annotate_types(safe, schema=schema, dialect=Penstock)
        assert isinstance(result, exp.Select)
        _check_types(result, text)
        return result
    except RecursionError:
        raise SqlError(TOO_DEEP, text, position_at(text, 0), "fewer nested parentheses or subqueries") from None


_FOLDABLE = (exp.Boolean, exp.Null, exp.Not, exp.Or, exp.Paren, exp.Between, exp.Coalesce, exp.If, exp.Case, exp.Neg)


def _can_be_simpler(query: exp.Expr) -> bool:
    """Whether there is anything that simplify could fold; it takes its time to find out."""
    return any(isinstance(n, _FOLDABLE) or (isinstance(n, exp.Binary) and _has_constant(n)) for n in query.walk())


def _has_constant(node: exp.Binary) -> bool:
    """`2 * 3` or `x + 1 > 5`, but not `x > 5`: a constant beside anything but a plain column."""
    sides = (node.left, node.right)
    return not any(isinstance(s, exp.Column) for s in sides) and not all(s.find(exp.Column) for s in sides)


def _safe_remainders(query: exp.Expr) -> exp.Expr:
    """`x % 0` is NULL like `x / 0`, for which sqlglot writes this itself; engines differ, and some raise an error."""
    for node in query.find_all(exp.Mod, exp.IntDiv):
        divisor = node.expression
        if not (isinstance(divisor, exp.Literal) and divisor.name.strip("0.")):
            node.set("expression", exp.Nullif(this=divisor.unnest(), expression=exp.Literal.number(0)))
    return query


def _schema(catalog: Catalog) -> MappingSchema:
    tables = {name: catalog.relation(name) for name in catalog.names()}
    columns: dict[str, object] = {name: {c.name: c.type for c in r.columns} for name, r in tables.items() if r}
    return MappingSchema(columns, dialect=Penstock, normalize=False)


def _qualify(query: exp.Select, schema: MappingSchema, text: str) -> exp.Select:
    try:
        bound = qualify(query, schema=schema, dialect=Penstock, validate_qualify_columns=False, quote_identifiers=False)
    except (OptimizeError, SchemaError) as error:
        raise _unresolved(str(error), query, schema, text) from None
    except (SqlglotError, ValueError, TypeError, AttributeError, KeyError, IndexError, AssertionError) as error:
        # qualify assumes a well-formed query and fails in its own code where it is not.
        message = f"the names of the query could not be resolved ({type(error).__name__})"
        raise SqlError(message, text, position_of(query, text), "alias.column for every column") from None
    for scope in traverse_scope(bound):
        for star in scope.find_all(exp.Star):
            if not isinstance(star.parent, exp.Count):
                raise refused("* could not be expanded here", star, text, "the columns by name")
        known = {name: _columns(source, schema) for name, source in scope.sources.items()}
        for column in scope.columns:
            if column.table and column.table not in known and not _outer(column, scope.parent):
                hint = f"one of {', '.join(sorted(known))}"
                raise refused(f"no relation is called {column.table} here", column, text, hint)
            if not column.table:
                owners = [name for name, names in known.items() if column.name in names]
                if len(owners) > 1:
                    words = f"column {column.name} is in {' and '.join(owners)}"
                    raise refused(words, column, text, f"{owners[0]}.{column.name}")
                raise _unknown(column, sorted({c for names in known.values() for c in names}), text)
            names = known.get(column.table)
            if names is not None and column.name not in names:
                raise _unknown(column, names, text)
        if scope.external_columns and not scope.is_subquery:
            words = "this subquery reads a column of the outer query"
            raise refused(words, scope.external_columns[0], text, _JOIN_INSTEAD)
    for column in bound.find_all(exp.Column):
        if not column.table:
            raise _unknown(column, [], text)
    assert isinstance(bound, exp.Select)
    return bound


def _outer(column: exp.Column, scope: Scope | None) -> bool:
    """Whether a query around this one has the relation a column is qualified by."""
    while scope is not None:
        if column.table in scope.sources:
            return True
        scope = scope.parent
    return False


def _columns(source: object, schema: MappingSchema) -> list[str]:
    if isinstance(source, exp.Table):
        return list(schema.column_names(source))
    expression = getattr(source, "expression", None)
    return list(expression.named_selects) if isinstance(expression, exp.Query) else []


def _unknown(column: exp.Column, names: list[str], text: str) -> SqlError:
    near = get_close_matches(column.name, names, 1)
    where = f" in {column.table}" if column.table else ""
    hint = near[0] if near else (f"one of {', '.join(names[:12])}" if names else "alias.column")
    return refused(f"no column is called {column.name}{where}", column, text, hint)


def _unresolved(message: str, query: exp.Select, schema: MappingSchema, text: str) -> SqlError:
    """sqlglot names the column but not always its place: look it up."""
    short = message.split("\n")[0].split(". Line")[0].rstrip(".")
    for column in query.find_all(exp.Column):
        if column.name and column.name in message:
            names = {name for t in query.find_all(exp.Table) for name in schema.column_names(t)}
            near = get_close_matches(column.name, sorted(names - {column.name}), 1)
            if column.name not in names:
                short = f"no column is called {column.name}" + (f" in {column.table}" if column.table else "")
            return refused(short, column, text, near[0] if near else f"alias.{column.name}")
    return SqlError(short, text, position_of(query, text), "an alias of its own for each relation")


def _has_subqueries(query: exp.Select) -> bool:
    """Whether there is a subquery anywhere but in FROM."""
    for node in query.find_all(exp.Subquery, exp.Exists, exp.In):
        nested = node.args.get("query") if isinstance(node, exp.In) else node
        if nested is not None and not isinstance(node.parent, exp.From | exp.Join | exp.CTE):
            return True
    return False


def _check_scalar_subqueries(query: exp.Select, text: str) -> None:
    """A scalar subquery has one row: one aggregate and no GROUP BY."""
    for subquery in query.find_all(exp.Subquery):
        if isinstance(subquery.parent, exp.From | exp.Join | exp.CTE | exp.Exists | exp.In):
            continue
        inner = subquery.unnest()
        plain = inner if isinstance(inner, exp.Select) and not inner.args.get("group") else None
        if plain is None or len(plain.selects) != 1 or not plain.selects[0].find(exp.AggFunc):
            hint = "SELECT max(…) FROM … WHERE its key = the outer key"
            raise refused("a subquery used as a value must be one aggregate without GROUP BY", subquery, text, hint)
    for node in query.find_all(exp.In, exp.Exists):
        inside = node.args.get("query") or (node.this if isinstance(node, exp.Exists) else None)
        if inside is not None and node.find_ancestor(exp.Not, exp.Or, exp.Case, exp.Select).__class__ is not exp.Select:
            words = "IN and EXISTS over a subquery stand in WHERE by themselves, without NOT, OR or CASE"
            raise refused(words, node, text, "LEFT JOIN … ON …, and IS NULL in WHERE, for NOT EXISTS")


def _check_decorrelated(query: exp.Select, text: str) -> None:
    for subquery in query.find_all(exp.Subquery, exp.Exists, exp.In):
        if isinstance(subquery, exp.In) and not subquery.args.get("query"):
            continue
        if isinstance(subquery.parent, exp.From | exp.Join | exp.CTE):
            continue
        raise refused("this subquery cannot be turned into a join", subquery, text, _JOIN_INSTEAD)
    for left_over in query.find_all(exp.ArrayAny, exp.ArrayAgg, exp.Lambda):
        raise refused(
            "this subquery is tied to the outer query by more than equalities", left_over, text, _JOIN_INSTEAD
        )
    for scope in traverse_scope(query):
        if scope.external_columns:
            raise refused(
                "this subquery reads a column of the outer query", scope.external_columns[0], text, _JOIN_INSTEAD
            )


_NUMERIC_FUNCTIONS = (exp.Sum, exp.Avg, exp.Stddev, exp.StddevSamp, exp.StddevPop, exp.Variance, exp.Abs, exp.Sqrt)
_ORDERED = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)


def _check_types(query: exp.Select, text: str) -> None:
    for node in query.walk():
        if isinstance(node, _ORDERED):
            pair = (_kind(node.left), _kind(node.right))
            for kind, literal in ((pair[0], node.right), (pair[1], node.left)):
                if kind == "number" and isinstance(literal, exp.Literal) and not _is_number(literal.name):
                    raise refused(f"a number is compared with '{literal.name}'", node, text, "a number")
            if set(pair) in ({"number", "text"}, {"number", "boolean"}, {"number", "time"}, {"text", "boolean"}):
                words = f"{node.left.sql()} ({pair[0]}) is compared with {node.right.sql()} ({pair[1]})"
                raise refused(words, node, text, "values of one kind, or CAST(… AS …)")
        elif isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Mod | exp.Neg):
            for side in (node.this, node.args.get("expression")):
                if side is not None and _kind(side) in ("text", "boolean"):
                    raise refused(f"{side.sql()} is {_kind(side)}, not a number", node, text, "CAST(… AS DOUBLE)")
        elif isinstance(node, _NUMERIC_FUNCTIONS) and _kind(node.this) in ("text", "boolean", "time"):
            words = f"{node.key.upper()} takes numbers, {node.this.sql()} is {_kind(node.this)}"
            raise refused(words, node, text, "count, min or max, or CAST(… AS DOUBLE)")
        elif isinstance(node, exp.Where | exp.Having) and _kind(node.this) in ("number", "time"):
            raise refused(
                f"a condition is true or false, {node.this.sql()[:40]} is a {_kind(node.this)}", node, text, "… = …"
            )
        elif isinstance(node, exp.AggFunc):
            _check_aggregate(node, text)


def _check_aggregate(node: exp.AggFunc, text: str) -> None:
    inner = next((n for n in node.walk() if n is not node and isinstance(n, exp.AggFunc)), None)
    if inner is not None and inner.parent_select is node.parent_select and not isinstance(node.parent, exp.WithinGroup):
        raise refused(
            "an aggregate of an aggregate needs a subquery in FROM",
            node,
            text,
            "SELECT max(x) FROM (SELECT sum(…) AS x …)",
        )
    if node.find_ancestor(exp.Where, exp.Group, exp.Join, exp.Select).__class__ in (exp.Where, exp.Group, exp.Join):
        raise refused("an aggregate cannot stand here", node, text, "the condition in HAVING")


def _is_number(words: str) -> bool:
    try:
        float(words)
    except ValueError:
        return False
    return True


def _kind(node: exp.Expr) -> str:
    """A coarse type; literals take the other side's, so a quoted number or date fits any."""
    kind = node.type.this if node.type else None
    if isinstance(node, exp.Literal) and node.is_string:
        return "any"
    if kind in exp.DataType.NUMERIC_TYPES:
        return "number"
    if kind in exp.DataType.TEXT_TYPES:
        return "text"
    if kind in exp.DataType.TEMPORAL_TYPES:
        return "time"
    return "boolean" if kind == exp.DataType.Type.BOOLEAN else "any"
