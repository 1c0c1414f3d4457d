"""Statistics of relations from samples of them. DuckDB counts: it is what the dialect's expressions mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from sqlglot import exp

from connectors import sample_estimates as estimates
from connectors.database import DatabaseError
from connectors.duckdb import DuckDb
from connectors.sample_estimates import Side
from connectors.types import arrow_type
from optimizer.catalog import Column, Stream, Table
from optimizer.interests import Comparison, EquiJoin, Interests, Selection
from optimizer.sql.parse import predicate_text
from optimizer.statistics import (
    ColumnStatistics,
    HistogramStatistics,
    Measured,
    PredicateStatistics,
    RelationStatistics,
    declared_columns,
)

BUCKETS = 100
LEAST = 10  # tuples of a group, for its aggregate to be near that of a whole window
_COUNT = pa.int64()


@dataclass(frozen=True)
class Sample:
    """Tuples of a relation, with all its columns; `rows` is how many a table has."""

    relation: Stream | Table
    tuples: pa.Table
    rows: int | None = None

    @property
    def whole(self) -> bool:
        return self.rows is not None and self.tuples.num_rows >= self.rows


class SampledFigures:
    """The samples of a catalog's relations side by side, under the relations' names."""

    def __init__(self, samples: Sequence[Sample], wanted: Interests) -> None:
        self._samples = {sample.relation.name: sample for sample in samples}
        self._wanted = wanted
        self._duckdb = DuckDb(None)
        for sample in samples:
            self._duckdb.fill(sample.relation.name, sample.tuples)

    def close(self) -> None:
        self._duckdb.close()

    def statistics(self) -> tuple[RelationStatistics, ...]:
        joins = [found for join in self._wanted.joins if (found := self._join(join))]
        return tuple(self._relation(sample, joins) for sample in self._samples.values())

    def _relation(self, sample: Sample, joins: Sequence[PredicateStatistics]) -> RelationStatistics:
        relation, count = sample.relation, sample.tuples.num_rows
        selections = [s for s in self._wanted.selections if s.relation == relation.name]
        own = [join for join in joins if join.relations[0] == relation.name]
        beside = [c for c in self._wanted.comparisons if c.relation == relation.name]
        return RelationStatistics(
            name=relation.name,
            kind="stream" if isinstance(relation, Stream) else "table",
            declared=declared_columns(relation),
            sample=count,
            whole=sample.whole,
            rate=_rate(sample),
            rows=None if sample.rows is None else Measured(value=sample.rows, sample=count),
            columns=tuple(self._columns(sample, group) for group in self._wanted.groups_of(relation.name))
            if count
            else (),
            predicates=(
                *(found for s in selections if (found := self._selection(s, sample))),
                *own,
                *(found for c in beside if (found := self._comparison(c))),
            ),
        )

    # -- columns ----------------------------------------------------------------------------------------------------

    def _columns(self, sample: Sample, group: tuple[str, ...]) -> ColumnStatistics:
        name = sample.relation.name
        counted = self._frequencies(name, [exp.column(column, name, quoted=True) for column in group])
        found = ColumnStatistics(columns=group, distinct=estimates.distinct(counted, sample.rows))
        if len(group) > 1:
            return found
        column = next(c for c in sample.relation.columns if c.name == group[0])
        nulls = sample.tuples.column(column.name).null_count
        share = estimates.share(nulls, sample.tuples.num_rows, sample.whole)
        return found.model_copy(update={"nulls": share, **self._range(sample, column)})

    def _range(self, sample: Sample, column: Column) -> dict[str, float | HistogramStatistics | None]:
        """Smallest and largest value, and the histogram if one is wanted."""
        number = _as_number(column, sample.relation.name)
        if number is None:
            return {}
        levels = [i / BUCKETS for i in range(BUCKETS + 1)]
        shares = exp.Array(expressions=[exp.Literal.number(level) for level in levels])
        borders = exp.func("quantile_disc", number.copy(), shares)
        chosen = exp.select(borders.as_("borders"), exp.func("count", number.copy()).as_("n"))
        sql = (
            chosen.from_(_table(sample.relation.name)).where(exp.func("isfinite", number.copy())).sql(dialect="duckdb")
        )
        schema = pa.schema([("borders", pa.list_(pa.float64())), ("n", _COUNT)])
        ((values, count),) = _rows(self._duckdb.query(sql, {}, schema))
        if not values:
            return {}
        assert isinstance(values, list)
        assert isinstance(count, int)
        compared = self._wanted.compared
        wanted = compared is None or (sample.relation.name, column.name) in compared
        histogram = HistogramStatistics(borders=tuple(values), sample=count, whole=sample.whole) if wanted else None
        return {"minimum": values[0], "maximum": values[-1], "histogram": histogram}

    def _frequencies(self, name: str, keys: Sequence[exp.Expr], nulls: bool = True) -> Mapping[int, int]:
        """How many values come once, twice, …"""
        counted = exp.select(exp.func("count", exp.Star()).as_("times")).from_(_table(name))
        inner = counted.group_by(*(exp.paren(key.copy()) for key in keys))
        for key in () if nulls else keys:
            inner = inner.where(exp.not_(exp.Is(this=key.copy(), expression=exp.null())))
        outer = exp.select("times", exp.func("count", exp.Star()).as_("n")).from_(inner.subquery("counted"))
        schema = pa.schema([("times", _COUNT), ("n", _COUNT)])
        found = self._duckdb.query(outer.group_by("times").sql(dialect="duckdb"), {}, schema)
        return dict(zip(found.column(0).to_pylist(), found.column(1).to_pylist(), strict=True))

    # -- predicates -------------------------------------------------------------------------------------------------

    def _selection(self, selection: Selection, sample: Sample) -> PredicateStatistics | None:
        condition = exp.func("count_if", selection.predicate.copy()).as_("hits")
        sql = exp.select(condition).from_(_table(selection.relation)).sql(dialect="duckdb")
        try:
            ((hits,),) = _rows(self._duckdb.query(sql, {}, pa.schema([("hits", _COUNT)])))
        except DatabaseError:  # a cast that fails on a value: the query would fail on it, too
            return None
        assert isinstance(hits, int | None)
        share = estimates.share(hits or 0, sample.tuples.num_rows, sample.whole)
        if share is None:
            return None
        return PredicateStatistics(
            relations=(selection.relation,), predicate=predicate_text(selection.predicate), share=share
        )

    def _comparison(self, beside: Comparison) -> PredicateStatistics | None:
        """A value beside an aggregate of its group. The one that is the largest or smallest says nothing of the others,
        and it weighs more in a sample than in a window; so it is left out."""

        def over_group(node: exp.Expr) -> exp.Expr:
            return exp.Window(this=node.copy(), partition_by=by()) if isinstance(node, exp.AggFunc) else node

        def by() -> list[exp.Expr]:
            return [key.copy() for key in beside.keys]

        ranked = [
            exp.Window(
                this=exp.RowNumber(),
                partition_by=by(),
                order=exp.Order(expressions=[exp.Ordered(this=f.this.copy(), desc=isinstance(f, exp.Max))]),
            )
            for f in beside.predicate.find_all(exp.Max, exp.Min)
        ]
        others = exp.and_(exp.true(), *(exp.GT(this=rank, expression=exp.Literal.number(1)) for rank in ranked))
        size = exp.Window(this=exp.func("count", exp.Star()), partition_by=by())
        counted = exp.select(
            beside.predicate.transform(over_group).as_("hit"), others.as_("other"), size.as_("size")
        ).from_(_table(beside.relation))
        inner = counted.where(*(p.copy() for p in beside.within))
        outer = exp.select("count_if(hit) AS hits", "count(*) AS n").from_(inner.subquery("each"))
        sql = outer.where("other", f"size >= {LEAST}").sql(dialect="duckdb")
        try:
            ((hits, sample),) = _rows(self._duckdb.query(sql, {}, pa.schema([("hits", _COUNT), ("n", _COUNT)])))
        except DatabaseError:  # a value that the expression fails on
            return None
        assert isinstance(hits, int | None)
        assert isinstance(sample, int)
        share = estimates.share(hits or 0, sample, whole=False)
        if share is None:
            return None
        return PredicateStatistics(
            relations=(beside.relation,), predicate=predicate_text(beside.predicate), share=share
        )

    def _join(self, join: EquiJoin) -> PredicateStatistics | None:
        if join.left not in self._samples or join.right not in self._samples:
            return None
        share = self._self_join(join) if join.left == join.right else self._two(join)
        if share is None:
            return None
        condition = exp.EQ(this=join.left_key.copy(), expression=join.right_key.copy())
        relations = tuple(dict.fromkeys((join.left, join.right)))
        return PredicateStatistics(relations=relations, predicate=predicate_text(condition), share=share)

    def _self_join(self, join: EquiJoin) -> Measured | None:
        if join.left_key != join.right_key:
            return None
        counted = self._frequencies(join.left, [join.left_key], nulls=False)
        return estimates.self_pairs(counted, self._samples[join.left].whole)

    def _two(self, join: EquiJoin) -> Measured | None:
        left, right = self._samples[join.left], self._samples[join.right]
        sides = [
            exp.select(key.copy().as_("key"), exp.func("count", exp.Star()).as_("n"))
            .from_(_table(name))
            .group_by("key")
            .subquery(alias)
            for alias, name, key in (("l", join.left, join.left_key), ("r", join.right, join.right_key))
        ]
        products = ("l.n * r.n", "l.n * r.n * r.n", "r.n * l.n * l.n")
        sums = [f"CAST(coalesce(sum({product}), 0) AS DOUBLE) AS s{i}" for i, product in enumerate(products)]
        sql = exp.select(*sums).from_(sides[0]).join(sides[1], on="l.key = r.key").sql(dialect="duckdb")
        schema = pa.schema([(f"s{i}", pa.float64()) for i in range(3)])
        ((matches, of_left, of_right),) = _rows(self._duckdb.query(sql, {}, schema))
        assert isinstance(matches, float)
        assert isinstance(of_left, float)
        assert isinstance(of_right, float)
        return estimates.pairs(
            matches,
            Side(left.tuples.num_rows, left.whole, of_left),
            Side(right.tuples.num_rows, right.whole, of_right),
        )


def _rate(sample: Sample) -> Measured | None:
    stream = sample.relation
    if not isinstance(stream, Stream) or stream.watermark is None:
        return None
    times = sample.tuples.column(stream.watermark.column).drop_null().cast(pa.int64()).to_numpy()
    return estimates.rate(np.asarray(times, dtype=np.int64))


def _as_number(column: Column, relation: str) -> exp.Expr | None:
    """The column as a DOUBLE, times as seconds since 1970; None for a type without an order of numbers."""
    kind = arrow_type(column.type)
    value = exp.column(column.name, relation, quoted=True)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return exp.func("epoch", exp.cast(value, "TIMESTAMP"))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return exp.cast(value, "DOUBLE")
    return None


def _table(name: str) -> exp.Table:
    return exp.Table(this=exp.to_identifier(name, quoted=True))


def _rows(table: pa.Table) -> list[tuple[object, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
