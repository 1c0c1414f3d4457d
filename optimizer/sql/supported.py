"""Refuses what a continuous query cannot hold, with the place and the form to write.

An allow-list: what is not named here or in a capability table is refused, so that nothing is dropped in silence.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from difflib import get_close_matches

from sqlglot import exp

from optimizer.engines import STRUCTURE, function_names, known_functions, known_somewhere
from optimizer.sql.parse import refused

_SELECT_PARTS = {
    "expressions",
    "from_",
    "joins",
    "where",
    "group",
    "having",
    "distinct",
    "with_",
    "operation_modifiers",
}
_QUERY_FRAME = (
    *(exp.Select, exp.From, exp.Join, exp.Table, exp.TableAlias, exp.Subquery, exp.Alias, exp.With, exp.CTE),
    *(exp.Group, exp.Having, exp.Exists),
)
_WHY_NOT = {
    "order": ("ORDER BY: a stream of results has no order", "no ORDER BY; sort what you receive per tick"),
    "limit": ("LIMIT: every row of a tick goes out", "no LIMIT"),
    "offset": ("OFFSET: every row of a tick goes out", "no OFFSET"),
    "laterals": ("LATERAL is not supported", "a JOIN"),
    "windows": ("a named WINDOW is not supported", "[RANGE … SLIDE …] behind the stream's name"),
    "qualify": ("QUALIFY is not supported", "a subquery in FROM and WHERE above it"),
    "into": ("SELECT INTO is not supported", "a sink, named when the query is run"),
}
# sqlglot's passes take the square of either.
MAX_DEPTH = 300
MAX_WIDTH = 2_000
_JOIN_FORM = "JOIN … ON, LEFT JOIN … ON, or a list of relations and WHERE"


def check_supported(query: exp.Expr, text: str) -> exp.Select:
    """The query itself, where every part of it is supported."""
    if isinstance(query, exp.SetOperation):
        raise refused(f"{query.key.upper()} is not supported", query, text, "one query for each branch")
    if isinstance(query, exp.Subquery) and isinstance(query.unnest(), exp.Select) and not query.alias:
        query = query.unnest()
    if not isinstance(query, exp.Select):
        kind = "an expression" if isinstance(query, exp.Condition) else type(query).__name__.upper()
        raise refused(f"expected a SELECT, found {kind}", query, text, "SELECT … FROM stream [RANGE … SLIDE …] …")
    depths: dict[int, int] = {}
    for node in query.walk():  # parents first
        depths[id(node)] = depths.get(id(node.parent), 0) + 1
        _check_size(node, depths[id(node)], text)
        _check_node(node, text)
    return query


def _check_size(node: exp.Expr, depth: int, text: str) -> None:
    if depth > MAX_DEPTH:
        message = f"an expression is chained or nested more than {MAX_DEPTH} deep"
        raise refused(message, node, text, "fewer terms, or IN (…) in place of many ORs")
    for parts in node.args.values():
        if isinstance(parts, list) and sum(not isinstance(part, exp.Literal) for part in parts) > MAX_WIDTH:
            raise refused(f"a list has more than {MAX_WIDTH} parts", node, text, "fewer columns or arguments")


def _check_node(node: exp.Expr, text: str) -> None:
    if isinstance(node, exp.Select):
        _check_select(node, text)
    elif isinstance(node, exp.Join):
        _check_join(node, text)
    elif isinstance(node, exp.Table):
        _check_table(node, text)
    elif isinstance(node, exp.With) and node.args.get("recursive"):
        raise refused("WITH RECURSIVE is not supported", node, text, "WITH, without recursion")
    elif isinstance(node, exp.Group):
        grouping = [k for k, v in node.args.items() if v and k != "expressions"]
        if grouping:
            raise refused(f"GROUP BY {grouping[0].upper()} is not supported", node, text, "GROUP BY a list of columns")
    elif isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets):
        raise refused(f"GROUP BY {node.key.upper()} is not supported", node, text, "GROUP BY a list of columns")
    elif isinstance(node, exp.SetOperation):
        raise refused(f"{node.key.upper()} is not supported", node, text, "one query for each branch")
    elif isinstance(node, exp.Window):
        hint = "an aggregate with GROUP BY over [RANGE … SLIDE …]"
        raise refused("window functions (OVER) are not supported", node, text, hint)
    elif isinstance(node, exp.Order | exp.Ordered):
        if not node.find_ancestor(exp.WithinGroup):
            raise refused("ORDER BY inside a function is not supported", node, text, "the function without ORDER BY")
    elif isinstance(node, exp.Literal):
        if not node.is_string and not _representable(node.name):
            raise refused(f"the number {node.name[:40]} is out of range", node, text, "a number up to 1e308")
    elif isinstance(node, exp.Column):
        if node.args.get("db") or node.args.get("join_mark"):
            raise refused("a column has at most one qualifier", node, text, "alias.column")
    elif isinstance(node, exp.Anonymous | exp.TryCast) or (
        isinstance(node, exp.Func) and not isinstance(node, STRUCTURE + _QUERY_FRAME)
    ):
        _check_function(node, text)
    elif not isinstance(node, STRUCTURE + _QUERY_FRAME):
        raise refused(f"{_words(node)} is not supported", node, text, "a supported expression; see the README")


def _representable(number: str) -> bool:
    try:
        return abs(Decimal(number).adjusted()) <= 308
    except InvalidOperation:
        return False


def _words(node: exp.Expr) -> str:
    return f"{node.sql()[:40]} ({type(node).__name__})"


def _check_function(node: exp.Expr, text: str) -> None:
    if isinstance(node, exp.Anonymous) and node.name.upper() == "WINDOW":
        return  # resolved, or refused, where GROUP BY is read
    name = function_names(node)[0]
    if not known_somewhere(name):
        shown = node.name if isinstance(node, exp.Anonymous) else name
        if name.upper() in ("NOW", "CURRENTTIMESTAMP", "CURRENTDATE", "RAND", "RANDOM", "UUID"):
            words = f"{shown} is not the same in two engines, or twice in one"
            raise refused(words, node, text, "TICK() for the time of evaluation")
        near = get_close_matches(name.upper(), [known.upper() for known in known_functions()], 1, 0.75)
        hint = near[0] if near else "a function that Spark or the database has"
        raise refused(f"no engine has the function {shown}", node, text, hint)


def _check_select(select: exp.Select, text: str) -> None:
    for part, value in select.args.items():
        if not value or part in _SELECT_PARTS:
            continue
        message, hint = _WHY_NOT.get(part, (f"{part.upper().rstrip('_')} is not supported here", "SELECT … FROM …"))
        raise refused(message, value[0] if isinstance(value, list) else value, text, hint)
    if (distinct := select.args.get("distinct")) and distinct.args.get("on"):
        raise refused("DISTINCT ON is not supported", distinct, text, "DISTINCT, or GROUP BY with min or max")
    if not select.expressions:
        raise refused("SELECT names no column", select, text, "SELECT column, … FROM …")
    if not select.args.get("from_"):
        raise refused("a query reads at least one stream", select, text, "SELECT … FROM stream [RANGE … SLIDE …]")
    modifiers = select.args.get("operation_modifiers") or []
    if modifiers and (len(modifiers) > 1 or select.parent is not None):
        message = f"{modifiers[-1].name} stands once, at the outermost SELECT"
        raise refused(message, select, text, f"SELECT {modifiers[0].name} … at the start of the query")


def _check_join(join: exp.Join, text: str) -> None:
    if join.method or join.side == "FULL" or join.kind in ("SEMI", "ANTI", "OUTER", "STRAIGHT"):
        kind = " ".join(part for part in (join.method, join.side, join.kind, "JOIN") if part)
        raise refused(f"{kind} is not supported", join, text, _JOIN_FORM)
    if join.side and not (join.args.get("on") or join.args.get("using")):
        raise refused(f"{join.side} JOIN needs ON or USING", join, text, _JOIN_FORM)


def _check_table(table: exp.Table, text: str) -> None:
    if not isinstance(table.this, exp.Identifier) or table.args.get("db"):
        raise refused("FROM takes streams and tables of the catalog by name", table, text, "FROM stream [RANGE …]")
    for part, value in table.args.items():
        if value and part not in ("this", "alias", "joins"):
            raise refused(f"{part.upper()} behind a relation is not supported", table, text, "FROM stream [RANGE …]")
    if table.args.get("joins"):
        raise refused("a join in parentheses is not supported", table, text, _JOIN_FORM)
    if table.args.get("alias") and table.args["alias"].args.get("columns"):
        raise refused("an alias with a column list is not supported", table, text, "AS alias, and names in the SELECT")
