"""Relational operators on Spark, for all ticks of a micro-batch in one job.

A relation is a DataFrame with its operator's flat columns and `_tick`, the instant its rows belong to. What is the
same at every tick, because only stored tables are below, has no `_tick` until it meets a relation that has one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf

import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame, SparkSession
from sqlglot import exp

from connectors.inference import Types, output_types, typed
from connectors.spark.expressions import TICK, flat, lowered, moment, quoted, reads_tick, spark_name, spark_sql
from connectors.tick import Tick
from costmodel.operators import Side, copied_side
from optimizer.algebra import (
    Aggregate,
    Join,
    JoinKind,
    Node,
    Project,
    Scalar,
    Select,
    StoredTable,
    Window,
    WindowUnit,
)
from optimizer.catalog import Catalog
from optimizer.sql.render import flat_names

SEQUENCE = "_seq"  # a tuple's number in its stream, for windows of rows
_OTHER_TICK = "_other_tick"
_PRESENT = "_present"
_KEY = "_key"


@dataclass
class Evaluation:
    """Where operators find their inputs: buffered streams, stored tables, and what was evaluated elsewhere."""

    spark: SparkSession
    ticks: Sequence[Tick]
    catalog: Catalog
    window: Callable[[Window], DataFrame]  # at least the tuples the ticks need, under the stream's own names
    table: Callable[[StoredTable], DataFrame]
    given: Mapping[int, DataFrame] = field(default_factory=dict)  # by identity of the node, flat columns and `_tick`
    sizes: Mapping[int, float] = field(default_factory=dict)  # estimated tuples at a tick, by identity of the node

    def relation(self, node: Node) -> DataFrame:
        """The operator's output at every tick."""
        return self._at_ticks(self._evaluate(node))

    def _evaluate(self, node: Node) -> DataFrame:
        if id(node) in self.given:
            return self.given[id(node)]
        match node:
            case Window():
                return self._contents(node)
            case StoredTable():
                return _renamed(self.table(node), {name: f"{node.alias}_{name}" for name in node.columns})
            case Select():
                return self._selected(node)
            case Project():
                return self._projected(node)
            case Join():
                return self._joined(node)
            case Aggregate():
                return self._aggregated(node)

    # -- leaves -------------------------------------------------------------------------------------------------------

    def _contents(self, node: Window) -> DataFrame:
        names = {name: f"{node.alias}_{name}" for name in node.columns}
        frame = self.window(node)
        if node.spec.unit is WindowUnit.TIME:
            size = timedelta(microseconds=node.spec.size)
            ends = [tick.boundaries[node.alias] for tick in self.ticks]
            ranges = [(moment(end - size), moment(end)) for end in ends]
            return self._ranged(frame, node.time_column, ranges, (min(ends) - size, max(ends)), names)
        lasts = [tick.lasts[node.alias] + 1 for tick in self.ticks]
        numbers = [(_number(last - node.spec.size), _number(last)) for last in lasts]
        return self._ranged(frame, SEQUENCE, numbers, (min(lasts) - node.spec.size, max(lasts)), names)

    def _ranged(
        self,
        frame: DataFrame,
        column: str,
        ranges: Sequence[tuple[exp.Expr, exp.Expr]],
        widest: tuple[datetime | int, datetime | int],
        names: Mapping[str, str],
    ) -> DataFrame:
        """The rows of each tick, which has its own half-open range of a column."""
        first, after = (moment(bound) if isinstance(bound, datetime) else _number(bound) for bound in widest)
        inside = f"{quoted(column)} >= {_sql(first)} AND {quoted(column)} < {_sql(after)}"
        kept = frame.where(inside)  # also what a file's statistics are asked for
        if len(self.ticks) == 1:
            return _renamed(kept, names).withColumn(TICK, self._only_tick())
        rows = [(moment(tick.at), *range_) for tick, range_ in zip(self.ticks, ranges, strict=True)]
        ticks = literal_rows(self.spark, rows, (TICK, "_first", "_after"))
        at_ticks = kept.join(F.broadcast(ticks), F.expr(f"{quoted(column)} >= _first AND {quoted(column)} < _after"))
        return _renamed(at_ticks, {**names, TICK: TICK})

    # -- operators ----------------------------------------------------------------------------------------------------

    def _selected(self, node: Select) -> DataFrame:
        frame = self._ready(self._evaluate(node.input), node)
        types, names = output_types(node.input, self.catalog), flat_names(node.input)
        for predicate in node.predicates:
            frame = frame.where(spark_sql(predicate, types, names))
        return frame

    def _projected(self, node: Project) -> DataFrame:
        frame = self._ready(self._evaluate(node.input), node)
        types, names = output_types(node.input, self.catalog), flat_names(node.input)
        out = self._outputs(node)
        items = [_as(spark_sql(i.expression, types, names), *out[node.alias, i.name]) for i in node.items]
        return frame.select(*items, *_tick_of(frame))

    def _joined(self, node: Join) -> DataFrame:
        left, right = self._ready(self._evaluate(node.left), node), self._evaluate(node.right)
        if node.kind is JoinKind.LEFT and TICK in right.columns:
            left = self._at_ticks(left)  # a row without a match comes out at every tick
        names = flat_names(node)
        left = _renamed(left, {**_moved(node.left, names), **({TICK: TICK} if TICK in left.columns else {})})
        right_tick = {} if TICK not in right.columns else {TICK: _OTHER_TICK if TICK in left.columns else TICK}
        right = _renamed(right, {**_moved(node.right, names), **right_tick})
        types = output_types(node, self.catalog)
        on = [f"({spark_sql(k.left, types, names)}) = ({spark_sql(k.right, types, names)})" for k in node.keys]
        on += [f"({spark_sql(residue, types, names)})" for residue in node.residue]
        if _OTHER_TICK in right.columns and len(self.ticks) > 1:
            on.insert(0, f"{TICK} = {_OTHER_TICK}")
        # Spark has no idea how large an aggregate is, and would move both sides to join them.
        sizes = [self.sizes.get(id(side), inf) for side in (node.left, node.right)]
        match copied_side(sizes[0], sizes[1], node.kind is JoinKind.LEFT):
            case Side.LEFT:
                left = F.broadcast(left)
            case Side.RIGHT:
                right = F.broadcast(right)
        joined = left.join(right, F.expr(" AND ".join(on) if on else "TRUE"), node.kind.value)
        return joined.drop(_OTHER_TICK)

    def _aggregated(self, node: Aggregate) -> DataFrame:
        frame = self._ready(self._evaluate(node.input), node)
        types, names = output_types(node.input, self.catalog), flat_names(node.input)
        out = self._outputs(node)
        if not node.keys:
            return self._whole(node, frame, types)
        keys = [F.expr(spark_sql(k.expression, types, names)).alias(f"{_KEY}{i}") for i, k in enumerate(node.keys)]
        ready = frame.select("*", *keys)  # as columns, because GROUP BY takes a literal for a position
        by = [f"{_KEY}{i}" for i in range(len(keys))]
        groups = [*([TICK] if TICK in frame.columns else []), *by]
        named = [_as(key, *out[node.alias, k.name]) for key, k in zip(by, node.keys, strict=True)]
        if not node.functions:
            return ready.select(*groups).distinct().select(*named, *_tick_of(frame))
        calls = [_as(spark_sql(f.expression, types, names), *out[node.alias, f.name]) for f in node.functions]
        results = [F.col(quoted(out[node.alias, f.name][0])) for f in node.functions]
        return ready.groupBy(*groups).agg(*calls).select(*named, *results, *_tick_of(frame))

    def _whole(self, node: Aggregate, frame: DataFrame, types: Types) -> DataFrame:
        """Without keys: one row at every tick, also where there is nothing."""
        out, names = self._outputs(node), flat_names(node.input)
        alone = TICK not in frame.columns or len(self.ticks) == 1
        if not node.functions:
            return self._ticks()
        if alone:
            plain = [_as(spark_sql(f.expression, types, names), *out[node.alias, f.name]) for f in node.functions]
            whole = frame.agg(*plain)
            return whole.withColumn(TICK, self._only_tick()) if TICK in frame.columns else whole
        counted = frame.withColumn(_PRESENT, F.lit(True)).unionByName(
            self._ticks().withColumn(_PRESENT, F.lit(False)), allowMissingColumns=True
        )
        calls = [
            _as(_sql(flat(_where_present(lowered(typed(f.expression, types))), names)), *out[node.alias, f.name])
            for f in node.functions
        ]
        results = [F.col(quoted(out[node.alias, f.name][0])) for f in node.functions]
        return counted.groupBy(TICK).agg(*calls).select(*results, TICK)

    # -- ticks --------------------------------------------------------------------------------------------------------

    def _ready(self, frame: DataFrame, node: Node) -> DataFrame:
        return self._at_ticks(frame) if reads_tick(node) else frame

    def _at_ticks(self, frame: DataFrame) -> DataFrame:
        if TICK in frame.columns:
            return frame
        if len(self.ticks) == 1:
            return frame.withColumn(TICK, self._only_tick())
        return frame.crossJoin(F.broadcast(self._ticks()))

    def _ticks(self) -> DataFrame:
        return literal_rows(self.spark, [(moment(tick.at),) for tick in self.ticks], (TICK,))

    def _only_tick(self) -> Column:
        return F.expr(_sql(moment(self.ticks[0].at)))

    def _outputs(self, node: Node) -> dict[tuple[str, str], tuple[str, str]]:
        """Flat name and Spark type of every column."""
        names = flat_names(node)
        return {own: (names[own], spark_name(t)) for own, t in output_types(node, self.catalog).items()}


