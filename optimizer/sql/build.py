"""A bound SELECT to the algebra, as written: no rewriting beyond names.

Derived tables disappear unless they aggregate: their columns are replaced by what they stand for, so a projection is
left only where the query computes something at the root. Aggregates get the canonical aliases agg1, agg2, … and
columns named after their function, so that a correlated query and its join form build the same plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from optimizer.algebra import (
    Aggregate,
    Emission,
    Join,
    JoinKind,
    Named,
    Node,
    Project,
    RelationToStream,
    Scalar,
    Select,
    StoredTable,
    Window,
    WindowUnit,
    aliases,
    column,
    leaves,
    post_order,
)
from optimizer.algebra import text as algebra_text
from optimizer.catalog import Catalog
from optimizer.errors import SqlError
from optimizer.rewrite.equalities import bracketed
from optimizer.sql.dialect import window_of
from optimizer.sql.parse import refused

# Past this size a column that is computed in a derived table is computed once, in a projection of its own.
_INLINE_LIMIT = 60
_MAX_RELATIONS = 256


@dataclass(frozen=True, slots=True)
class _Derived:
    """A query in FROM: its operators, and what each of its columns stands for."""

    node: Node
    columns: Mapping[str, Scalar]


@dataclass
class _Builder:
    catalog: Catalog
    text: str
    aliases: set[str] = field(default_factory=set)
    aggregates: int = 0
    projects: int = 0
    relations: int = 0

    def alias(self, wanted: str) -> str:
        """The alias itself, or the first of alias_2, alias_3, … that is free: aliases are unique in a plan."""
        name, count = wanted, 1
        while name in self.aliases:
            count += 1
            name = f"{wanted}_{count}"
        self.aliases.add(name)
        return name

    # -- FROM -----------------------------------------------------------------------------------------------------

    def source(self, node: exp.Expr, ctes: Mapping[str, exp.Expr]) -> tuple[str, _Derived]:
        name = node.alias_or_name
        if isinstance(node, exp.Subquery):
            return name, self.derived(node.unnest(), ctes)
        if isinstance(node, exp.Table):
            if node.name in ctes:
                return name, self.derived(ctes[node.name], ctes)
            return name, self.leaf(node)
        raise refused("FROM takes streams, tables and subqueries", node, self.text, "FROM stream [RANGE … SLIDE …]")

    def derived(self, query: exp.Expr, ctes: Mapping[str, exp.Expr]) -> _Derived:
        if not isinstance(query, exp.Select):
            raise refused("FROM takes streams, tables and subqueries", query, self.text, "FROM (SELECT …) AS alias")
        return self.select(query, ctes)

    def leaf(self, table: exp.Table) -> _Derived:
        self.relations += 1
        if self.relations > _MAX_RELATIONS:
            message = f"the query reads more than {_MAX_RELATIONS} relations"
            raise refused(message, table, self.text, "fewer relations, or WITH queries that are read less often")
        alias = self.alias(table.alias_or_name)
        relation = self.catalog.relation(table.name)
        assert relation is not None
        names = tuple(c.name for c in relation.columns)
        typed = {c.name: column(alias, c.name) for c in relation.columns}
        for c in relation.columns:
            typed[c.name].type = c.type
        spec = window_of(table)
        node: Node
        if spec is None:
            node = StoredTable(table.name, alias, names)
        else:
            node = Window(table.name, alias, spec, table.meta["time"], names)
        return _Derived(node, typed)

    # -- SELECT ---------------------------------------------------------------------------------------------------

    def select(self, select: exp.Select, outer: Mapping[str, exp.Expr]) -> _Derived:
        ctes = dict(outer)
        if with_ := select.args.get("with_"):
            for cte in with_.expressions:
                ctes[cte.alias] = cte.this
        sources: dict[str, _Derived] = {}
        name, first = self.source(select.args["from_"].this, ctes)
        sources[name], node = first, first.node
        for join in select.args.get("joins") or []:
            name, right = self.source(join.this, ctes)
            sources[name] = right
            condition = tuple(self.conjuncts(join.args.get("on"), sources))
            if join.side == "RIGHT":
                node = Join(right.node, node, (), condition, JoinKind.LEFT)
            else:
                kind = JoinKind.LEFT if join.side == "LEFT" else JoinKind.INNER
                node = Join(node, right.node, (), condition, kind)
        if predicates := tuple(self.conjuncts(select.args.get("where"), sources)):
            node = Select(node, predicates)
        items = {item.alias_or_name: self.resolved(item.unalias(), sources) for item in select.expressions}
        if len(items) < len(select.expressions):
            names = [item.alias_or_name for item in select.expressions]
            twice = next(n for n in names if names.count(n) > 1)
            raise refused(f"two result columns are called {twice}", select, self.text, f"… AS {twice}_2")
        grouped = select.args.get("group") or select.args.get("having")
        if grouped or any(item.find(exp.AggFunc) for item in items.values()):
            node, items = self.aggregate(select, node, items, sources)
        if select.args.get("distinct"):
            node, items = self.distinct(node, items)
        return self.inlined(node, items)

    def resolved(self, expression: exp.Expr, sources: Mapping[str, _Derived]) -> Scalar:
        """The expression with the columns of derived tables replaced by what they stand for."""

        def stand_for(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column):
                return node
            target = sources[node.table].columns.get(node.name) if node.table in sources else None
            if target is None:
                raise refused(f"no column is called {node.name} in {node.table}", node, self.text, "alias.column")
            found = bracketed(target)
            if isinstance(found, exp.Column):  # a later refusal points at the words of the query
                found.this.meta.update(node.this.meta)
            return found

        if isinstance(expression, exp.Column):
            return stand_for(expression)
        copy = expression.copy()
        copy.comments = None
        result = copy.transform(stand_for, copy=False)
        if isinstance(result, exp.Paren):
            result = result.unnest()
        assert isinstance(result, exp.Expression)
        return result

    def conjuncts(self, condition: exp.Expr | None, sources: Mapping[str, _Derived]) -> list[Scalar]:
        if condition is None:
            return []
        root = condition.this if isinstance(condition, exp.Where | exp.Having) else condition
        parts = root.flatten() if isinstance(root, exp.And) else [root]
        resolved = [self.resolved(part.unnest(), sources) for part in parts]
        return [part for part in resolved if not (isinstance(part, exp.Boolean) and part.this)]

    def inlined(self, node: Node, items: dict[str, Scalar]) -> _Derived:
        """Large computed columns get a projection; all others are left to whoever reads them."""
        if all(sum(1 for _ in item.walk()) <= _INLINE_LIMIT for item in items.values()):
            return _Derived(node, items)
        self.projects += 1
        alias = self.alias(f"proj{self.projects}")
        project = Project(node, alias, tuple(Named(name, item) for name, item in items.items()))
        return _Derived(project, {name: typed_column(alias, name, item) for name, item in items.items()})

    # -- aggregates -----------------------------------------------------------------------------------------------

    def aggregate(
        self, select: exp.Select, node: Node, items: dict[str, Scalar], sources: Mapping[str, _Derived]
    ) -> tuple[Node, dict[str, Scalar]]:
        group = select.args.get("group")
        grouped = [self.resolved(e, sources) for e in group.expressions] if group else []
        having = self.conjuncts(select.args.get("having"), sources)
        self.aggregates += 1
        alias = self.alias(f"agg{self.aggregates}")
        taken: set[str] = set()
        keys = {key: _free(_key_name(key), taken) for key in _sorted_keys(dict.fromkeys(grouped))}
        calls = dict.fromkeys(call for e in (*items.values(), *having) for call in _outer_calls(e))
        functions = {call: _free(_function_name(call), taken) for call in calls}
        replaced = {**keys, **functions}

        def above(expression: Scalar) -> Scalar:
            result = _above_aggregate(expression, alias, replaced)
            for left in result.find_all(exp.Column):
                if left.table != alias:
                    hint = f"{left.name} in GROUP BY, or an aggregate of it"
                    raise refused(f"column {left.name} is neither grouped by nor aggregated", left, self.text, hint)
            return result

        result: Node = Aggregate(
            node,
            alias,
            tuple(Named(name, key) for key, name in keys.items()),
            tuple(Named(name, call) for call, name in functions.items()),
        )
        if having:
            result = Select(result, tuple(above(h) for h in having))
        return result, {name: above(item) for name, item in items.items()}

    def distinct(self, node: Node, items: dict[str, Scalar]) -> tuple[Node, dict[str, Scalar]]:
        self.aggregates += 1
        alias = self.alias(f"agg{self.aggregates}")
        keys = tuple(Named(name, item) for name, item in items.items())
        return Aggregate(node, alias, keys, ()), {n: typed_column(alias, n, item) for n, item in items.items()}


def _free(wanted: str, taken: set[str]) -> str:
    name, count = wanted, 1
    while name in taken:
        count += 1
        name = f"{wanted}_{count}"
    taken.add(name)
    return name


def typed_column(alias: str, name: str, like: exp.Expr) -> exp.Column:
    result = column(alias, name)
    result.type = like.type
    return result


def _sorted_keys(keys: dict[Scalar, None]) -> list[Scalar]:
    """GROUP BY lists are sets: one order for all spellings."""
    return sorted(keys, key=algebra_text)


def _key_name(key: Scalar) -> str:
    return key.name if isinstance(key, exp.Column) else "key"


def _function_name(call: Scalar) -> str:
    """
    >>> import sqlglot
    >>> _function_name(sqlglot.parse_one("max(p.value)")), _function_name(sqlglot.parse_one("count(*)"))
    ('max_value', 'count')
    """
    function = call.this if isinstance(call, exp.Filter | exp.WithinGroup) else call
    columns = [c.name for c in call.find_all(exp.Column)]
    return "_".join([function.key, *columns[:1]])


def _outer_calls(expression: Scalar) -> list[Scalar]:
    """Aggregate calls, with the FILTER or WITHIN GROUP that belongs to them."""
    calls: list[Scalar] = []
    for call in expression.find_all(exp.AggFunc):
        whole: exp.Expr = call
        while isinstance(whole.parent, exp.Filter | exp.WithinGroup) and whole.parent is not None:
            whole = whole.parent
        calls.append(whole)
    return calls


def _above_aggregate(expression: Scalar, alias: str, outputs: Mapping[Scalar, str]) -> Scalar:
    """Whole keys and calls replaced by the aggregate's columns, never a part of one that was replaced already."""
    if expression in outputs:
        return typed_column(alias, outputs[expression], expression)
    copy = expression.copy()
    pending = [copy]
    while pending:
        for child in list(pending.pop().iter_expressions()):
            if child in outputs:
                child.replace(typed_column(alias, outputs[child], child))
            else:
                pending.append(child)
    return copy


