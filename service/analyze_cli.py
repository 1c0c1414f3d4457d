"""`penstock analyze`: samples the streams and tables of a catalog, and keeps what it finds beside the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from optimizer.errors import PenstockError
from optimizer.explain.text import number, share
from optimizer.interests import interests
from optimizer.sql.ddl import parse_catalog
from optimizer.statistics import (
    ColumnStatistics,
    Measured,
    RelationStatistics,
    Statistics,
    statistics_path,
    write_statistics,
)
from service.errors import errors_for_people, read_text
from service.overrides import parse_pairs, parse_seconds


def analyze(
    catalog: Annotated[Path, typer.Argument(help="A file with CREATE STREAM, TABLE and STATISTICS statements.")],
    query: Annotated[
        list[Path] | None, typer.Option(help="A query whose keys, selections and joins are to be measured; repeatable.")
    ] = None,
    seconds: Annotated[str, typer.Option("--for", help="How long to listen to each stream: 10s, 1m.")] = "10s",
    sample: Annotated[int, typer.Option(min=2, max=10_000_000, help="Tuples of a relation that are enough.")] = 100_000,
    output: Annotated[Path | None, typer.Option(help="The file to write; CATALOG.stats.json where not given.")] = None,
    master: Annotated[str, typer.Option(help="Spark's master, local[*] or spark://host:7077.")] = "local[*]",
    spark: Annotated[list[str] | None, typer.Option(help="A Spark setting: spark.driver.memory=8g.")] = None,
) -> None:
    """Measure rates, sizes, distinct values and selectivities by sampling, for better plans."""
    console = Console(highlight=False, stderr=True)
    with errors_for_people(str(catalog)):
        known = parse_catalog(read_text(catalog, "the catalog"))
        if output is None and str(catalog) == "-":
            raise PenstockError("a catalog from standard input has no place for its statistics; give --output FILE")
        listen = parse_seconds(seconds, "--for")
        if listen <= 0:
            raise PenstockError("--for must be longer than nothing; write --for 10s")
        settings = dict(parse_pairs(spark or [], "--spark spark.driver.memory=8g"))
    texts = []
    for path in query or []:
        with errors_for_people(str(path)):
            text = read_text(path, "the query")
            interests(known, [text])  # an error in it is shown with its own name
            texts.append(text)
    with errors_for_people(str(catalog)):
        from connectors.spark.analyze_catalog import Effort, analyze_catalog
        from connectors.spark.session import spark_on_demand

        def sampling(name: str) -> None:
            console.print(f"sampling {name}", markup=False)

        with spark_on_demand(master, settings) as session:
            found = analyze_catalog(session, known, interests(known, texts), Effort(listen, sample), sampling)
        for name, reason in found.passed_over.items():
            console.print(f"passed over {name}: {reason}", markup=False, soft_wrap=True)
        if not found.statistics.relations:
            raise PenstockError("no stream and no table could be read, so there is nothing to write")
        place = output or statistics_path(catalog)
        write_statistics(place, found.statistics)
        out = Console(highlight=False)
        for grid in tables(found.statistics):
            out.print(grid)
        out.print(f"written to {place}; explain, run and serve use it with --catalog {catalog}", markup=False)


def tables(statistics: Statistics) -> Iterator[Grid]:
    """One table per relation: every figure, its interval, and the tuples it rests on."""
    for relation in statistics.relations:
        title = f"{relation.name}: {relation.sample:,} tuples read" + (", all there are" if relation.whole else "")
        grid = Grid("figure", "value", "95% interval", "sample", title=title, title_justify="left")
        for column in ("value", "95% interval", "sample"):
            next(c for c in grid.columns if c.header == column).justify = "right"
        for cells in _figures(relation):
            grid.add_row(*map(Text, cells))  # a predicate is no markup
        yield grid


def _figures(relation: RelationStatistics) -> Iterator[tuple[str, str, str, str]]:
    if relation.rate:
        yield _row("tuples per second", relation.rate)
    if relation.rows:
        yield _row("rows", relation.rows)
    for columns in relation.columns:
        yield from _column_figures(columns)
    for predicate in relation.predicates:
        yield _row(predicate.predicate.replace('"', ""), predicate.share, shares=True)


def _column_figures(columns: ColumnStatistics) -> Iterator[tuple[str, str, str, str]]:
    names = ", ".join(columns.columns)
    if columns.distinct:
        yield _row(f"distinct {names}", columns.distinct)
    if columns.nulls and columns.nulls.value:
        yield _row(f"{names} is null", columns.nulls, shares=True)
    if columns.minimum is not None and columns.maximum is not None:
        kind = "range, histogram of" if columns.histogram else "range of"
        yield f"{kind} {names}", f"{columns.minimum:,.6g} … {columns.maximum:,.6g}", "", ""


def _row(what: str, found: Measured, shares: bool = False) -> tuple[str, str, str, str]:
    shown = share if shares else number
    exact = found.low is None or found.high is None
    interval = "exact" if exact else f"{shown(found.low or 0.0)} … {shown(found.high or 0.0)}"
    return what, shown(found.value), interval, f"{found.sample:,}"
