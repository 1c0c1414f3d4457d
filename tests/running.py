"""Runs deployments over recorded streams and says what came out at every tick; the oracle says what should have."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from connectors.spark.sliding import Form
from migration.deployment import Deployment, drop_state
from migration.metrics import BatchReport
from migration.native import NativeDeployment
from migration.streaming import Settings
from optimizer.catalog import Catalog
from optimizer.optimize import Optimized
from optimizer.physical import PhysicalPlan
from optimizer.sql.ddl import parse_catalog
from tests import oracle
from tests.federation import same
from tests.recorded import CATALOG, START, TABLES, TIMES, record

DELAY = 2  # seconds that tuples may be out of order
END = START + timedelta(seconds=32)  # a last tuple of every stream, which closes all windows before it


@dataclass
class Recording:
    """Streams in files, several per stream in the order of their arrival, and the same tuples for the oracle."""

    directory: Path
    connection: duckdb.DuckDBPyConnection
    catalog: Catalog

    @staticmethod
    def make(directory: Path, seed: int = 7, files: int = 3, shuffled: bool = True) -> Recording:
        """Tuples arrive up to the watermark's delay out of order."""
        connection, random = record(seed), Random(seed)
        text = CATALOG
        for stream, time in TIMES.items():
            rows = connection.sql(f"SELECT * FROM {stream}").to_arrow_table()
            stamps = rows.column(time).to_pylist()
            jitter = [random.random() * (DELAY - 0.1) if shuffled else 0.0 for _ in stamps]
            order = sorted(range(len(stamps)), key=lambda i: (stamps[i] + timedelta(seconds=jitter[i]), i))
            rows = rows.take(order)
            connection.execute(f"DELETE FROM {stream}")
            last = _last(rows, time)
            connection.register("arrived", pa.concat_tables([rows, last]))
            connection.execute(f"INSERT INTO {stream} SELECT * FROM arrived")
            connection.unregister("arrived")
            folder = directory / stream
            folder.mkdir(parents=True)
            cut = [len(order) * i // files for i in range(files + 1)]
            parts = [rows.slice(a, b - a) for a, b in itertools.pairwise(cut)] + [last]
            for number, part in enumerate(parts):
                path = folder / f"{number:03}.parquet"
                pq.write_table(part, path)
                os.utime(path, (1_700_000_000 + number,) * 2)  # Spark reads files in the order of their times
            text = re.sub(
                rf"(CREATE STREAM {stream} [^;]*?WATERMARK FOR ts AS ts)\)\s+WITH \(",
                rf"\1 - INTERVAL '{DELAY}' SECOND) WITH (connector = 'files', path = '{folder}', "
                "format = 'parquet', maxFilesPerTrigger = 1, ",
                text,
            )
        for table in set(TABLES) - set(TIMES):
            path = directory / f"{table}.parquet"
            pq.write_table(connection.sql(f"SELECT * FROM {table}").to_arrow_table(), path)
            text = re.sub(
                rf"(CREATE TABLE {table} \([^;]*\)) WITH \(",
                rf"\1 WITH (connector = 'files', path = '{path}', format = 'parquet', ",
                text,
            )
        return Recording(directory, connection, parse_catalog(text))

    def arrive(self, stream: str, *times: datetime, seen: bool = True) -> None:
        """One more file of a stream, a tuple for each time; the oracle knows of them unless they are late."""
        folder = self.directory / stream
        paths = sorted(folder.glob("*.parquet"))
        first = pq.read_table(paths[0]).slice(0, 1)
        rows = [first.to_pylist()[0] | {TIMES[stream]: ts} for ts in times]
        path = folder / f"{len(paths):03}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=first.schema), path)
        os.utime(path, (1_700_000_000 + len(paths),) * 2)
        for row in rows if seen else ():
            self.connection.execute(f"INSERT INTO {stream} VALUES ({', '.join('?' * len(row))})", list(row.values()))

    def expected(self, sql: str, tick: datetime) -> list[oracle.Row]:
        return oracle.run(self.connection, sql, TIMES, tick)

    def ticks(self, sql: str) -> list[datetime]:
        """The instants at which the query is evaluated, from its text alone."""
        slides = {int(s) for s in re.findall(r"RANGE [^\]]*?SLIDE (\d+) SECOND", sql)}
        streams = [s for s in TIMES if re.search(rf"\b{s}\s*\[", sql)]
        first = min(self._times(s)[0] for s in streams)
        until = END - timedelta(seconds=DELAY)
        seconds = int((until - START).total_seconds())
        found = {START + timedelta(seconds=s) for s in range(seconds + 1) for slide in slides if _whole(s, slide)}
        for stream, slide in re.findall(r"(\w+) \[ROWS \d+ SLIDE (\d+)\]", sql):
            moved = self._times(stream)[int(slide) - 1 :: int(slide)]
            found |= {t + timedelta(microseconds=1) for t in moved}
        return sorted(t for t in found if first < t <= until)

    def _times(self, stream: str) -> list[datetime]:
        return [row[0] for row in self.connection.execute(f"SELECT ts FROM {stream} ORDER BY ts").fetchall()]


def _whole(second: int, slide: int) -> bool:
    return int((START + timedelta(seconds=second) - oracle.EPOCH).total_seconds()) % slide == 0


def _last(rows: pa.Table, time: str) -> pa.Table:
    """One tuple at the end, which no tick that fires can see; a load: Spark's own watermark follows selections."""
    load = {"property": 1} if "property" in rows.column_names else {}
    last = rows.slice(0, 1).to_pylist()[0] | {time: END} | load
    return pa.Table.from_pylist([last], schema=rows.schema)


@dataclass
class Outcome:
    rows: dict[datetime, list[oracle.Row]]
    reports: list[BatchReport]


def deploy(
    spark: SparkSession,
    recording: Recording,
    optimized: Optimized,
    plan: PhysicalPlan,
    directory: Path,
    form: Form = Form.PANE,
    url: str | None = None,
    native: bool = False,
) -> Outcome:
    reports: list[BatchReport] = []
    output = directory / "out"
    settings = Settings(directory / "state", f"parquet:{output}", form, url, trigger=None, on_batch=reports.append)
    kind = NativeDeployment if native else Deployment
    deployment = kind(spark, plan, optimized.sql, recording.catalog, settings)
    try:
        deployment.start()
        deployment.wait()
    finally:
        deployment.close()
        if url:
            drop_state(directory / "state", url)
    return Outcome(read_output(output), reports)


def read_output(directory: Path) -> dict[datetime, list[oracle.Row]]:
    found: dict[datetime, list[oracle.Row]] = {}
    for path in sorted(directory.glob("*.parquet")):
        for row in zip(*(c.to_pylist() for c in pq.read_table(path).columns), strict=True):
            found.setdefault(row[0], []).append(row[1:])
    return found


def differences(recording: Recording, sql: str, found: dict[datetime, list[oracle.Row]], until: datetime = END) -> str:
    """The first tick at which a deployment's rows are not the oracle's; nothing where all agree."""
    ticks: Sequence[datetime] = [tick for tick in recording.ticks(sql) if tick <= until]
    if extra := sorted(set(found) - set(ticks)):
        return f"ticks that the query does not have: {extra[:5]}"
    for tick in ticks:
        expected = recording.expected(sql, tick)
        if not same(found.get(tick, []), expected):
            return f"at {tick}: {sorted(map(str, found.get(tick, [])))[:8]}, expected {sorted(map(str, expected))[:8]}"
    return ""
