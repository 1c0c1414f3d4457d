"""A deployment over minutes: how fresh its results are, what it does over its capacity, and whether it stays as it is.

CQ1 on the smart-plug stream in real time. *Fresh*: from the arrival of the tuple that closes a tick until its result is
out. *Overload*: more than it can take for a while, then nothing more: it falls behind, keeps all, catches up. *Flat*:
memory and window store over a long run.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from statistics import median, quantiles
from time import monotonic

from pyspark.sql import SparkSession
from rich.table import Table

from connectors.spark.session import spark_session
from connectors.tick import EPOCH
from migration.deployment import Deployment
from migration.metrics import BatchReport
from service.bench.live import START, Workload, deployed, wall_start

WINDOW = 300.0


@dataclass(frozen=True)
class Fresh:
    rate: float
    ticks: int
    median: float  # seconds
    p99: float
    worst: float


@dataclass(frozen=True)
class Overload:
    offered: float
    offered_seconds: float
    tuples: int  # that went through, of offered * offered_seconds
    ticks: int
    caught_up_after: float  # seconds from the start
    sustained: float  # tuples/s over that time
    largest_delay: float
    memory_before: int  # bytes, of driver and JVM
    memory_largest: int


@dataclass(frozen=True)
class Sample:
    seconds: float
    memory: int
    store_rows: int
    store_bytes: int
    behind: float | None


@dataclass(frozen=True)
class Flat:
    rate: float
    minutes: float
    samples: tuple[Sample, ...]

    def growth(self, of: Callable[[Sample], int], settled: float = 180.0) -> float:
        """The median of the last quarter over that of the minute after the first three."""
        early = [of(s) for s in self.samples if settled <= s.seconds <= settled + 60]
        late = [of(s) for s in self.samples if s.seconds >= self.samples[-1].seconds * 0.75]
        return median(late) / median(early) - 1 if early and late else float("nan")


def fresh(rate: float, seconds: float) -> Fresh:
    with _session() as spark:
        workload, reports = Workload.example("cq1", rate), list[BatchReport]()
        plan = workload.optimized().plan
        with deployed(spark, workload, plan, reports, WINDOW, trigger=0.25) as deployment:
            deployment.start()
            _until(deployment, 15.0)
            warm = len(reports)
            _until(deployment, seconds)
            deployment.stop()
            due = wall_start(deployment)
            delays = []
            for report in reports[warm:]:
                for back in range(report.ticks):
                    assert report.last_tick is not None
                    tick = EPOCH + timedelta(microseconds=report.last_tick) - timedelta(seconds=back)
                    delays.append(report.finished - due - (tick - START).total_seconds())
        return Fresh(rate, len(delays), median(delays), quantiles(delays, n=100)[98], max(delays))


def overload(offered: float, seconds: float, say: Callable[[str], None]) -> Overload:
    """`offered` tuples/s for some seconds, then no more."""
    with _session() as spark:
        workload, reports = Workload.example("cq1", offered, limit=seconds), list[BatchReport]()
        plan = workload.optimized().plan
        with deployed(spark, workload, plan, reports, trigger=0.25) as deployment:
            before = largest = memory()
            deployment.start()
            delay, said = 0.0, 0.0
            total = round(offered * seconds)
            started = monotonic()
            while (not reports or reports[-1].tuples < total) and monotonic() - started < 20 * seconds:
                deployment.wait(0.2)
                largest = max(largest, memory())
                if reports and deployment.query is not None and deployment.query.lastProgress is not None:
                    wanted = min(total, (reports[-1].finished - wall_start(deployment)) * offered)
                    delay = max(delay, (wanted - reports[-1].tuples) / offered)
                    if monotonic() - said > 5:
                        said = monotonic()
                        say(f"{reports[-1].tuples:,} of {wanted:,.0f} tuples due, {delay:.1f} s behind at most")
            taken = reports[-1].finished - wall_start(deployment)
            ticks = sum(r.ticks for r in reports)
            deployment.stop()
    done = reports[-1].tuples
    return Overload(offered, seconds, done, ticks, taken, done / taken, delay, before, largest)


def flat(rate: float, minutes: float, window: str, say: Callable[[str], None]) -> Flat:
    with _session({"spark.driver.memory": "1g"}) as spark:
        workload = Workload.example("cq1", rate)
        workload = replace(workload, sql=re.sub(r"RANGE 5 MINUTES", f"RANGE {window}", workload.sql))
        reports: list[BatchReport] = []
        plan = workload.optimized().plan
        samples: list[Sample] = []
        with deployed(spark, workload, plan, reports, trigger=0.5) as deployment:
            assert isinstance(deployment, Deployment)
            deployment.start()
            started = monotonic()
            while monotonic() - started < minutes * 60:
                _until(deployment, 10.0)
                samples.append(_sample(deployment, monotonic() - started, reports))
                if len(samples) % 6 == 0:
                    say(f"{samples[-1].seconds:.0f} s: {samples[-1].memory / 1e6:,.0f} MB")
                del reports[:-100]
            deployment.stop()
    return Flat(rate, minutes, tuple(samples))


def _sample(deployment: Deployment, seconds: float, reports: list[BatchReport]) -> Sample:
    with deployment.between_batches():
        sizes = [deployment.database.size(k.store(deployment.catalog)) for k in deployment.kept.in_database]
    rows, size = sum(s.rows for s in sizes), max(s.bytes for s in sizes)
    return Sample(seconds, memory(), rows, size, reports[-1].behind if reports else None)


def _until(deployment: object, seconds: float) -> None:
    deadline = monotonic() + seconds
    while monotonic() < deadline:
        deployment.wait(0.2)  # type: ignore[attr-defined]


def memory() -> int:
    """Resident bytes of this process and all below it: the driver, its JVM and its Python workers."""
    parents: dict[int, int] = {}
    resident: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                pages = int((entry / "statm").read_text().split()[1])
            except (OSError, IndexError):
                continue  # ended meanwhile
            parents[int(entry.name)] = int(fields[1])
            resident[int(entry.name)] = pages * os.sysconf("SC_PAGE_SIZE")

    def ours(pid: int) -> bool:
        while pid > 1:
            if pid == os.getpid():
                return True
            pid = parents.get(pid, 0)
        return False

    return sum(size for pid, size in resident.items() if ours(pid))


class _session:
    """A Spark session for the length of a bench."""

    def __init__(self, options: dict[str, str] | None = None) -> None:
        self._options = {"spark.sql.streaming.numRecentProgressUpdates": "100"} | (options or {})

    def __enter__(self) -> SparkSession:
        self._spark = spark_session("local[*]", self._options)
        return self._spark

    def __exit__(self, *_: object) -> None:
        self._spark.stop()


def render_fresh(report: Fresh) -> Table:
    return _table("fresh", report)


def render_overload(report: Overload) -> Table:
    return _table("over capacity", report)


def render_flat(report: Flat) -> Table:
    table = Table(title=f"{report.minutes:g} minutes at {report.rate:,.0f} tuples/s")
    for name in ("seconds", "memory MB", "store rows", "store MB", "behind s"):
        table.add_column(name, justify="right")
    for s in report.samples[:: max(1, len(report.samples) // 15)]:
        behind = "-" if s.behind is None else f"{s.behind:.1f}"
        size = f"{s.store_bytes / 1e6:,.0f}"
        table.add_row(f"{s.seconds:.0f}", f"{s.memory / 1e6:,.0f}", f"{s.store_rows:,}", size, behind)
    growth = (report.growth(lambda s: s.memory), report.growth(lambda s: s.store_bytes))
    table.caption = f"after three minutes: memory {growth[0]:+.1%}, store {growth[1]:+.1%}"
    return table


def _table(title: str, report: Fresh | Overload) -> Table:
    table = Table(title=title)
    table.add_column("what")
    table.add_column("figure", justify="right")
    for name, value in asdict(report).items():
        table.add_row(name.replace("_", " "), f"{value:,.2f}" if isinstance(value, float) else f"{value:,}")
    return table


def to_json(report: Fresh | Overload | Flat) -> str:
    found = asdict(report)
    if isinstance(report, Flat):
        found |= {
            "memory_growth": report.growth(lambda s: s.memory),
            "store_growth": report.growth(lambda s: s.store_bytes),
        }
    return json.dumps(found, indent=2)
