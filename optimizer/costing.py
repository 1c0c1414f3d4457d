"""What each operator of a plan costs in either engine: the bridge from algebra and estimates to phase two's numbers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf

from sqlglot import exp

from costmodel.flow import Flow
from costmodel.operators import AggregateForm, Engines
from costmodel.profile import CalibrationProfile
from optimizer.algebra import (
    Aggregate,
    Join,
    Node,
    Project,
    Relational,
    RelationToStream,
    Select,
    StoredTable,
    Window,
    inputs,
)
from optimizer.catalog import Catalog
from optimizer.engines import DATABASES, SPARK, Engine
from optimizer.estimate import Estimator, window_over_slide


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """u in either engine, and the transfers that a border right above it would need."""

    spe: float
    db: float
    send: float
    fetch: float
    form: AggregateForm | None = None


@dataclass(frozen=True)
class Costing:
    """The cost model bound to one query, one catalog, one profile and one database."""

    estimator: Estimator
    engines: Engines
    database: Engine
    _costs: dict[int, tuple[Node, OperatorCost]] = field(default_factory=dict)
    _lacking: dict[int, tuple[Node, bool, bool]] = field(default_factory=dict)

    @staticmethod
    def of(plan: RelationToStream, catalog: Catalog, profile: CalibrationProfile, database: Engine) -> Costing:
        estimator = Estimator.of(plan, catalog)
        engines = Engines(profile, profile.databases[database.name], estimator.drive, estimator.ticks)
        return Costing(estimator, engines, database)

    def at(self, scale: float) -> Costing:
        """The same plan with all streams faster or slower; what an engine lacks stays as it is."""
        estimator = self.estimator.at(scale)
        engines = replace(self.engines, ticks=estimator.ticks)
        return Costing(estimator, engines, self.database, _lacking=self._lacking)

    def flow(self, node: Node) -> Flow:
        return self.estimator.flow(node)

    def cost(self, node: Relational) -> OperatorCost:
        known = self._costs.get(id(node))
        if known is None:
            known = self._costs[id(node)] = (node, self._price(node))
        return known[1]

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
        match node:
            case Select():
                came = self.flow(node.input)
                spe = self.engines.spe_select(came, len(node.predicates))
                db = self.engines.db_select(came, len(node.predicates))
            case Project():
                came = self.flow(node.input)
                spe, db = self.engines.spe_project(came), self.engines.db_project(came)
            case Join():
                left, right = self.flow(node.left), self.flow(node.right)
                spe = self.engines.spe_join(left, right, out)
                db = self.engines.db_join(left, right, out)
            case Aggregate():
                came, functions = self.flow(node.input), function_kinds(node)
                in_spe = self.engines.spe_aggregate(came, out, functions, window_over_slide(node.input))
                spe, form = in_spe.u, in_spe.form
                db = self.engines.db_aggregate(came, functions)
        for leaf in below:
            if isinstance(leaf, Window):
                db += self.engines.send(self.flow(leaf))
            elif isinstance(leaf, StoredTable):
                spe += self.engines.spe_stored(self.flow(leaf))
                if not self._holds(leaf.table):
                    db += self.engines.send(self.flow(leaf))
        not_in_spe, not_in_db = self._lacks(node)
        spe, db = (inf if not_in_spe else spe), (inf if not_in_db else db)
        return OperatorCost(spe, db, self.engines.send(out), self.engines.fetch(out), form)


def function_kinds(node: Aggregate) -> tuple[str, ...]:
    """The functions as the calibration profile names them."""
    kinds = []
    for named in node.functions:
        call = named.expression.find(exp.AggFunc) or named.expression
        distinct = " distinct" if isinstance(call.this, exp.Distinct) else ""
        kinds.append(call.key + distinct)
    return tuple(kinds)
