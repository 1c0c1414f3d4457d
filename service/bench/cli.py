"""`penstock bench`: one command per experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from service.errors import errors_for_people

bench = typer.Typer(help="Measure the optimizer; each command prints a table.", no_args_is_help=True)

Output = Annotated[Path | None, typer.Option(help="Also write the figures as JSON to this file.")]
Databases = Annotated[list[str] | None, typer.Option("--db", help="duckdb, postgres; both where not given.")]
Queries = Annotated[list[str] | None, typer.Option("--query", help="cq1 to cq6; all where not given.")]
Url = Annotated[str | None, typer.Option(help="PostgreSQL's address; one is started where not given.")]
Highest = Annotated[float, typer.Option(help="Where the search for a maximum throughput ends.")]
Trials = Annotated[
    Path | None, typer.Option(help="A file of trials: those in it are not run again, new ones are added.")
]
Directory = Annotated[Path, typer.Option(help="Where figures and pictures go.")]
HIGHEST, RESULTS = 1_000_000.0, Path("benchmarks/results")


def _finish(rendered: object, json: str, output: Path | None) -> None:
    Console(width=None if Console().is_terminal else 150).print(rendered)
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json)


@bench.command()
def table2(
    runs: Annotated[int, typer.Option(help="Runs of each timing; the median is shown.")] = 10,
    output: Directory = RESULTS,
) -> None:
    """Plans examined and optimization times of n-way joins (paper 001, Tables 2 and 3)."""
    from service.bench import pictures
    from service.bench import table2 as experiment

    report = experiment.run(runs)
    _finish(experiment.render(report), experiment.to_json(report), output / "table2.json")
    pictures.table2(report, output)


@bench.command()
def paper(
    quick: Annotated[bool, typer.Option("--quick", help="A fixed subset, with ratios to compare runs by.")] = False,
    minutes: Annotated[float | None, typer.Option(help="The budget; 60 where not given, 6 with --quick.")] = None,
    db: Databases = None,
    query: Queries = None,
    only: Annotated[list[str] | None, typer.Option(help="Of the experiments, those to run.")] = None,
    url: Url = None,
    highest: Highest = HIGHEST,
    trials: Trials = None,
    output: Directory = RESULTS,
) -> None:
    """The experiments of paper 001, section 8, on Spark with DuckDB and with PostgreSQL."""
    from service.bench import paper as experiments
    from service.bench import quick as subset

    if not quick:
        _experiments(minutes or experiments.MINUTES, db, query, only, url, highest, trials, output)
        return
    with errors_for_people("bench"):
        found = subset.run(output, minutes or subset.MINUTES, url)
        _finish(subset.render(found), "", None)


def _experiments(
    minutes: float,
    db: list[str] | None,
    query: list[str] | None,
    only: list[str] | None,
    url: str | None,
    highest: float,
    trials: Path | None,
    output: Path,
) -> None:
    from service.bench import paper as experiments
    from service.bench import plans

    with errors_for_people("bench"):
        done = experiments.run_all(
            output,
            minutes,
            tuple(db or plans.DATABASES),
            tuple(query or plans.QUERIES),
            tuple(only or experiments.EXPERIMENTS),
            url,
            highest,
            kept=trials,
        )
        typer.echo(f"{done.trials} trials in {done.minutes:.1f} minutes; figures and pictures are in {output}")


def _add_experiment(name: str, most: float, about: str) -> None:
    """A command that runs one of the experiments of paper 001 alone, in so many minutes at most."""

    @bench.command(name, help=about)
    def command(
        minutes: Annotated[float, typer.Option(help="The budget.")] = most,
        db: Databases = None,
        query: Queries = None,
        url: Url = None,
        highest: Highest = HIGHEST,
        trials: Trials = None,
        output: Directory = RESULTS,
    ) -> None:
        _experiments(minutes, db, query, [name], url, highest, trials, output)


_add_experiment("figure5", 20.0, "Plans picked at rising rates and their throughput, beside pure plans (Figure 5).")
_add_experiment("figure6", 8.0, "Plans picked with and without the feasibility check (Figure 6).")
_add_experiment("window-slide", 8.0, "How plans bear windows that are long against their slide.")
_add_experiment("crossover", 15.0, "Rates at which the best plan changes, predicted and measured.")
_add_experiment("decision", 45.0, "Placements measured: regret of the pick, verdicts, estimates.")
_add_experiment("accuracy", 10.0, "Estimates of rates, sizes and u, operator by operator.")


@bench.command()
def report(
    results: Annotated[Path, typer.Option(help="Where the figures are.")] = Path("benchmarks/results"),
    output: Annotated[Path, typer.Option(help="The page to write.")] = Path("docs/experiments-paper.md"),
) -> None:
    """Writes the page on the experiments of paper 001 from their figures."""
    from service.bench import paper_report

    with errors_for_people("bench"):
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(paper_report.render(results, output.parent))
        typer.echo(f"{output} is written")


@bench.command()
def qaware(
    quick: Annotated[bool, typer.Option("--quick", help="50 settings, N up to 10.")] = False, output: Output = None
) -> None:
    """Join-ordering heuristics against the optimum (paper 000, sections 3 to 6)."""
    from service.bench import qaware as experiment

    report = experiment.quick() if quick else experiment.run()
    _finish(experiment.render(report), experiment.to_json(report), output)


@bench.command()
def rest(requests: Annotated[int, typer.Option(help="Plan requests to send.")] = 500, output: Output = None) -> None:
    """Latency of uncached plan requests for CQ6 on one worker."""
    from service.bench import rest as experiment

    report = experiment.run(requests)
    _finish(experiment.render(report), experiment.to_json(report), output)


@bench.command()
def fuzz(
    texts: Annotated[int, typer.Option(help="Mutated texts to read.")] = 50_000,
    seed: Annotated[int, typer.Option(help="Of the mutations.")] = 7,
    output: Output = None,
) -> None:
    """Mutated SQL texts: each must be planned or refused, in bounded time."""
    from service.bench import fuzz as experiment

    report = experiment.run(texts, seed)
    _finish(experiment.render(report), experiment.to_json(report), output)
    if report.crashes or report.hangs:
        raise typer.Exit(1)


@bench.command()
def mig(
    query: Annotated[list[str] | None, typer.Option(help="cq1, cq3, cq4, cq5, cq6; all where not given.")] = None,
    seconds: Annotated[float, typer.Option(help="Measured per run, after its warm-up.")] = 15.0,
    highest: Annotated[float, typer.Option(help="Where the search for the highest sustained rate ends.")] = 400_000.0,
    native: Annotated[bool, typer.Option(help="Also run CQ1 as one plain Spark query.")] = True,
    output: Output = None,
) -> None:
    """How much of the smart-plug stream MIGs in DuckDB keep up with, against Spark's own query."""
    from service.bench import mig as experiment

    report = experiment.run(tuple(query or experiment.QUERIES), seconds, highest, native, typer.echo)
    _finish(experiment.render(report), experiment.to_json(report), output)