def literal_rows(spark: SparkSession, rows: Sequence[Sequence[exp.Expr]], columns: Sequence[str]) -> DataFrame:
    """A few rows that are part of the plan, so that Spark knows how few they are."""
    values = ", ".join("(" + ", ".join(map(_sql, row)) + ")" for row in rows)
    return spark.sql(f"SELECT * FROM VALUES {values} AS t({', '.join(map(quoted, columns))})")


def _where_present(call: exp.Expr) -> exp.Expr:
    """Every aggregate call passes over the row that only stands for its tick."""
    if isinstance(call, exp.Filter):
        both = exp.and_(exp.column(_PRESENT), call.expression.this)
        return exp.Filter(this=call.this.copy(), expression=exp.Where(this=both))
    if isinstance(call, exp.WithinGroup | exp.AggFunc):
        return exp.Filter(this=call.copy(), expression=exp.Where(this=exp.column(_PRESENT)))
    for child in list(call.iter_expressions()):
        new = _where_present(child)
        if new is not child:
            child.replace(new)
    return call


def _moved(side: Node, names: Mapping[tuple[str, str], str]) -> dict[str, str]:
    """From the names of one side to those of the join, which differ where flat names meet."""
    return {own: names[column] for column, own in flat_names(side).items()}


def _renamed(frame: DataFrame, names: Mapping[str, str]) -> DataFrame:
    return frame.select(*(F.col(quoted(old)).alias(new) for old, new in names.items()))


def _tick_of(frame: DataFrame) -> list[Column]:
    return [F.col(TICK)] if TICK in frame.columns else []


def _as(sql: str, name: str, type_: str) -> Column:
    return F.expr(sql).cast(type_).alias(name)


def _number(value: int) -> exp.Expr:
    return exp.Literal.number(value)


def _sql(expression: Scalar) -> str:
    return expression.sql(dialect="spark")
