"""Streams, stored tables and what is known about their data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite

from sqlglot import exp

from costmodel.flow import Source
from costmodel.spread import Spread
from optimizer.errors import HintError
from optimizer.histogram import Histogram

MAX_RATE = 1e12  # tuples per second, or rows of a stored table


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: exp.DataType
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Figure:
    """A statistic, where it came from, and how far it may be off where it was sampled."""

    value: float
    source: Source = Source.CATALOG
    spread: Spread | None = None


@dataclass(frozen=True, slots=True)
class ColumnSet:
    """What is known of some columns of one relation together: distinct values; for a single column also its range.

    `source` is that of the range. Times count in seconds since 1970.
    """

    columns: frozenset[str]
    distinct: Figure | None = None
    low: float | None = None
    high: float | None = None
    nulls: Figure | None = None
    source: Source = Source.CATALOG
    histogram: Histogram | None = None


@dataclass(frozen=True, slots=True)
class Selectivity:
    """The share of tuples (of pairs, for two relations) that satisfy a predicate.

    Columns in `predicate` are qualified by the relation's name, so that it can be compared with a query's own.
    """

    relations: tuple[str, ...]
    predicate: exp.Expr
    share: Figure


@dataclass(frozen=True, slots=True)
class Watermark:
    column: str
    delay_us: int


@dataclass(frozen=True, slots=True)
class Stream:
    name: str
    columns: tuple[Column, ...]
    watermark: Watermark | None
    options: Mapping[str, str | float | bool]
    rate: Figure | None
    statistics: tuple[ColumnSet, ...] = ()
    selectivities: tuple[Selectivity, ...] = ()

    @property
    def offered(self) -> float | None:
        """The rate for a connector that makes its own tuples: the one asked for, not one that was measured of it."""
        if self.rate is not None and self.rate.source is not Source.ANALYZED:
            return self.rate.value
        declared = self.options.get("rate")
        return declared if isinstance(declared, float) else None


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    options: Mapping[str, str | float | bool]
    rows: Figure | None
    statistics: tuple[ColumnSet, ...] = ()
    selectivities: tuple[Selectivity, ...] = ()


@dataclass(frozen=True, slots=True)
class Catalog:
    streams: Mapping[str, Stream] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    text: str = ""
    assumed: Mapping[str, float] = field(default_factory=dict)

    def relation(self, name: str) -> Stream | Table | None:
        return self.streams.get(name) or self.tables.get(name)

    def names(self) -> list[str]:
        return [*self.streams, *self.tables]

    def with_rates(self, rates: Mapping[str, float]) -> Catalog:
        """What-if: other rates for some streams (or row counts for some tables)."""
        streams, tables = dict(self.streams), dict(self.tables)
        for name, value in rates.items():
            if not isfinite(value) or not 0 < value <= MAX_RATE:
                raise HintError(f"the rate of {name} must be positive and at most {MAX_RATE:g}, found {value:g}")
            figure = Figure(value, Source.OVERRIDE)
            if name in streams:
                streams[name] = replace(streams[name], rate=figure)
            elif name in tables:
                tables[name] = replace(tables[name], rows=figure)
            else:
                known = ", ".join(self.names()) or "none"
                raise HintError(
                    f"a rate is given for {name}, but the catalog has no such stream or table (it has: {known})"
                )
        return replace(self, streams=streams, tables=tables)

    def assuming(self, figures: Mapping[str, float]) -> Catalog:
        """What if: other values for some of the figures that explain lists, by `Estimate.name`."""
        return replace(self, assumed={**self.assumed, **figures})