@bench.command()
def fresh(
    rate: Annotated[float, typer.Option(help="Tuples per second, in real time.")] = 20_000.0,
    seconds: Annotated[float, typer.Option(help="Measured after the warm-up.")] = 60.0,
    output: Output = None,
) -> None:
    """How long after its last tuple a tick's result is out: CQ1 over full windows."""
    from service.bench import steady as experiment

    report = experiment.fresh(rate, seconds)
    _finish(experiment.render_fresh(report), experiment.to_json(report), output)


@bench.command()
def overload(
    rate: Annotated[float, typer.Option(help="Tuples per second offered, more than it can take.")] = 2_400_000.0,
    seconds: Annotated[float, typer.Option(help="For how long.")] = 60.0,
    output: Output = None,
) -> None:
    """More than it can take for a while: memory stays bounded, nothing is lost, it catches up."""
    from service.bench import steady as experiment

    report = experiment.overload(rate, seconds, typer.echo)
    _finish(experiment.render_overload(report), experiment.to_json(report), output)


@bench.command()
def flat(
    rate: Annotated[float, typer.Option(help="Tuples per second, in real time.")] = 20_000.0,
    minutes: Annotated[float, typer.Option(help="How long.")] = 15.0,
    window: Annotated[str, typer.Option(help="The size of CQ1's windows.")] = "60 SECONDS",
    output: Output = None,
) -> None:
    """Memory and window store over a long run of CQ1."""
    from service.bench import steady as experiment

    report = experiment.flat(rate, minutes, window, typer.echo)
    _finish(experiment.render_flat(report), experiment.to_json(report), output)
