"""What each operator of a plan costs in either engine: the bridge from algebra and estimates to phase two's numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

from sqlglot import exp

from costmodel.flow import Drive, Flow
from costmodel.operators import AggregateForm, Engines
from costmodel.profile import CalibrationProfile
from optimizer.algebra import (
    Aggregate,
    Join,
    JoinKind,
    Node,
    Project,
    Relational,
    RelationToStream,
    Select,
    StoredTable,
    Tree,
    Window,
    column,
    inputs,
    post_order,
    text,
)
from optimizer.catalog import Catalog
from optimizer.engines import DATABASES, SPARK, Engine
from optimizer.estimate import Estimator, window_over_slide
from optimizer.sql.panes import pane_length

StoreKey = tuple[str, str, frozenset[str]]  # a stream, the unit of its windows, and the selections before them


@dataclass(frozen=True)
class Sharing:
    """How many readers the tuples of one window store have; each of them pays its share.

    In the database all windows of a stream after the same selections read one store. The stream engine keeps tuples for
    joins and projections only: aggregates of windows have partial results of their own.
    """

    in_database: Mapping[StoreKey, int]
    in_spe: Mapping[StoreKey, int]

    @staticmethod
    def of(plan: RelationToStream) -> Sharing:
        nodes = list(post_order(plan))
        read = [below for node in nodes if isinstance(node, Join | Project) for below in inputs(node)]
        both = (Counter(key for node in some if (key := store_key(node)) is not None) for some in (nodes, read))
        return Sharing(*both)

    def sent(self, key: StoreKey) -> int:
        return max(self.in_database.get(key, 1), 1)

    def kept(self, key: StoreKey) -> int:
        return max(self.in_spe.get(key, 1), 1)


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """u in either engine, and the transfers that a border right above it would need.

    `windows` is the part of `db` that ships windows right below the operator into the database. `instead` is what the
    operator above pays more, or less, as an SPE-op where this one is in the database.
    """

    spe: float
    db: float
    windows: float
    send: float
    fetch: float
    form: AggregateForm | None = None  # in the stream engine
    db_form: AggregateForm | None = None
    instead: float = 0.0


@dataclass(frozen=True)
class Costing:
    """The cost model bound to one query, one catalog, one profile and one database."""

    estimator: Estimator
    engines: Engines
    database: Engine
    sharing: Sharing
    above: Mapping[int, Relational]  # by selection, by identity: the first operator above it that is none
    _costs: dict[int, tuple[Node, OperatorCost]] = field(default_factory=dict)
    _lacking: dict[int, tuple[Node, bool, bool]] = field(default_factory=dict)

    @staticmethod
    def of(
        plan: RelationToStream,
        catalog: Catalog,
        profile: CalibrationProfile,
        database: Engine,
        form: AggregateForm | None = None,
    ) -> Costing:
        estimator = Estimator.of(plan, catalog)
        engines = Engines(profile, profile.databases[database.name], estimator.drive, estimator.ticks, form)
        return Costing(estimator, engines, database, Sharing.of(plan), _above_selections(plan))

    def at(self, scale: float) -> Costing:
        """The same plan with all streams faster or slower; what an engine lacks stays as it is."""
        estimator = self.estimator.at(scale)
        engines = replace(self.engines, ticks=estimator.ticks)
        return Costing(estimator, engines, self.database, self.sharing, self.above, _lacking=self._lacking)

    def flow(self, node: Node) -> Flow:
        return self.estimator.flow(node)

    def cost(self, node: Relational) -> OperatorCost:
        known = self._costs.get(id(node))
        if known is None:
            known = self._costs[id(node)] = (node, self._price(node))
        return known[1]

    @property
    def loop(self) -> float:
        """What every plan pays: micro-batches, and bringing the tuples in."""
        streams = {leaf.stream for leaf in self.estimator.relations.values() if isinstance(leaf, Window)}
        return self.engines.loop + sum(self.engines.read(self.estimator.rate(name).value) for name in streams)

    def root_cost(self, node: Relational) -> OperatorCost:
        """Of the plan's last operator: its result goes out of either engine, not into the other one."""
        cost, out = self.cost(node), self.flow(node)
        kept = self._kept(node) if isinstance(node, Select) else 0.0
        return replace(cost, spe=cost.spe + kept + self.engines.collect(), fetch=self.engines.result(out))

    def _kept(self, node: Node) -> float:
        """A window that an operator of the stream engine goes through as a whole is kept there."""
        key = store_key(node)
        return 0.0 if key is None else self.engines.spe_keep(self.flow(node)) / self.sharing.kept(key)

    def _send(self, node: Node) -> float:
        """Into the database: new tuples into a window's store, any other relation at each tick."""
        key = store_key(node)
        flow = self.flow(node)
        return self.engines.ship(flow) if key is None else self.engines.send(flow) / self.sharing.sent(key)

    def _holds(self, table: str) -> bool:
        """A table that lives in another database has to be shipped into this one."""
        connector = self.estimator.catalog.tables[table].options.get("connector", self.database.name)
        return connector == self.database.name or connector not in DATABASES

    def _lacks(self, node: Relational) -> tuple[bool, bool]:
        known = self._lacking.get(id(node))
        if known is None:
            known = (node, SPARK.lacks(node) is not None, self.database.lacks(node) is not None)
            self._lacking[id(node)] = known
        return known[1], known[2]

    def _price(self, node: Relational) -> OperatorCost:
        out = self.flow(node)
        below = inputs(node)
        form: AggregateForm | None = None
        db_form: AggregateForm | None = None
        match node:
            case Select():
                came = self.flow(node.input)
                spe = self.engines.spe_select(came, len(node.predicates))
                db = self._db_select(node, came)
            case Project():
                came = self.flow(node.input)
                spe = self.engines.spe_project(came) + self._kept(node.input)
                db = self.engines.db_project(came)
            case Join():
                left, right = self.flow(node.left), self.flow(node.right)
                spe = self.engines.spe_join(left, right, out, node.kind is JoinKind.LEFT)
                spe += self._kept(node.left) + self._kept(node.right)
                db = self.engines.db_join(left, right, out)
            case Aggregate():
                came, functions = self.flow(node.input), function_kinds(node)
                in_spe = self.engines.spe_aggregate(came, out, functions, window_over_slide(node.input))
                spe, form = in_spe.u, in_spe.form
                if form is AggregateForm.RELATION:
                    spe += self._kept(node.input)
                in_db = self.engines.db_aggregate(came, out, functions, self._panes(node))
                db, db_form = in_db.u, in_db.form
        windows = 0.0
        for leaf in below:
            if isinstance(leaf, Window):
                windows += self._send(leaf)
            elif isinstance(leaf, StoredTable):
                spe += self.engines.spe_stored(self.flow(leaf))
                if not self._holds(leaf.table):
                    windows += self.engines.ship(self.flow(leaf))
        not_in_spe, not_in_db = self._lacks(node)
        spe, db = (inf if not_in_spe else spe), (inf if not_in_db else db + windows)
        fetch, instead = self.engines.fetch(out), self._instead(node)
        return OperatorCost(spe, db, windows, self._send(node), fetch, form, db_form, instead)

    def _instead(self, node: Relational) -> float:
        """An SPE-op that gets a window's tuples from the database, anew at each tick, need not keep them, as its own
        cost says that it does; an aggregate has no panes then."""
        out, above = self.flow(node), self.above.get(id(node))
        if above is None or store_key(node) is None:
            return 0.0
        if isinstance(above, Aggregate):
            functions, groups = function_kinds(above), self.flow(above)
            kept = self.engines.spe_aggregate(out, groups, functions, window_over_slide(above.input))
            if kept.form is not AggregateForm.RELATION:
                return self.engines.spe_aggregate(out, groups, functions, None).u - kept.u
        return -self._kept(node)

    def _panes(self, node: Aggregate) -> float | None:
        """How many panes its window has, where a database can make the aggregate from them."""
        slides = self.engines.drive is Drive.SLIDE and pane_length(node) is not None
        return window_over_slide(node.input) if slides else None

    def _db_select(self, node: Select, came: Flow) -> float:
        above = self.above.get(id(node))
        if isinstance(above, Aggregate) and self.cost(above).db_form is AggregateForm.PANE:
            return self.engines.db_arriving(came, len(node.predicates))
        return self.engines.db_select(came, len(node.predicates))


def _above_selections(plan: RelationToStream) -> dict[int, Relational]:
    found: dict[int, Relational] = {}
    for node in post_order(plan):
        if isinstance(node, Aggregate | Join | Project):
            for below in inputs(node):
                while isinstance(below, Select):
                    found[id(below)] = node
                    below = below.input
    return found


def store_key(node: Tree) -> StoreKey | None:
    """What tuples a window store has, where a node is a window or selections of one; equal keys share a store."""
    predicates: list[exp.Expr] = []
    while isinstance(node, Select):
        predicates += node.predicates
        node = node.input
    if not isinstance(node, Window):
        return None
    stream = node.stream

    def on_stream(part: exp.Expr) -> exp.Expr:
        return column(stream, part.name) if isinstance(part, exp.Column) else part

    return stream, node.spec.unit.value, frozenset(text(p.transform(on_stream)) for p in predicates)


def function_kinds(node: Aggregate) -> tuple[str, ...]:
    """The functions as the calibration profile names them."""
    kinds = []
    for named in node.functions:
        call = named.expression.find(exp.AggFunc) or named.expression
        distinct = " distinct" if isinstance(call.this, exp.Distinct) else ""
        kinds.append(call.key + distinct)
    return tuple(kinds)
