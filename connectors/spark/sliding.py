"""The sliding aggregate of a time window from partial aggregates, so that a tick does not read the window again.

Two forms. `PANE` keeps a partial aggregate per pane, a stretch that divides both size and slide, and combines the panes
of [b - size, b) at a tick. `EXPAND` is Spark's own `window(…)`: every new tuple goes into each of the windows it
belongs to, and a tick takes the window that ends at it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from math import gcd

import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame, SparkSession
from sqlglot import exp

from connectors.inference import output_types
from connectors.spark.expressions import TICK, moment, quoted, spark_name, spark_sql
from connectors.spark.relations import literal_rows
from connectors.tick import Tick
from optimizer.algebra import Aggregate, Node, Scalar, Select, Window, WindowUnit, scalars
from optimizer.catalog import Catalog
from optimizer.sql.panes import is_tick, window_of
from optimizer.sql.render import flat_names

BUCKET = "_bucket"  # a pane's first instant, or a window's end


class Form(StrEnum):
    PANE = "pane"
    EXPAND = "expand"


@dataclass(frozen=True, slots=True)
class _Split:
    """An aggregate function in three steps, as Spark SQL: what a bucket keeps, how buckets merge, the result."""

    kept: dict[str, str]
    merged: dict[str, str]  # named like `kept` where the value is of the same kind
    result: str


def splittable(aggregate: Aggregate) -> bool:
    """Whether the aggregate is one of a sliding time window and every function has a partial form."""
    window = window_of(aggregate)
    if window is None or window.spec.unit is not WindowUnit.TIME or window.spec.slide is None:
        return False
    node: Node = aggregate
    while not isinstance(node, Window):
        if any(is_tick(part) for scalar in scalars(node) for part in scalar.walk()):
            return False
        assert isinstance(node, Aggregate | Select)
        node = node.input
    return all(_kind(function.expression) is not None for function in aggregate.functions)


@dataclass(frozen=True)
class SlidingAggregate:
    """A splittable aggregate in one of the forms."""

    aggregate: Aggregate
    form: Form
    catalog: Catalog

    @property
    def window(self) -> Window:
        window = window_of(self.aggregate)
        assert window is not None
        return window

    @property
    def size(self) -> timedelta:
        return timedelta(microseconds=self.window.spec.size)

    def partial(self, arrivals: DataFrame) -> DataFrame:
        """What to keep of new tuples, which come under flat names, after the selections below the aggregate."""
        types, names = output_types(self.aggregate.input, self.catalog), flat_names(self.aggregate.input)
        rows = self._in_buckets(arrivals, names[self.window.alias, self.window.time_column])
        keys = {self._name(k.name): F.expr(spark_sql(k.expression, types, names)) for k in self.aggregate.keys}
        ready = rows.select("*", *(key.cast(self._type(name)).alias(name) for name, key in keys.items()))
        kept = [F.expr(sql).alias(name) for split in self._splits() for name, sql in split.kept.items()]
        groups = [F.col(BUCKET), *(F.col(quoted(name)) for name in keys)]
        return ready.groupBy(*groups).agg(*kept) if kept else ready.select(*groups).distinct()

    def combined(self, spark: SparkSession, stored: DataFrame | None, ticks: Sequence[Tick]) -> DataFrame:
        """The aggregate's output at every tick, from all that is kept."""
        keys, splits = [self._name(k.name) for k in self.aggregate.keys], self._splits()
        if stored is None:
            return self._nothing(spark, ticks)
        merged = [F.expr(sql).alias(name) for split in splits for name, sql in split.merged.items()]
        groups = [F.col(TICK), *(F.col(quoted(key)) for key in keys)]
        buckets = self._at_ticks(spark, stored, ticks)
        together = buckets.groupBy(*groups).agg(*merged) if merged else buckets.select(*groups).distinct()
        if not keys:  # one row at every tick, also where no bucket is
            together = self._frame(spark, ticks).join(together, TICK, "left")
        return together.select(*(F.col(quoted(key)) for key in keys), *self._results(splits), F.col(TICK))

    def _nothing(self, spark: SparkSession, ticks: Sequence[Tick]) -> DataFrame:
        names = flat_names(self.aggregate)
        counts = {self._name(f.name): isinstance(_kind(f.expression), exp.Count) for f in self.aggregate.functions}
        empty = [F.lit(0 if counts.get(name) else None).cast(self._type(name)).alias(name) for name in names.values()]
        frame = self._frame(spark, ticks).select(*empty, TICK)
        return frame.where("FALSE") if self.aggregate.keys else frame

    def _results(self, splits: list[_Split]) -> list[Column]:
        named = [self._name(f.name) for f in self.aggregate.functions]
        return [F.expr(s.result).cast(self._type(name)).alias(name) for name, s in zip(named, splits, strict=True)]

    # -- buckets --------------------------------------------------------------------------------------------------

    @property
    def _slide(self) -> int:
        slide = self.window.spec.slide
        assert slide is not None
        return slide

    @property
    def _pane(self) -> int:
        return gcd(self.window.spec.size, self._slide)

    def _in_buckets(self, arrivals: DataFrame, time: str) -> DataFrame:
        stamp, size, slide = F.col(quoted(time)), self.window.spec.size, self._slide
        if self.form is Form.PANE:
            panes = F.window(stamp, _length(self._pane))
            return arrivals.select("*", panes.alias(BUCKET)).withColumn(BUCKET, F.col(f"{BUCKET}.start"))
        if slide > size:  # Spark has no windows with gaps between them
            stretches = arrivals.select("*", F.window(stamp, _length(slide)).alias(BUCKET))
            ends = stretches.withColumn(BUCKET, F.col(f"{BUCKET}.end"))
            return ends.where(f"{quoted(time)} >= {BUCKET} - INTERVAL '{size}' MICROSECOND")
        # Spark's windows start at multiples of the slide, ours end there.
        shift = _length(-size % slide)
        windows = F.window(stamp, _length(size), _length(slide), shift)
        return arrivals.select("*", windows.alias(BUCKET)).withColumn(BUCKET, F.col(f"{BUCKET}.end"))

    def _at_ticks(self, spark: SparkSession, stored: DataFrame, ticks: Sequence[Tick]) -> DataFrame:
        ends = [tick.boundaries[self.window.alias] for tick in ticks]
        if self.form is Form.EXPAND:
            rows = [(moment(tick.at), moment(end)) for tick, end in zip(ticks, ends, strict=True)]
            return stored.join(F.broadcast(literal_rows(spark, rows, (TICK, BUCKET))), BUCKET)
        first, after = moment(min(ends) - self.size).sql(dialect="spark"), moment(max(ends)).sql(dialect="spark")
        near = stored.where(f"{BUCKET} >= {first} AND {BUCKET} < {after}")
        if len(ticks) == 1:
            return near.withColumn(TICK, F.expr(moment(ticks[0].at).sql(dialect="spark")))
        bounds = [(moment(t.at), moment(end - self.size), moment(end)) for t, end in zip(ticks, ends, strict=True)]
        frame = literal_rows(spark, bounds, (TICK, "_first", "_after"))
        return near.join(F.broadcast(frame), F.expr(f"{BUCKET} >= _first AND {BUCKET} < _after"))

    def _frame(self, spark: SparkSession, ticks: Sequence[Tick]) -> DataFrame:
        return literal_rows(spark, [(moment(tick.at),) for tick in ticks], (TICK,))

    # -- functions ------------------------------------------------------------------------------------------------

    def _splits(self) -> list[_Split]:
        types, names = output_types(self.aggregate.input, self.catalog), flat_names(self.aggregate.input)

        def text(scalar: Scalar) -> str:
            return spark_sql(scalar, types, names)

        splits = []
        for i, function in enumerate(self.aggregate.functions):
            call = _kind(function.expression)
            assert call is not None
            condition = function.expression.expression.this if isinstance(function.expression, exp.Filter) else None
            where = f" FILTER (WHERE {text(condition)})" if condition is not None else ""
            splits.append(_split(call, text, where, f"_f{i}"))
        return splits

    def _name(self, name: str) -> str:
        return flat_names(self.aggregate)[self.aggregate.alias, name]

    def _type(self, flat: str) -> str:
        own = {new: old for old, new in flat_names(self.aggregate).items()}[flat]
        return spark_name(output_types(self.aggregate, self.catalog)[own])


