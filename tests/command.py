"""`penstock run` as a person starts it: a process of its own, and all it says in a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from adbc_driver_postgresql import dbapi

from tests.crash import PATIENCE, QUICK_START
from tests.oracle import Row


@dataclass(frozen=True)
class Command:
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def ended(self) -> int:
        """Waits for the end; the exit code."""
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end: {self.said}") from None

    def until(self, there: Callable[[], bool]) -> None:
        """Waits for something to happen while it runs."""
        deadline = time.monotonic() + PATIENCE
        while not there():
            assert self.process.poll() is None, f"it ended: {self.said}"
            assert time.monotonic() < deadline, f"it never happened: {self.said}"
            time.sleep(0.02)

    def refused(self) -> str:
        """What it said when it ended as it does where a person has to act: in words, with exit code 2."""
        code = self.ended()
        assert code == 2, f"exit code {code}: {self.said}"
        assert "error: " in self.said, self.said
        assert "Traceback" not in self.said, self.said
        assert "stacktrace" not in self.said, self.said
        assert "\tat " not in self.said, f"lines of a Java stack: {self.said}"
        return self.said


@contextmanager
def penstock_run(
    place: Path,
    sql: str,
    catalog: Path,
    *arguments: str,
    master: str = "local[1]",
    environment: Mapping[str, str] = MappingProxyType({}),
    largest_file: int | None = None,
) -> Iterator[Command]:
    """Reads all there is and ends, with its state in `place`; nothing of it is left afterwards."""
    place.mkdir(parents=True, exist_ok=True)
    query, log = place / "query.sql", place / "log"
    query.write_text(sql)
    words = [
        *("run", str(query), "--catalog", str(catalog), "--state", str(place / "state"), "--trigger", "once"),
        *("--master", master, *(word for setting in QUICK_START for word in ("--spark", setting)), *arguments),
    ]
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({largest_file},) * 2); "
    program = f"{limit if largest_file else ''}from service.cli import main; main()"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", program, *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | environment,
            start_new_session=True,
        )
    try:
        yield Command(process, log)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # also its JVM, which is in its group
        process.wait()


def rows_of(url: str, table: str) -> dict[object, list[Row]]:
    """What came out into a table of PostgreSQL, by tick."""
    found: dict[object, list[Row]] = {}
    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        for tick, *row in cursor.fetchall():
            found.setdefault(tick, []).append(tuple(row))
    return found
