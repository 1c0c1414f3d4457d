"""The commands that run queries: run, emit, delete. Spark is imported only when one of them is called."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from optimizer.hints import Hints
from optimizer.optimize import Options, optimize
from service.catalogs import UseStatistics, read_catalog
from service.errors import errors_for_people, read_text
from service.overrides import parse_force, parse_pairs, parse_rates, parse_seconds
from service.profile_lookup import find_profile

Query = Annotated[Path, typer.Argument(help="A file with one continuous query; - reads standard input.")]
CatalogFile = Annotated[Path, typer.Option(help="A file with CREATE STREAM, TABLE and STATISTICS statements.")]
Url = Annotated[
    str | None, typer.Option(envvar="PENSTOCK_POSTGRES", help="PostgreSQL's address: postgresql://user@host:5432/db.")
]
Profile = Annotated[
    Path | None, typer.Option(help="A calibration profile; this machine's own or the shipped one, where not given.")
]


class Spe(StrEnum):
    """How Spark runs what is placed in it."""

    PLANNED = "planned"
    EXPAND = "expand"
    PANE = "pane"
    NATIVE = "native"


def run(
    query: Query,
    catalog: CatalogFile,
    plan: Annotated[str, typer.Option(help="optimal, spe, db, or a plan kept with explain --format json.")] = "optimal",
    spe: Annotated[Spe, typer.Option(help="How Spark aggregates windows; native: one Spark query.")] = Spe.PLANNED,
    db: Annotated[str, typer.Option(help="The database: duckdb or postgres.")] = "duckdb",
    url: Url = None,
    memory: Annotated[bool, typer.Option("--memory", help="DuckDB in memory: not durable.")] = False,
    master: Annotated[str, typer.Option(help="Spark's master, local[*] or spark://host:7077.")] = "local[*]",
    seconds: Annotated[str | None, typer.Option("--for", help="Stop after 60s, 5m, 1h; else on Ctrl-C.")] = None,
    rate: Annotated[list[str] | None, typer.Option(help="A stream's rate: plugs=20000.")] = None,
    sink: Annotated[
        str, typer.Option(help="console, parquet:DIR, duckdb:FILE#TABLE, postgres:URL#TABLE, kafka:SERVERS#TOPIC.")
    ] = "console",
    state: Annotated[
        Path | None, typer.Option(help="Where the deployment keeps its state; .penstock/QUERY where not given.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget the state that is there and begin anew.")] = False,
    trigger: Annotated[str, typer.Option(help="Time between batches; 'once' reads all there is and ends.")] = "500ms",
    force: Annotated[list[str] | None, typer.Option(help="An operator to spe or db: agg1=db.")] = None,
    spark: Annotated[list[str] | None, typer.Option(help="A Spark setting: spark.driver.memory=8g.")] = None,
    profile: Profile = None,
    statistics: UseStatistics = True,
    observations: Annotated[
        Path | None, typer.Option(help="Where to leave a line for calibrate --refit; the user's own, if not given.")
    ] = None,
) -> None:
    """Run a continuous query on Spark and the database."""
    with errors_for_people("catalog" if str(catalog) == "-" else str(catalog)):
        known = read_catalog(catalog, statistics)
    with errors_for_people(str(query)):
        from migration.observations import default_path
        from service.panel import Panel
        from service.run import Request, run

        costs, name, _ = find_profile(profile)
        options = Options(
            database=db,
            rates=parse_rates(rate or []),
            hints=Hints(parse_force(force or [])),
            profile=costs,
            profile_name=name,
        )
        request = Request(
            read_text(query, "the query"),
            known,
            options,
            state or Path(".penstock") / (query.stem if str(query) != "-" else "query"),
            plan,
            spe.value,
            sink,
            url,
            memory,
            fresh,
            master,
            parse_seconds(seconds, "--for") if seconds else None,
            None if trigger == "once" else parse_seconds(trigger, "--trigger"),
            dict(parse_pairs(spark or [], "--spark spark.driver.memory=8g")),
            observations or default_path(),
        )
        run(request, Panel())


def emit(query: Query, catalog: CatalogFile, statistics: UseStatistics = True) -> None:
    """Print the query as one plain PySpark program, as a Spark user would write it."""
    with errors_for_people(str(catalog)):
        known = read_catalog(catalog, statistics)
    with errors_for_people(str(query)):
        from connectors.spark.native import native_script

        sql = read_text(query, "the query")
        typer.echo(native_script(optimize(sql, known).plan.tree, known, sql), nl=False)


def delete(
    state: Annotated[Path, typer.Argument(help="The state directory of a deployment that is not running.")],
    url: Url = None,
) -> None:
    """Remove a deployment: its tables in the database and its state directory."""
    with errors_for_people(str(state)):
        from migration.deployment import drop_state

        drop_state(state, url)


def demo(
    seconds: Annotated[float, typer.Option("--for", help="Seconds of the live part.")] = 20.0,
) -> None:
    """CQ1 on the smart-plug stream: the plan, the running query, and a comparison with Spark alone."""
    with errors_for_people("demo"):
        from service.demo import demo

        demo(seconds)
