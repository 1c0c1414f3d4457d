"""A plan as the body of one Structured Streaming query: the DataFrame code a Spark user would write by hand.

Every relation keeps its alias, so the plan's expressions stand in the code as they are, `p.value > agg1.avg_value`.
What says the instant of a row is a column of its own: `window` in a slide-driven query (`window_time`, the window's
last microsecond, where windows of several sizes meet at their end), `event_time` in a tuple-driven one. A relation has
one such column, as Spark asks of the input of a stateful operator: of the two a join has, the right one is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from connectors.inference import output_types, typed
from connectors.spark.expressions import lowered
from connectors.spark.native_code import call, free_name, listed, literal, quoted, reference, statement
from costmodel.flow import Drive
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
    Window,
    duration,
    leaves,
    post_order,
    scalars,
)
from optimizer.catalog import Catalog
from optimizer.estimate import drive_of
from optimizer.physical import operator_ids
from optimizer.sql.panes import is_tick

WINDOW, WINDOW_TIME, EVENT_TIME, TICK = "window", "window_time", "event_time", "tick"
RESERVED = (WINDOW, WINDOW_TIME, EVENT_TIME, TICK)  # the columns of the emission's own


@dataclass(frozen=True)
class _Relation:
    """A DataFrame in the making: `head`, then method calls on it."""

    head: str
    calls: tuple[str, ...]
    owner: str | None  # the alias under which the instant's column stands; a stored table has none
    windows: tuple[Window, ...] = ()  # below it, tuple-driven only

    def then(self, *calls: str) -> _Relation:
        return _Relation(self.head, (*self.calls, *calls), self.owner, self.windows)


@dataclass
class QueryWriter:
    """Writes the statements of `query(spark, streams)`."""

    tree: RelationToStream
    catalog: Catalog
    lines: list[str] = field(default_factory=list)
    variables: set[str] = field(default_factory=lambda: {"F", "spark", "streams", "query", "main"})
    streams: dict[str, str] = field(default_factory=dict)  # the variable of each stream that is read

    def __post_init__(self) -> None:
        windows = [leaf for leaf in leaves(self.tree) if isinstance(leaf, Window)]
        self.drive = drive_of(self.tree)
        self.timed = self.drive is Drive.SLIDE or len(windows) > 1
        self.one_size = len({w.spec.size for w in windows}) == 1
        self.instant = EVENT_TIME if self.drive is Drive.TUPLE else WINDOW if self.one_size else WINDOW_TIME
        self.names = operator_ids(self.tree)
        self.types: dict[tuple[str, str], exp.DataType] = {}
        for node in post_order(self.tree.input):
            if not isinstance(node, RelationToStream):
                self.types |= output_types(node, self.catalog)

    def write(self) -> list[str]:
        for leaf in leaves(self.tree):
            if isinstance(leaf, Window) and leaf.stream not in self.streams:
                self.stream(leaf)
        root = self.tree.input
        computed: dict[str, Scalar] = {}
        if isinstance(root, Project):  # the last select computes what the query selects
            computed = {item.name: item.expression for item in root.items}
            root = root.input
        relation = self.relation(root)
        items = [Named(i.name, computed.get(i.expression.name, i.expression)) for i in self.tree.items]
        selected = [self.tick(relation), *(self.named(item, relation.owner) for item in items)]
        self.lines.append(statement("return ", relation.head, (*relation.calls, call("select", selected))))
        return self.lines

    # -- leaves ---------------------------------------------------------------------------------------------------

    def stream(self, window: Window) -> None:
        variable = free_name(window.stream, self.variables)
        self.streams[window.stream] = variable
        calls: tuple[str, ...] = ()
        if self.timed:
            watermark = self.catalog.streams[window.stream].watermark
            assert watermark is not None
            delay = duration(watermark.delay_us).lower() if watermark.delay_us else "0 seconds"
            stamp = f"F.col({literal(quoted(window.time_column))}).cast({literal('timestamp')})"
            calls = (call("withColumn", [literal(EVENT_TIME), stamp]),)
            calls += (call("withWatermark", [literal(EVENT_TIME), literal(delay)]),)
        self.lines.append(statement(f"{variable} = ", f"streams[{literal(window.stream)}]", calls))

    def leaf(self, window: Window, predicates: Sequence[Scalar]) -> _Relation:
        """The stream under the window's alias, before it is cut into windows."""
        start = _Relation(self.streams[window.stream] + _alias(window.alias), (), window.alias, (window,))
        return start.then(*(self.where(p, window.alias) for p in predicates))

    def expanded(self, window: Window, predicates: Sequence[Scalar]) -> _Relation:
        """Every tuple once for each window it is in."""
        before = [p for p in predicates if not reads_tick(p)]
        after = [p for p in predicates if reads_tick(p)]
        cut = self.leaf(window, before).then(call("withColumn", [literal(WINDOW), _window(window)]))
        if not self.one_size:
            cut = cut.then(*self.timed_window())
        cut = cut.then(call("drop", [literal(EVENT_TIME)]), _alias(window.alias))
        return cut.then(*(self.where(p, window.alias) for p in after))

    def timed_window(self) -> tuple[str, str]:
        time = f"F.window_time({literal(WINDOW)})"
        return call("withColumn", [literal(WINDOW_TIME), time]), call("drop", [literal(WINDOW)])

    # -- operators ------------------------------------------------------------------------------------------------

    def relation(self, node: Node) -> _Relation:
        base, predicates = selected_leaf(node)
        if isinstance(base, Window):
            at_ticks = self.drive is Drive.SLIDE
            return self.expanded(base, predicates) if at_ticks else self.leaf(base, predicates)
        match node:
            case Select():
                below = self.relation(node.input)
                return below.then(*(self.where(p, below.owner) for p in node.predicates))
            case StoredTable():
                return _Relation(f"spark.table({literal(quoted(node.table))})" + _alias(node.alias), (), None)
            case Project():
                return self.project(node)
            case Join():
                return self.join(node)
            case Aggregate():
                return self.aggregate(node)
            case Window():
                raise AssertionError("a window is a selected leaf")

    def project(self, node: Project) -> _Relation:
        below = self.relation(node.input)
        instant = [literal(self.at(below.owner))] if below.owner else []
        items = [*instant, *(self.named(item, below.owner) for item in node.items)]
        return self.renamed(below.then(call("select", items), _alias(node.alias)), node.alias)

    def aggregate(self, node: Aggregate) -> _Relation:
        base, predicates = selected_leaf(node.input)
        ticked = any(map(reads_tick, (*predicates, *scalars(node))))
        window = base if isinstance(base, Window) and node.functions and not ticked else None
        below = self.leaf(window, predicates) if window else self.relation(node.input)
        instant = _window(window) if window else literal(self.at(below.owner)) if below.owner else None
        keys = [*([instant] if instant else []), *(self.named(key, below.owner) for key in node.keys)]
        functions = [self.named(f, below.owner) for f in node.functions]
        if not functions:
            done = below.then(call("select", keys), ".distinct()")
        else:
            done = below.then(*([call("groupBy", keys)] if keys else []), call("agg", functions))
        if window and not self.one_size:
            done = done.then(*self.timed_window())
        return self.renamed(done.then(_alias(node.alias)), node.alias)

    def join(self, node: Join) -> _Relation:
        left, right = self.assigned(node.left), self.assigned(node.right)
        owner = left.owner or right.owner
        on = self.together(left, right)
        on += [f"{self.sql(k.left, owner)} = {self.sql(k.right, owner)}" for k in node.keys]
        on += [self.sql(r, owner) for r in node.residue]
        how = "left" if node.kind is JoinKind.LEFT else "inner"
        if on or how == "left":
            conditions = [f"F.expr({literal(c)})" for c in on or ["TRUE"]]
            method = call("join", [right.head, "on=" + listed(conditions), f"how={literal(how)}"])
        else:
            method = call("crossJoin", [right.head])
        joined = _Relation(left.head + method, (), owner, left.windows + right.windows)
        if left.owner and right.owner:
            dropped = f"F.col({literal(self.at(right.owner))})"
            joined = joined.then(call("drop", [dropped]))
        return joined

    def together(self, left: _Relation, right: _Relation) -> list[str]:
        """What makes tuples of two streams meet: the same instant, or each still in its window when the other came."""
        if not left.owner or not right.owner:
            return []
        if self.drive is Drive.SLIDE:
            return [f"{self.at(left.owner)} = {self.at(right.owner)}"]
        found = []
        for a in left.windows:
            for b in right.windows:
                # Spark bounds its state by conditions on the columns that have the watermark.
                marked = a.alias == left.owner and b.alias == right.owner
                at_a = self.at(a.alias) if marked else reference(a.alias, a.time_column)
                at_b = self.at(b.alias) if marked else reference(b.alias, b.time_column)
                found.append(f"{at_a} > {at_b} - INTERVAL {duration(a.spec.size)}")
                found.append(f"{at_b} > {at_a} - INTERVAL {duration(b.spec.size)}")
        return found

    def assigned(self, node: Node) -> _Relation:
        """The relation in a variable."""
        relation = self.relation(node)
        base, _ = selected_leaf(node)
        name = base.alias if isinstance(base, Window | StoredTable) else self.names[id(node)]
        variable = free_name(name, self.variables)
        self.lines.append(statement(f"{variable} = ", relation.head, relation.calls))
        return _Relation(variable, (), relation.owner, relation.windows)

    def renamed(self, relation: _Relation, alias: str) -> _Relation:
        return _Relation(relation.head, relation.calls, alias if relation.owner else None, relation.windows)

    # -- expressions ----------------------------------------------------------------------------------------------

    def tick(self, relation: _Relation) -> str:
        if self.drive is Drive.TUPLE:
            times = [literal(reference(w.alias, w.time_column)) for w in relation.windows]
            column = f"F.greatest({', '.join(times)})" if len(times) > 1 else f"F.col({times[0]})"
            return f"{column}.alias({literal(TICK)})"
        assert relation.owner is not None
        return f"F.expr({literal(self.end(relation.owner))}).alias({literal(TICK)})"

    def at(self, owner: str) -> str:
        """The column that says the instant."""
        return f"{quoted(owner)}.{self.instant}"

    def end(self, owner: str) -> str:
        """The end of the window a row is in, as a TIMESTAMP without time zone like all others."""
        at = self.at(owner)
        moment = f"{at}.end" if self.one_size else f"{at} + INTERVAL 1 MICROSECOND"
        return f"CAST({moment} AS TIMESTAMP_NTZ)"

    def where(self, predicate: Scalar, owner: str | None) -> str:
        return call("where", [literal(self.sql(predicate, owner))])

    def named(self, item: Named, owner: str | None) -> str:
        expression = item.expression
        if isinstance(expression, exp.Column):
            column = literal(reference(expression.table, expression.name))
            return column if expression.name == item.name else f"F.col({column}).alias({literal(item.name)})"
        return f"F.expr({literal(self.sql(expression, owner))}).alias({literal(item.name)})"

    def sql(self, scalar: Scalar, owner: str | None) -> str:
        """The text of an expression, in Spark's words and with quotes only where a name needs them."""

        def one(node: exp.Expr) -> exp.Expr:
            if is_tick(node):
                assert owner is not None
                return exp.Var(this=self.end(owner))
            if isinstance(node, exp.Identifier):
                return exp.Identifier(this=node.name, quoted=quoted(node.name) != node.name)
            return node

        return lowered(typed(scalar, self.types)).transform(_no_needless_cast).transform(one).sql(dialect="spark")


def selected_leaf(node: Node) -> tuple[Node, tuple[Scalar, ...]]:
    """What stands below the selections, and their predicates."""
    predicates: tuple[Scalar, ...] = ()
    while isinstance(node, Select):
        predicates = node.predicates + predicates
        node = node.input
    return node, predicates


def reads_tick(scalar: Scalar) -> bool:
    return any(map(is_tick, scalar.find_all(exp.Anonymous)))


def _no_needless_cast(node: exp.Expr) -> exp.Expr:
    needless = isinstance(node, exp.Cast) and isinstance(node.this, exp.Column) and node.this.type == node.to
    return node.this if needless else node


def _alias(name: str) -> str:
    return call("alias", [literal(name)])


def _window(window: Window) -> str:
    """Spark counts the starts of windows from the epoch, Penstock their ends; the last argument makes up for it."""
    size, slide = window.spec.size, window.spec.slide
    assert slide is not None
    lengths = [size, slide, *([-size % slide] if size % slide else [])]
    return f"F.window({', '.join(map(literal, (EVENT_TIME, *(duration(n).lower() for n in lengths))))})"
