"""A catalog's streams and tables, sampled one after the other, and the statistics that follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from connectors.sample_figures import Sample, SampledFigures
from connectors.spark.stream_sample import sample_stream
from connectors.table_sample import sample_table
from optimizer.catalog import Catalog, Stream, Table
from optimizer.errors import PenstockError
from optimizer.interests import Interests
from optimizer.statistics import Statistics, catalog_hash


@dataclass(frozen=True)
class Analysis:
    """The statistics, and why a relation has none."""

    statistics: Statistics
    passed_over: dict[str, str]


@dataclass(frozen=True)
class Effort:
    """How long each stream is listened to, and how many tuples of each relation are enough."""

    seconds: float = 10.0
    tuples: int = 100_000
    enough: Callable[[], bool] = lambda: False


def analyze_catalog(
    spark: Callable[[], SparkSession],
    catalog: Catalog,
    wanted: Interests,
    effort: Effort,
    on_relation: Callable[[str], None] = lambda _: None,
) -> Analysis:
    """A relation that cannot be read is passed over with the reason; Spark is started for streams only."""
    samples: list[Sample] = []
    passed_over: dict[str, str] = {}
    relations: list[Stream | Table] = [*catalog.tables.values(), *catalog.streams.values()]
    for relation in relations:
        on_relation(relation.name)
        try:
            if isinstance(relation, Stream):
                sample = sample_stream(spark(), relation, effort.seconds, effort.tuples, effort.enough)
            else:
                sample = sample_table(relation, effort.tuples)
        except PenstockError as error:
            passed_over[relation.name] = str(error)
            continue
        if isinstance(relation, Stream) and not sample.tuples.num_rows:
            passed_over[relation.name] = "no tuple came"
            continue
        samples.append(sample)
    figures = SampledFigures(samples, wanted)
    try:
        made = datetime.now(UTC).isoformat(timespec="seconds")
        found = Statistics(made=made, catalog=catalog_hash(catalog.text), relations=figures.statistics())
        return Analysis(found, passed_over)
    finally:
        figures.close()
