"""`penstock prepare`: makes the archive of Spark's classes, with which Spark starts in half the time.

The classes are those that a short run of a query loads, all of it in Spark: the loop, aggregates, joins, files, Arrow.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import typer

from connectors.spark.class_archive import OPTIONS, archive, recording
from optimizer.errors import PenstockError
from service.errors import errors_for_people

CATALOG = """
CREATE STREAM plugs (
    id BIGINT NOT NULL, ts TIMESTAMP NOT NULL, value DOUBLE, property INT NOT NULL, plug_id INT NOT NULL,
    household_id INT NOT NULL, house_id INT NOT NULL, WATERMARK FOR ts AS ts
) WITH (connector = 'smartplug', rate = 1000, pace = 'full', limit = 8000, max_per_batch = 4000);
"""
QUERY = """
SELECT p.house_id, COUNT(*) AS high_loads
FROM plugs [RANGE 3 SECONDS SLIDE 1 SECOND] AS p
JOIN (
    SELECT q.house_id, MAX(q.value) AS max_load
    FROM plugs [RANGE 3 SECONDS SLIDE 1 SECOND] AS q WHERE q.property = 1 GROUP BY q.house_id
) AS m ON p.house_id = m.house_id
WHERE p.property = 1 AND p.value > 0.9 * m.max_load GROUP BY p.house_id
"""
PATIENCE = 300.0  # seconds


def prepare() -> None:
    """Make Spark start in half the time: once per installation, about 20 seconds and 200 MB."""
    with errors_for_people("penstock prepare"):
        target = archive()
        make(target)
        typer.echo(f"{target} is written ({target.stat().st_size >> 20} MB); Spark starts with it from now on")


def make(target: Path) -> None:
    """Runs the query in a process of its own; the archive takes its place when it is complete."""
    with TemporaryDirectory(prefix="penstock-prepare-") as place:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PenstockError(f"{target.parent} cannot be made: {error.strerror}") from None
        for name, text in (("query.sql", QUERY), ("catalog.sql", CATALOG)):
            Path(place, name).write_text(text)
        new = target.with_suffix(".new")
        new.unlink(missing_ok=True)
        arguments = [
            "run",
            "query.sql",
            "--catalog",
            "catalog.sql",
            "--plan",
            "spe",
            "--state",
            "state",
            "--trigger",
            "once",
        ]
        arguments += [
            "--sink",
            "parquet:out",
            "--observations",
            "observations",
            "--spark",
            f"{OPTIONS}={recording(new)}",
        ]
        command = [sys.executable, "-c", "from service.cli import main; main()", *arguments]
        # The JVM has our pipe as its output and writes the archive when it ends: this waits for both.
        try:
            done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=PATIENCE, check=False)
        except subprocess.TimeoutExpired:
            raise PenstockError(f"the run for the archive took more than {PATIENCE:.0f} s") from None
        if done.returncode or not new.exists():
            why = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise PenstockError(f"the archive could not be made: {why[-1] if why else 'Java wrote none'}")
        _check(new)
        new.replace(target)


def _check(new: Path) -> None:
    """A JVM does without an archive that does not fit, but falls over one that is cut short, as on a full disk."""
    from connectors.spark.session import java  # imported late: explain does without Spark

    command = [java(), f"-XX:SharedArchiveFile={new}", "-Xshare:auto", "-XX:-CreateCoredumpOnCrash", "-version"]
    if subprocess.run(command, cwd=new.parent, capture_output=True, timeout=PATIENCE, check=False).returncode:
        new.unlink()
        raise PenstockError(f"the archive in {new.parent} is not complete; is the disk full?")
