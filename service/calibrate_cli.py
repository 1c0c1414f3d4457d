"""`penstock calibrate` on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from service.errors import errors_for_people
from service.profile_lookup import own_profile_path


def calibrate(
    quick: Annotated[bool, typer.Option("--quick", help="Under two minutes; without, under fifteen.")] = False,
    db: Annotated[list[str] | None, typer.Option(help="duckdb, postgres; both where not given.")] = None,
    url: Annotated[str | None, typer.Option(help="A PostgreSQL to measure on; else one of our own.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="Where to write the profile; where explain looks, if not given.")
    ] = None,
    refit: Annotated[bool, typer.Option("--refit", help="Measure nothing: fit to what runs have left.")] = False,
    observations: Annotated[
        Path | None, typer.Option(help="Lines of earlier runs; new ones are appended. The user's own, if not given.")
    ] = None,
    start_from: Annotated[
        Path | None, typer.Option(help="The profile whose numbers stay where nothing is measured.")
    ] = None,
    name: Annotated[str, typer.Option(help="What the profile is called.")] = "this machine",
) -> None:
    """Measure the engines on this machine, and write the profile that plans are costed with."""
    from costmodel.profile import default_profile, load_profile
    from migration.observations import default_path
    from service import calibrate as command  # imported late: explain does without Spark

    console = Console(width=None if Console().is_terminal else 120)
    with errors_for_people("calibrate"):
        before = load_profile(start_from) if start_from else default_profile()
        known = observations or default_path()
        wanted = command.databases(db, url, console)
        request = command.Request(quick, wanted, url, output or own_profile_path(), known, name)
        found = command.refit(request, before) if refit else command.run(request, before, console)
        console.print(command.render(found))
        console.print(f"profile {found.profile.name} written to {request.output}")
