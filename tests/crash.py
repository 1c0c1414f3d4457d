"""Kills `penstock run` at named places, starts it again until it ends by itself, and asks the oracle what is missing.

`python -m tests.crash --runs 10 --points all --db duckdb --output crash.json` prints a line per run. A run takes a
point, one of the workloads that reach it, a sink and a batch, all by its number; what is left of the dead process (its
JVM) is killed with it, waited for, or still there when the next one starts.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
from adbc_driver_postgresql import dbapi

from connectors.spark.class_archive import OPTIONS
from migration.deployment import drop_state
from migration.failpoints import VARIABLE
from tests.crash_points import FILES, LAST, OUTSIDE, POINTS, START_UP, WORKLOADS, Point, Workload
from tests.federation import same
from tests.oracle import Row
from tests.postgres_server import postgres_url
from tests.recorded import CATALOG, TABLES, TIMES
from tests.running import DELAY, Recording, read_output
from tests.spark_fixture import INTERPRETED, SHORT

PATIENCE = 240.0  # seconds for a process to end, on a machine with other things to do
QUICK_START = (  # half the time of a process that lives for a few batches is compilation
    "spark.driver.memory=1g",
    f"{OPTIONS}={SHORT}",
    *(f"{option}={value}" for option, value in INTERPRETED.items()),
    "spark.sql.shuffle.partitions=1",
)
SINKS = ("duckdb", "parquet", "postgres")
Output = Mapping[Any, Sequence[Row]]  # what came out, by tick


@dataclass
class Run:
    point: str
    number: int
    database: str
    workload: str
    sink: str
    batch: int
    remains: str  # of the dead process: killed, awaited or ignored
    wanted: int  # kills
    kills: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    left_over: int = 0  # processes that did not end
    seconds: float = 0.0
    failure: str = ""

    @property
    def right(self) -> bool:
        return not (self.lost or self.doubled or self.wrong or self.left_over or self.failure)


@dataclass
class Harness:
    directory: Path
    database: str
    _recording: Recording = field(init=False)

    def __post_init__(self) -> None:
        self._recording = Recording.make(self.directory / "recording", files=FILES)
        (self.directory / "catalog.sql").write_text(_catalog(self.directory / "recording"))
        self._expected: dict[str, Output] = {}

    def run(self, name: str, number: int) -> Run:
        point, random = POINTS[name], Random(f"{name}/{number}/{self.database}")
        turn = number + list(POINTS).index(name)
        sinks = sorted(SINKS, key=lambda sink: sink != self.database)  # its own first
        run = Run(
            name,
            number,
            self.database,
            point.workloads[turn % len(point.workloads)],
            sinks[turn % len(sinks)],
            random.randint(1, LAST),
            random.choice(("killed", "awaited", "ignored")),
            len(point.kills),
        )
        started = time.monotonic()
        with TemporaryDirectory(dir=self.directory, prefix="run-") as place, self._sink(run.sink, Path(place)) as sink:
            self._lives(run, point, Path(place), sink, random)
            if not run.failure:
                expected = self.expected(run.workload)
                run.lost, run.doubled, run.wrong = compare(expected, self._found(run, sink))
            drop_state(Path(place) / "state", postgres_url() if self.database == "postgres" else None)
        run.seconds = time.monotonic() - started
        return run

    def _lives(self, run: Run, point: Point, place: Path, sink: str, random: Random) -> None:
        """One process after the other; none of them is left."""
        command, checkpoint = self._command(run, place, sink), place / "state" / "checkpoint"
        groups: list[int] = []
        with ExitStack() as ends:
            for kill in (*point.kills, ""):
                process = _start(command, _failpoint(kill, run.batch), place / "log")
                groups.append(process.pid)
                ends.callback(_end, process.pid)  # also where the harness itself is stopped
                code = self._life(process, kill, checkpoint, random)
                if code == -signal.SIGKILL:
                    run.kills += 1
                    if run.remains == "killed":
                        _end(process.pid)
                    elif run.remains == "awaited":
                        _left_over(process.pid)
                    if run.kills == 1:
                        point.meddle(checkpoint, run.batch)
                elif code:
                    run.failure = _last_words(place / "log", code)
                    break
            run.left_over = sum(_left_over(group) for group in groups)

    def _life(self, process: subprocess.Popen[bytes], kill: str, checkpoint: Path, random: Random) -> int:
        if kill == OUTSIDE:  # once it has begun to run batches
            while process.poll() is None and not (checkpoint / "offsets" / "0").exists():
                time.sleep(0.02)
        if kill in (OUTSIDE, START_UP):
            try:
                return process.wait(random.uniform(0.2, 6.0))
            except subprocess.TimeoutExpired:
                process.kill()
        try:
            return process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.terminate()
            return process.wait()

    def _command(self, run: Run, place: Path, sink: str) -> list[str]:
        workload = WORKLOADS[run.workload]
        query = place / "query.sql"
        query.write_text(workload.sql)
        url = ("--url", postgres_url()) if self.database == "postgres" else ()
        return [
            *(sys.executable, "-c", "from service.cli import main; main()", "run", str(query)),
            *("--catalog", str(self.directory / "catalog.sql"), "--db", self.database, *url),
            *("--state", str(place / "state"), "--sink", sink, "--trigger", "once", "--master", "local[1]"),
            *(word for setting in QUICK_START for word in ("--spark", setting)),
            *workload.arguments,
        ]

    @contextmanager
    def _sink(self, kind: str, place: Path) -> Iterator[str]:
        if kind == "postgres":
            table = f"out_{place.name.replace('-', '_')}".lower()
            yield f"postgres:{postgres_url()}#{table}"
            with dbapi.connect(postgres_url()) as connection, connection.cursor() as cursor:
                cursor.execute(f'DROP TABLE IF EXISTS "{table}"')
                connection.commit()
        elif kind == "duckdb":
            yield f"duckdb:{place / 'out.duckdb'}#result"
        else:
            yield f"parquet:{place / 'out'}"

    def _found(self, run: Run, sink: str) -> Output:
        where, _, table = sink.partition(":")[2].rpartition("#")
        if run.sink == "parquet":
            rows = [(tick, *row) for tick, some in read_output(Path(table)).items() for row in some]
        elif run.sink == "duckdb":
            with duckdb.connect(where, read_only=True) as file:
                rows = file.execute(f'SELECT * FROM "{table}"').fetchall()
        else:
            with dbapi.connect(where) as connection, connection.cursor() as cursor:
                cursor.execute(f'SELECT * FROM "{table}"')
                rows = cursor.fetchall()
        return _by_tick(rows, WORKLOADS[run.workload])

    def expected(self, name: str) -> Output:
        if name not in self._expected:
            workload, recording = WORKLOADS[name], self._recording
            if workload.batch_sql:
                rows = recording.connection.execute(workload.batch_sql).fetchall()
                self._expected[name] = _by_tick([(None, *row) for row in rows], workload)
            else:
                sql = workload.sql
                self._expected[name] = {tick: recording.expected(sql, tick) for tick in recording.ticks(sql)}
        return self._expected[name]


def _by_tick(rows: Sequence[Row], workload: Workload) -> Output:
    """The rows of a tuple-driven query come out at whichever tick: each is a tick of its own."""
    found: dict[Any, list[Row]] = {}
    for tick, *row in rows:
        found.setdefault(tuple(row) if workload.batch_sql else tick, []).append(tuple(row))
    return found


def compare(expected: Output, found: Output) -> tuple[int, int, int]:
    """How many ticks are lost, doubled, wrong in another way.

    >>> compare({1: [("a",)], 2: [("b",), ("c",)], 3: [("d",)], 4: []}, {2: [("b",), ("c",)] * 2, 3: [("e",)]})
    (1, 1, 1)
    """
    lost = doubled = wrong = 0
    for tick in {*expected, *found}:
        want, have = expected.get(tick, ()), found.get(tick, ())
        if same(list(have), list(want)):
            continue
        times = len(have) // len(want) if want else 0
        if not have:
            lost += 1
        elif times > 1 and same(list(have), [*want] * times):
            doubled += 1
        else:
            wrong += 1
    return lost, doubled, wrong


# -- processes --------------------------------------------------------------------------------------------------------


def _failpoint(kill: str, batch: int) -> str:
    if kill in ("", OUTSIDE, START_UP):
        return ""
    return kill if kill in ("claimed", "starting") else f"{kill}@{batch}"


def _start(command: Sequence[str], failpoint: str, log: Path) -> subprocess.Popen[bytes]:
    """In a group of its own, so that what it starts can be found when it is dead."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | {VARIABLE: failpoint},
            start_new_session=True,
        )


