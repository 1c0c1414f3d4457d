"""The penstock command."""

from __future__ import annotations

import os
import sys
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from optimizer.explain.api import Format, render
from optimizer.explain.explanation import ProfileNote, explain_plan
from optimizer.hints import Hints
from optimizer.optimize import Options, Search, optimize
from optimizer.placement.problem import Units
from service import analyze_cli, run_cli
from service.bench.cli import bench
from service.calibrate_cli import calibrate
from service.catalogs import UseStatistics, read_catalog
from service.errors import errors_for_people, read_text
from service.overrides import parse_force, parse_pairs, parse_rates, parse_seconds, parse_sweep
from service.prepare import prepare
from service.profile_lookup import find_profile

app = typer.Typer(
    help="Continuous SQL, placed operator by operator on Spark or a database.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(bench, name="bench")
for command in (run_cli.run, run_cli.emit, run_cli.delete, run_cli.demo, calibrate, analyze_cli.analyze, prepare):
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(metadata.version("penstock"))
        raise typer.Exit


@app.callback()
def options_of_all(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Continuous SQL, placed operator by operator on Spark or a database."""


@app.command()
def explain(
    query: Annotated[Path, typer.Argument(help="A file with one continuous query; - reads standard input.")],
    catalog: Annotated[Path, typer.Option(help="A file with CREATE STREAM, TABLE and STATISTICS statements.")],
    db: Annotated[str, typer.Option(help="The database: duckdb or postgres.")] = "duckdb",
    format: Annotated[Format, typer.Option(help="How to show the plan.")] = Format.TEXT,
    rate: Annotated[
        list[str] | None, typer.Option(help="What if: a stream's rate or a table's rows, plugs=20000.")
    ] = None,
    why_not: Annotated[bool, typer.Option("--why-not", help="Show the plans that were not taken.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Show the plan after each step.")] = False,
    sweep: Annotated[str | None, typer.Option(help="Where the best plan changes: plugs=1000..40000.")] = None,
    force: Annotated[
        list[str] | None, typer.Option(help="An operator, or a stream's selections, to spe or db: agg1=db.")
    ] = None,
    join_order: Annotated[str | None, typer.Option(help="A join order as explain prints it: '((a b) c)'.")] = None,
    phase_one: Annotated[bool, typer.Option(help="Look for the best logical plan.")] = True,
    phase_two: Annotated[bool, typer.Option(help="Look for the best placement; without, all in Spark.")] = True,
    search: Annotated[Search, typer.Option(help="How phase two searches.")] = Search.EXACT,
    feasibility_check: Annotated[
        bool, typer.Option(help="Prefer plans that keep up; without, the smallest Cu.")
    ] = True,
    units: Annotated[
        Units | None, typer.Option(help="What runs on its own; the profile says, where not given.")
    ] = None,
    profile: run_cli.Profile = None,
    statistics: UseStatistics = True,
    ranges: Annotated[bool, typer.Option(help="Show how certain the costs and the choice are.")] = True,
    analyze: Annotated[
        bool, typer.Option("--analyze", help="Run the plan for a while and show what became of the estimates.")
    ] = False,
    seconds: Annotated[str, typer.Option("--for", help="How long --analyze runs the plan: 15s, 2m.")] = "15s",
    spe: Annotated[run_cli.Spe, typer.Option(help="How --analyze aggregates windows in Spark.")] = run_cli.Spe.PLANNED,
    url: run_cli.Url = None,
    master: Annotated[str, typer.Option(help="Spark's master for --analyze.")] = "local[*]",
    observations: Annotated[
        Path | None,
        typer.Option(help="Where --analyze leaves a line for calibrate --refit."),
    ] = None,
) -> None:
    """Show the best plan of a continuous query, and why it is the best; with --analyze, also how it runs."""
    with errors_for_people("catalog" if str(catalog) == "-" else str(catalog)):
        known = read_catalog(catalog, statistics)
    with errors_for_people(str(query)):
        costs, name, warning = find_profile(profile)
        options = Options(
            database=db,
            rates=parse_rates(rate or []),
            hints=Hints(parse_force(force or []), join_order, phase_one, phase_two),
            search=search,
            feasibility_check=feasibility_check,
            units=units,
            profile=costs,
            profile_name=name,
        )
        optimized = optimize(read_text(query, "the query"), known, options)
        over = parse_sweep(sweep) if sweep else None
        note = ProfileNote.of(costs.measured, date.today(), warning)
        explanation = explain_plan(optimized, why_not, trace, over, with_ranges=ranges, profile=note)
        if analyze:
            from migration.observations import default_path
            from service.analyze import Request, run_and_render  # imported late: explain does without Spark

            lines = observations or default_path()
            request = Request(spe.value, url, master, parse_seconds(seconds, "--for"), lines)
            sys.stdout.write(run_and_render(explanation, request, format, why_not))
        else:
            sys.stdout.write(render(explanation, format, why_not))


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.")] = 8080,
    catalog: Annotated[
        list[str] | None, typer.Option(help="A catalog requests may name: smartplug=catalog.sql.")
    ] = None,
    profile: run_cli.Profile = None,
    statistics: UseStatistics = True,
) -> None:
    """Answer plan requests over REST; the OpenAPI document is at /docs."""
    from service import server  # imported late: explain does without a web framework

    with errors_for_people("serve"):
        registered = {}
        for name, path in parse_pairs(catalog or [], "--catalog smartplug=catalog.sql"):
            with errors_for_people(path):
                registered[name] = read_catalog(Path(path), statistics)
        server.serve(host, port, registered, find_profile(profile))


def main() -> None:
    try:
        app()
    finally:
        _leave(sys.exc_info()[1])


def _leave(reason: BaseException | None) -> None:
    """After Spark ran here, ends at once: threads of its gateway live on, under which DuckDB reports leaks at exit."""
    if "pyspark" in sys.modules and isinstance(reason, SystemExit):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(reason.code if isinstance(reason.code, int) else 0)