def build(select: exp.Select, catalog: Catalog, text: str) -> RelationToStream:
    """The plan as written, with the relation-to-stream operator at its root."""
    builder = _Builder(catalog, text)
    derived = builder.select(select, {})
    modifiers = select.args.get("operation_modifiers") or []
    node, items = derived.node, tuple(Named(name, e) for name, e in derived.columns.items())
    if any(not isinstance(item.expression, exp.Column) for item in items):
        alias = builder.alias("result")
        node = Project(node, alias, items)
        items = tuple(Named(item.name, typed_column(alias, item.name, item.expression)) for item in items)
    if not items or not aliases(node):
        raise SqlError("the query has no result column", text, None, "SELECT a column")
    emission = Emission(modifiers[0].name.lower()) if modifiers else _default_emission(node)
    if emission is Emission.ISTREAM and _default_emission(node) is Emission.ISTREAM:
        _check_tuple_driven(node, select, text)
    return RelationToStream(node, emission, items)


def _check_tuple_driven(node: Node, select: exp.Select, text: str) -> None:
    """A row that comes out once, when its last tuple arrives, is not defined for every join of moving windows."""
    hint = "SELECT RSTREAM … with SLIDE in every window"
    windows = [leaf for leaf in leaves(node) if isinstance(leaf, Window)]
    ticked = next((c for c in select.find_all(exp.Anonymous) if c.name.upper() == "TICK"), None)
    if ticked is not None:
        raise refused("TICK() needs a query that is evaluated at ticks", ticked, text, hint)
    rows = next((w for w in windows if w.spec.unit is WindowUnit.ROWS), None)
    if rows is not None and len(windows) > 1:
        where = next((t for t in select.find_all(exp.Table) if t.name == rows.stream), select)
        raise refused(f"the ROWS window of {rows.alias} in a join needs ticks to be evaluated at", where, text, hint)
    for inside in post_order(node):
        if isinstance(inside, Project) and inside is not node:
            # A projection of its own would hide the time at which its tuples arrived from the joins above it.
            message = f"a column computed in a subquery has more than {_INLINE_LIMIT} parts"
            raise refused(message, select, text, "the columns in the subquery, the computation in the outermost SELECT")
    for join in post_order(node):
        if isinstance(join, Join) and join.kind is JoinKind.LEFT:
            inner = next((leaf for leaf in leaves(join.right) if isinstance(leaf, Window)), None)
            if inner is not None:
                where = next((t for t in select.find_all(exp.Table) if t.name == inner.stream), select)
                message = f"whether {inner.alias} has no match is never final without ticks (an outer join of streams)"
                raise refused(message, where, text, f"JOIN, or {hint}")


def _default_emission(node: Node) -> Emission:
    """Slide-driven with an aggregate anywhere, tuple-driven without."""
    aggregated = any(isinstance(n, Aggregate) for n in post_order(node))
    return Emission.RSTREAM if aggregated else Emission.ISTREAM