def _left_over(group: int) -> int:
    """How many processes of a group do not end by themselves."""
    deadline = time.monotonic() + PATIENCE / 4
    while (left := _living(group)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return len(left)


def _end(group: int) -> None:
    while left := _living(group):
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.02)


def _living(group: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                found.append(int(stat.parent.name))
    return found


def _last_words(log: Path, code: int) -> str:
    lines = [
        line for line in log.read_text(errors="replace").splitlines() if "nanobind" not in line and line[:2] != " -"
    ]
    return f"exit code {code}: {' / '.join(lines[-3:])}"


def _catalog(recording: Path) -> str:
    """The catalog of a recording, as a person would write it."""
    text = CATALOG
    for name in TABLES:
        path = recording / (name if name in TIMES else f"{name}.parquet")
        files = f"connector = 'files', path = '{path}', format = 'parquet'"
        if name in TIMES:
            pattern, files = rf"(CREATE STREAM {name} [^;]*?AS ts)(\)\s+WITH \()", f"{files}, maxFilesPerTrigger = 1"
            text = re.sub(pattern, rf"\1 - INTERVAL '{DELAY}' SECOND\2{files}, ", text)
        else:
            text = re.sub(rf"(CREATE TABLE {name} \([^;]*\) WITH \()", rf"\1{files}, ", text)
    return text


# -- the command ------------------------------------------------------------------------------------------------------


def summary(runs: Sequence[Run]) -> dict[str, dict[str, int]]:
    """By point."""
    counted = ("wanted", "kills", "lost", "doubled", "wrong", "left_over")
    result: dict[str, dict[str, int]] = {}
    for run in runs:
        of_point = result.setdefault(run.point, dict.fromkeys(("runs", *counted, "failed"), 0))
        of_point["runs"] += 1
        of_point["failed"] += bool(run.failure)
        for name in counted:
            of_point[name] += getattr(run, name)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.crash", description=__doc__.split("\n")[0] if __doc__ else ""
    )
    parser.add_argument("--runs", type=int, default=1, help="of each point")
    parser.add_argument("--first", type=int, default=0, help="number of the first run; a number is a workload and sink")
    parser.add_argument("--points", default="all", help=f"all, or some with commas between: {', '.join(POINTS)}")
    parser.add_argument("--db", choices=("duckdb", "postgres"), default="duckdb")
    parser.add_argument("--output", type=Path, help="a file for the figures, as JSON")
    given = parser.parse_args()
    chosen = list(POINTS) if given.points == "all" else [name.strip() for name in given.points.split(",")]
    if unknown := [name for name in chosen if name not in POINTS]:
        parser.error(f"no point {', '.join(unknown)}; there are {', '.join(POINTS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # in an orderly way
    runs: list[Run] = []
    with TemporaryDirectory(prefix="penstock-crash-") as directory:
        harness = Harness(Path(directory), given.db)
        for number in range(given.first, given.first + given.runs):
            for point in chosen:
                run = harness.run(point, number)
                runs.append(run)
                print(_line(run, len(runs), given.runs * len(chosen)), flush=True)
                if given.output:  # after every run: hours of them are not lost with the last
                    figures = {"database": given.db, "points": summary(runs), "runs": [asdict(r) for r in runs]}
                    given.output.write_text(json.dumps(figures, indent=2) + "\n")
    right, kills = sum(run.right for run in runs), sum(run.kills for run in runs)
    ticks = ", ".join(f"{sum(getattr(run, what) for run in runs)} {what}" for what in ("lost", "doubled", "wrong"))
    print(f"{right} of {len(runs)} runs right, {kills} kills; ticks: {ticks}")
    sys.exit(right < len(runs))


def _line(run: Run, number: int, of: int) -> str:
    verdict = "right" if run.right else "NOT RIGHT"
    kind = f"{run.workload}, sink {run.sink}, batch {run.batch}, JVM {run.remains}"
    ticks = f"lost {run.lost}, doubled {run.doubled}, wrong {run.wrong}"
    figures = f"{run.kills} of {run.wanted} kills, {ticks}, left over {run.left_over}, {run.seconds:.0f} s"
    return f"[{number}/{of}] {run.point} ({kind}): {verdict}: {figures} {run.failure}".rstrip()


if __name__ == "__main__":
    main()
