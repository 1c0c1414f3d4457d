"""The statistics file that `penstock analyze` writes beside a catalog: its form, and how it joins the catalog.

A measured figure beats the catalog's, because it is newer and says how far it may be off; what was not measured stays
as the catalog has it. A file that was made for other columns is refused: half of its figures would be about nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from costmodel.flow import Source
from costmodel.spread import Spread
from optimizer.catalog import Catalog, ColumnSet, Figure, Selectivity, Stream, Table
from optimizer.errors import PenstockError
from optimizer.histogram import Histogram
from optimizer.sql.parse import parse_predicate

Relation = TypeVar("Relation", Stream, Table)


class StatisticsError(PenstockError):
    """A statistics file that cannot be read, or that is about another catalog."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Measured(_Model):
    """A figure, its 95% interval, and the number of tuples it rests on; without an interval it is exact."""

    value: float = Field(ge=0)
    low: float | None = Field(default=None, ge=0)
    high: float | None = Field(default=None, ge=0)
    sample: int = Field(ge=0)

    def figure(self) -> Figure:
        if self.low is None or self.high is None:
            return Figure(self.value, Source.ANALYZED)
        return Figure(self.value, Source.ANALYZED, Spread(self.low, self.high, self.sample))


class HistogramStatistics(_Model):
    borders: tuple[float, ...] = Field(min_length=2, description="buckets of equal depth; times in seconds since 1970")
    sample: int = Field(ge=1)
    whole: bool = Field(description="every value of the column was seen")


class ColumnStatistics(_Model):
    columns: tuple[str, ...] = Field(min_length=1)
    distinct: Measured | None = None
    minimum: float | None = None
    maximum: float | None = None
    nulls: Measured | None = Field(default=None, description="the share of NULLs")
    histogram: HistogramStatistics | None = None


class PredicateStatistics(_Model):
    """`predicate` is SQL with columns qualified by the relation; of two relations, the share of pairs."""

    relations: tuple[str, ...] = Field(min_length=1, max_length=2)
    predicate: str
    share: Measured


class RelationStatistics(_Model):
    name: str
    kind: Literal["stream", "table"]
    declared: tuple[str, ...] = Field(description="the catalog's columns and types, which the figures are about")
    sample: int = Field(ge=0, description="tuples read")
    whole: bool = Field(default=False, description="there were no more")
    rate: Measured | None = Field(default=None, description="tuples per second of event time")
    rows: Measured | None = None
    columns: tuple[ColumnStatistics, ...] = ()
    predicates: tuple[PredicateStatistics, ...] = ()


class Statistics(_Model):
    version: Literal[1] = 1
    made: str = Field(description="when, ISO 8601 in UTC")
    catalog: str = Field(description="hash of the catalog's text")
    relations: tuple[RelationStatistics, ...]


def statistics_path(catalog: Path) -> Path:
    """
    >>> statistics_path(Path("examples/catalog.sql")).name
    'catalog.stats.json'
    """
    return catalog.with_suffix(".stats.json")


def catalog_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def declared_columns(relation: Stream | Table) -> tuple[str, ...]:
    return tuple(f"{c.name} {c.type.sql()}" for c in relation.columns)


def read_statistics(path: Path) -> Statistics:
    try:
        return Statistics.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise StatisticsError(f"the statistics {path} cannot be read: {reason}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise StatisticsError(f"{path} holds no statistics: {where}: {first['msg']}; {_REMEDY}") from None


def write_statistics(path: Path, statistics: Statistics) -> None:
    try:
        path.write_text(statistics.model_dump_json(indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise StatisticsError(f"the statistics cannot be written to {path}: {error.strerror}") from None


_REMEDY = "run penstock analyze on the catalog again, remove the file, or give --no-statistics"


def with_statistics(catalog: Catalog, statistics: Statistics, where: str) -> Catalog:
    """The catalog with the measured figures; `where` is the file, for the message that refuses one that is stale."""
    streams, tables = dict(catalog.streams), dict(catalog.tables)
    for found in statistics.relations:
        declared = catalog.relation(found.name)
        kind = "stream" if found.name in streams else "table"
        if declared is None or kind != found.kind:
            raise StatisticsError(f"{where} is stale: the catalog has no {found.kind} {found.name}; {_REMEDY}")
        if declared_columns(declared) != found.declared:
            was, now = ", ".join(found.declared), ", ".join(declared_columns(declared))
            raise StatisticsError(f"{where} is stale: it is about {found.name} ({was}), now ({now}); {_REMEDY}")
        if found.name in streams:
            stream = _merged(streams[found.name], found, where)
            streams[found.name] = replace(stream, rate=found.rate.figure()) if found.rate else stream
        else:
            table = _merged(tables[found.name], found, where)
            tables[found.name] = replace(table, rows=found.rows.figure()) if found.rows else table
    return replace(catalog, streams=streams, tables=tables)


def _merged(relation: Relation, found: RelationStatistics, where: str) -> Relation:
    known = {s.columns: s for s in relation.statistics}
    names = {c.name for c in relation.columns}
    for columns in found.columns:
        if not names.issuperset(columns.columns):
            lacking = ", ".join(sorted(set(columns.columns) - names))
            raise StatisticsError(f"{where} is stale: {found.name} has no column {lacking}; {_REMEDY}")
        key = frozenset(columns.columns)
        known[key] = _column_set(known.get(key, ColumnSet(key)), columns)
    shares = _selectivities(relation.selectivities, found.predicates, where)
    return replace(relation, statistics=tuple(known.values()), selectivities=shares)


def _selectivities(
    before: tuple[Selectivity, ...], found: tuple[PredicateStatistics, ...], where: str
) -> tuple[Selectivity, ...]:
    measured = [_selectivity(predicate, where) for predicate in found]
    kept = [s for s in before if all(s.predicate != m.predicate for m in measured)]
    return (*measured, *kept)


def _column_set(before: ColumnSet, found: ColumnStatistics) -> ColumnSet:
    after = replace(
        before,
        distinct=found.distinct.figure() if found.distinct else before.distinct,
        nulls=found.nulls.figure() if found.nulls else before.nulls,
    )
    if found.minimum is None or found.maximum is None:
        return after
    seen = found.histogram
    histogram = Histogram(tuple(sorted(seen.borders)), seen.sample, seen.whole) if seen else None
    return replace(after, low=found.minimum, high=found.maximum, source=Source.ANALYZED, histogram=histogram)


def _selectivity(found: PredicateStatistics, where: str) -> Selectivity:
    try:
        predicate = parse_predicate(found.predicate)
    except PenstockError:
        raise StatisticsError(f"{where}: {found.predicate!r} is no predicate; {_REMEDY}") from None
    return Selectivity(found.relations, predicate, found.share.figure())
