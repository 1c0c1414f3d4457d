"""Where `penstock run` is killed, and what it runs: the points and the workloads of `tests.crash`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FILES = 4
LAST = FILES  # number of the last batch: that of the tuple which closes all windows
OUTSIDE, START_UP = "any time", "start-up"  # kills by the harness, not at a failpoint


@dataclass(frozen=True)
class Workload:
    sql: str
    arguments: tuple[str, ...]
    batch_sql: str = ""  # of a tuple-driven query: all that ever comes out, as a query over the whole recording


CQ1 = (Path(__file__).parent.parent / "examples/smartplug/cq1.sql").read_text().replace("MINUTE", "SECOND")
MEANS = """SELECT p.house_id, avg(p.value) AS mean, count(*) AS n
FROM plugs [RANGE 5 SECONDS SLIDE 1 SECOND] AS p GROUP BY p.house_id"""
JOINED = """SELECT a.k, a.n, b.m
FROM (SELECT k, count(*) AS n FROM s [RANGE 4 SECONDS SLIDE 1 SECOND] AS p GROUP BY k) AS a
JOIN (SELECT k, max(w) AS m FROM r [RANGE 6 SECONDS SLIDE 2 SECONDS] AS q GROUP BY k) AS b ON a.k = b.k"""
COUNTED = "SELECT g, sum(v) AS total, count(*) AS n FROM s [ROWS 20 SLIDE 4] AS a GROUP BY g"
PAIRS = "SELECT a.v, b.w FROM s [RANGE 3 SECONDS] AS a JOIN r [RANGE 2 SECONDS] AS b ON a.k = b.k"
ALL_PAIRS = """SELECT a.v, b.w FROM s AS a JOIN r AS b ON a.k = b.k
AND b.ts - a.ts < INTERVAL 3 SECONDS AND a.ts - b.ts < INTERVAL 2 SECONDS"""

WORKLOADS = {
    "db": Workload(CQ1, ("--plan", "db")),
    "spe": Workload(MEANS, ("--plan", "spe")),
    "mixed": Workload(JOINED, ("--force", "agg1=spe", "--force", "agg2=db", "--force", "join1=db")),
    "rows": Workload(COUNTED, ("--plan", "db")),
    "expand": Workload(MEANS, ("--plan", "spe", "--spe", "expand")),
    "mixed above": Workload(JOINED, ("--force", "agg1=spe", "--force", "agg2=db", "--force", "join1=spe")),
    "pairs": Workload(PAIRS, ("--plan", "db"), ALL_PAIRS),
}
IN_DATABASE = ("db", "mixed", "rows", "pairs", "mixed above")
IN_SPARK = ("spe", "mixed", "expand", "mixed above")


@dataclass(frozen=True)
class Point:
    kills: tuple[str, ...]  # one per process, before the one that is left alone
    workloads: tuple[str, ...] = tuple(WORKLOADS)
    meddle: Callable[[Path, int], None] = lambda checkpoint, batch: None  # with the checkpoint, after the first kill


def lose_commit(checkpoint: Path, batch: int) -> None:
    """As if the process had died when batch was done and Spark had not noted it: nor was the next one planned."""
    for log, number in (("offsets", batch), ("commits", batch - 1)):
        for name in (f"{number}", f".{number}.crc"):
            (checkpoint / log / name).unlink(missing_ok=True)


POINTS = {
    "batch begins": Point(("batch begins",)),
    "during spark job": Point(("during spark job",)),
    "after spark state": Point(("after spark state",), IN_SPARK),
    "after append": Point(("after append",), IN_DATABASE),
    "during eviction": Point(("during eviction",), IN_DATABASE),
    "before commit": Point(("before commit",)),
    "during commit": Point(("during commit",)),
    "after commit": Point(("after commit",)),
    "during spark eviction": Point(("during spark eviction",), IN_SPARK),
    "before query": Point(("before query",), IN_DATABASE),
    "during query": Point(("during query",), IN_DATABASE),
    "before result": Point(("before result",)),
    "during result": Point(("during result",)),
    "after result": Point(("after result",)),
    "commit lost": Point(("batch begins",), meddle=lose_commit),
    "first start": Point(("claimed", "starting")),
    "second start": Point(("after commit", "starting")),
    "start-up": Point(("before result", START_UP)),
    "replay": Point(("after commit", "before result", "after result")),
    "any time": Point((OUTSIDE,)),
}