_SAME: dict[type[exp.Expr], str] = {
    exp.Sum: "SUM",
    exp.Min: "MIN",
    exp.Max: "MAX",
    exp.LogicalAnd: "BOOL_AND",
    exp.LogicalOr: "BOOL_OR",
}
_SPREAD: dict[type[exp.Expr], tuple[int, str]] = {
    # The least number of values, and the result from the sum of squared distances and the count.
    exp.Stddev: (2, "SQRT({squares} / ({n} - 1))"),
    exp.StddevSamp: (2, "SQRT({squares} / ({n} - 1))"),
    exp.StddevPop: (1, "SQRT({squares} / {n})"),
    exp.Variance: (2, "{squares} / ({n} - 1)"),
    exp.VariancePop: (1, "{squares} / {n}"),
}

_SPLITTABLE: tuple[type[exp.Expr], ...] = (exp.Count, exp.Avg, exp.ApproxQuantile, *_SAME, *_SPREAD)


def _kind(function: Scalar) -> exp.Expr | None:
    """The call itself, where it can be split."""
    call = function.this if isinstance(function, exp.Filter) else function
    if not isinstance(call, _SPLITTABLE):
        return None
    if isinstance(call.this, exp.Distinct):
        return call if isinstance(call, exp.Count) and len(call.this.expressions) == 1 else None
    if isinstance(call, exp.ApproxQuantile):
        plain = isinstance(call.args.get("quantile"), exp.Literal)
        return call if plain and not call.args.get("accuracy") and not call.args.get("weight") else None
    return call if not call.expressions else None


def _split(call: exp.Expr, text: Callable[[Scalar], str], where: str, name: str) -> _Split:
    n = f"{name}_n"
    if isinstance(call, exp.Count) and isinstance(call.this, exp.Distinct):
        value = text(call.this.expressions[0])
        union = f"SIZE(ARRAY_DISTINCT(FLATTEN(COLLECT_LIST({name}))))"
        return _Split({name: f"COLLECT_SET({value}){where}"}, {name: union}, f"COALESCE({name}, 0)")
    if isinstance(call, exp.Count):
        return _Split({name: text(call) + where}, {name: f"SUM({name})"}, f"COALESCE({name}, 0)")
    for kind, function in _SAME.items():
        if isinstance(call, kind):
            return _Split({name: text(call) + where}, {name: f"{function}({name})"}, name)
    number = f"CAST({text(call.this)} AS DOUBLE)"
    count = {n: f"COUNT({number}){where}"}
    if isinstance(call, exp.Avg):
        kept = {name: f"SUM({number}){where}", **count}
        return _Split(kept, {name: f"SUM({name})", n: f"SUM({n})"}, f"{name} / NULLIF({n}, 0)")
    if isinstance(call, exp.ApproxQuantile):
        kept = {name: f"KLL_SKETCH_AGG_DOUBLE({number}){where}", **count}
        merged = {name: f"KLL_MERGE_AGG_DOUBLE({name})", n: f"SUM({n})"}
        rank = f"CAST({text(call.args['quantile'])} AS DOUBLE)"
        return _Split(kept, merged, f"CASE WHEN {n} > 0 THEN KLL_SKETCH_GET_QUANTILE_DOUBLE({name}, {rank}) END")
    # Buckets have their count, mean and squared distances from the mean. Those of the whole are the buckets' own and
    # the distances of their means from the mean of all: no difference of large numbers, unlike Σx² - (Σx)²/n.
    squares, least, result = f"{name}_squares", *_SPREAD[type(call)]
    kept = {name: f"AVG({number}){where}", squares: f"VAR_POP({number}){where} * COUNT({number}){where}", **count}
    merged = {
        name: f"SUM({n} * {name}) / NULLIF(SUM({n}), 0)",
        f"{name}_means": f"COLLECT_LIST(STRUCT({n} AS n, {name} AS mean)) FILTER (WHERE {n} > 0)",
        squares: f"SUM({squares})",
        n: f"SUM({n})",
    }
    between = f"AGGREGATE({name}_means, 0D, (sum, b) -> sum + b.n * (b.mean - {name}) * (b.mean - {name}))"
    whole = result.format(squares=f"({squares} + {between})", n=n)
    return _Split(kept, merged, f"CASE WHEN {n} >= {least} THEN {whole} END")


def _length(microseconds: int) -> str:
    return f"{microseconds} microseconds"
