"""Windows filled once and copied into the deployment of every trial.

Full windows of five minutes are 300 seconds of stream, which takes longer to make than a trial takes to run. What a
deployment keeps depends only on the rate and on each store's columns, selections and length, so it is made once for
each of those and kept aside: DuckDB's stores as a file, which is copied; PostgreSQL's as a database, which is the
template of the trial's own; Spark's as directories of files that nobody changes, which are linked. A trial never gets
what another one has run on.
"""

from __future__ import annotations

import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from os import fsync, link
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from time import monotonic
from urllib.parse import urlsplit, urlunsplit

from pyspark.sql import SparkSession

from connectors.postgres_session import Session, quoted
from connectors.spark.sliding import Form
from connectors.spark.smartplug import smartplug_rows
from migration.deployment import Deployment, Record, kept_by
from migration.layout import KeptPartials, KeptTuples, Layout, forms_of
from migration.metrics import BatchReport
from migration.prefill import Earlier, copies_of, prefill
from migration.streaming import Settings
from optimizer.algebra import describe, text
from optimizer.errors import PenstockError
from optimizer.physical import PhysicalPlan
from service.bench.live import START, STREAM, TIME, Workload

MOST_BYTES = 32 << 30  # of what is kept aside, and no more than a third of what the disk has left
MOST_COPIES = 3e8  # of tuples: window() copies each into size/slide windows, and beyond this nobody waits for it
SCHEMA = "penstock_filled"


@dataclass(frozen=True)
class _Key:
    """What decides the contents of a store, or of all the stores of a database."""

    kind: str  # duckdb, postgres or spark
    rate: float
    signature: tuple[str, ...]


@dataclass
class Fills:
    """Keeps what was made within a bound, and forgets what was not used for longest."""

    spark: SparkSession
    url: str | None = None  # of PostgreSQL
    most_bytes: int = field(default_factory=lambda: min(MOST_BYTES, shutil.disk_usage(gettempdir()).free // 3))
    made: int = 0  # stores that had to be made, and those that were there
    reused: int = 0
    seconds: float = 0.0  # that making them took
    _place: Path = field(default_factory=lambda: Path(mkdtemp(prefix="penstock-fills-")))
    _known: OrderedDict[_Key, tuple[str, int]] = field(default_factory=OrderedDict)  # where, and bytes
    _numbers: Iterator[int] = field(default_factory=count)

    def close(self) -> None:
        for key in list(self._known):
            self._forget(key)
        shutil.rmtree(self._place, ignore_errors=True)

    @contextmanager
    def deployed(
        self,
        workload: Workload,
        plan: PhysicalPlan,
        form: Form,
        on_batch: Callable[[BatchReport], None],
        trigger: float | None = None,
    ) -> Iterator[Deployment]:
        """The plan in a directory of its own, gone afterwards, with full windows and not yet started."""
        kept = kept_by(plan, workload.catalog, form)
        if worth_filling(workload, kept):
            self._make_missing(workload, plan, form, kept)
        with self._own(workload, plan, form, on_batch, trigger, self._halves(workload, plan, kept)) as deployment:
            yield deployment

    def missing(self, workload: Workload, plan: PhysicalPlan, form: Form) -> int:
        """How many tuples would have to be made for a deployment, counted once for each time they are."""
        kept = kept_by(plan, workload.catalog, form)
        if not worth_filling(workload, kept):
            return 0
        halves = self._halves(workload, plan, kept)
        absent = {name for key, names in halves.items() if key not in self._known for name in names}
        return round(workload.rate * sum(seconds for name, seconds in _lengths(kept).items() if name in absent))

    # -- making ------------------------------------------------------------------------------------------------------

    def _halves(self, workload: Workload, plan: PhysicalPlan, kept: Layout) -> dict[_Key, list[str]]:
        """The stores of the database all together, those of Spark one by one."""
        found: dict[_Key, list[str]] = {}
        if kept.in_database:
            signature = tuple(f"{k.name} {_signature(k)}" for k in kept.in_database)
            found[_Key(plan.database, workload.rate, signature)] = [k.name for k in kept.in_database]
        for tuples in kept.in_spark:
            found.setdefault(_Key("spark", workload.rate, (_signature(tuples),)), []).append(tuples.name)
        for partials in kept.partials:
            found.setdefault(_Key("spark", workload.rate, (_partial_signature(partials),)), []).append(partials.name)
        return found

    def _make_missing(self, workload: Workload, plan: PhysicalPlan, form: Form, kept: Layout) -> None:
        halves = self._halves(workload, plan, kept)
        absent = {key: names for key, names in halves.items() if key not in self._known}
        self.made, self.reused = self.made + len(absent), self.reused + len(halves) - len(absent)
        for key in halves.keys() - absent.keys():
            self._known.move_to_end(key)
        if not absent:
            return
        started = monotonic()
        # Of stores in Spark with the same contents one is made.
        wanted = {name for key, names in absent.items() for name in (names[:1] if key.kind == "spark" else names)}
        by_length: dict[float, set[str]] = {}
        for name, seconds in _lengths(kept).items():
            if name in wanted:
                by_length.setdefault(seconds, set()).add(name)
        longest = max(_lengths(kept).values())
        with self._own(workload, plan, form, lambda report: None, None, {}, keep=True) as deployment:
            for seconds, names in by_length.items():
                prefill(deployment.batches, self._earlier(workload, longest), seconds, names)
        state, url = deployment.settings.state, deployment.settings.url
        for key, stores in absent.items():
            if key.kind == "postgres":
                assert url is not None
                self._keep(key, url, self._settle(url, stores))
            else:
                source = state / "store.duckdb" if key.kind == "duckdb" else state / "spark" / stores[0]
                target = self._place / str(next(self._numbers))
                shutil.move(source, target)
                files = [target] if target.is_file() else [p for p in target.rglob("*") if p.is_file()]
                self._keep(key, str(target), sum(p.stat().st_size for p in files))
        if url is not None and not any(key.kind == "postgres" for key in absent):
            self._drop(url)
        shutil.rmtree(state.parent)
        self.seconds += monotonic() - started

    def _earlier(self, workload: Workload, longest: float) -> Earlier:
        """Tuples are numbered from the beginning of the longest window on: all stores see the same ones."""
        declared = workload.catalog.streams[STREAM].options
        options = {k: v for k, v in declared.items() if k not in ("connector", "limit")}
        options["start"] = str(START - timedelta(seconds=longest))
        return Earlier(STREAM, TIME, workload.rate, longest, lambda a, b: smartplug_rows(self.spark, a, b, options))

    def _settle(self, url: str, stores: list[str]) -> int:
        """Statistics and visibility as autovacuum would have left them; the size in bytes."""
        session = Session(url, SCHEMA)
        try:
            for store in stores:
                session.execute(f"VACUUM (FREEZE, ANALYZE) {quoted(SCHEMA)}.{quoted(store)}")
            return int(session.fetch("SELECT pg_database_size(current_database())").column(0)[0].as_py())
        finally:
            session.close()

    # -- keeping -----------------------------------------------------------------------------------------------------

    def _keep(self, key: _Key, where: str, size: int) -> None:
        self._known[key] = where, size
        while sum(bytes_ for _, bytes_ in self._known.values()) > self.most_bytes and len(self._known) > 1:
            self._forget(next(iter(self._known)))

    def _forget(self, key: _Key) -> None:
        where, _ = self._known.pop(key)
        if key.kind == "postgres":
            self._drop(where)
        elif key.kind == "duckdb":
            Path(where).unlink()
        else:
            shutil.rmtree(where)

    # -- one deployment ----------------------------------------------------------------------------------------------

    @contextmanager
    def _own(
        self,
        workload: Workload,
        plan: PhysicalPlan,
        form: Form,
        on_batch: Callable[[BatchReport], None],
        trigger: float | None,
        halves: dict[_Key, list[str]],
        keep: bool = False,
    ) -> Iterator[Deployment]:
        """A deployment that begins with copies of what is kept aside for it; `keep` leaves its state behind."""
        place = Path(mkdtemp(prefix="penstock-trial-"))
        state, url = place / "state", None
        state.mkdir()
        there = {key: self._known[key][0] for key in halves if key in self._known}
        if plan.database == "postgres":
            url = self._create(next((where for key, where in there.items() if key.kind == "postgres"), None))
        try:
            for key, where in there.items():
                if key.kind == "duckdb":
                    _copy(Path(where), state / "store.duckdb")
                elif key.kind == "spark":
                    for name in halves[key]:
                        shutil.copytree(where, state / "spark" / name, copy_function=link)
            forms = forms_of(plan, form)
            record = Record(id=SCHEMA, plan=plan.id, database=plan.database, forms=forms, sql=workload.sql)
            (state / "deployment.json").write_text(record.model_dump_json())
            rates = {STREAM: workload.rate}
            settings = Settings(state, f"parquet:{place}/out", form, url, False, trigger, rates, on_batch)
            deployment = Deployment(self.spark, plan, workload.sql, workload.catalog, settings)
            try:
                yield deployment
            finally:
                deployment.close()
        except BaseException:
            keep = False
            raise
        finally:
            if not keep:
                shutil.rmtree(place, ignore_errors=True)
                if url is not None:
                    self._drop(url)

    def _create(self, template: str | None) -> str:
        """A database of its own: as files are copied, a template of a gigabyte takes a second or two."""
        name = f"{SCHEMA}_{self._place.name.removeprefix('penstock-fills-')}_{next(self._numbers)}".lower()
        source = quoted(_database(template)) if template else "template1"
        self._maintain(f"CREATE DATABASE {quoted(name)} TEMPLATE {source} STRATEGY FILE_COPY")
        assert self.url is not None
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))

    def _drop(self, url: str) -> None:
        self._maintain(f"DROP DATABASE IF EXISTS {quoted(_database(url))} WITH (FORCE)")

    def _maintain(self, statement: str) -> None:
        if self.url is None:
            raise PenstockError("a bench on PostgreSQL needs an address: --url postgresql://user@host:5432/database")
        session = Session(self.url, "public")
        try:
            session.execute(statement, doing="the bench makes a database for each trial, and cannot")
        finally:
            session.close()


def _copy(source: Path, target: Path) -> None:
    """Down to the disk: gigabytes that are still to be written would make the trial's own commits wait."""
    shutil.copyfile(source, target)
    with target.open("rb") as file:
        fsync(file.fileno())


def worth_filling(workload: Workload, kept: Layout) -> bool:
    """Whether windows can be filled in reasonable time; where not, they are as empty as in a new deployment."""
    expanding = [p for p in kept.partials if p.form is Form.EXPAND]
    return all(workload.rate * _seconds(p) * copies_of(p) <= MOST_COPIES for p in expanding)


def _seconds(kept: KeptPartials) -> float:
    return kept.window.spec.size / 1e6


def _lengths(kept: Layout) -> dict[str, float]:
    """Seconds of stream that each store holds, by its name."""
    tuples = {k.name: max(w.spec.size for w in k.windows) / 1e6 for k in (*kept.in_database, *kept.in_spark)}
    return tuples | {p.name: _seconds(p) for p in kept.partials}


def _signature(kept: KeptTuples) -> str:
    longest = max(w.spec.size for w in kept.windows)
    return f"{kept.columns} {sorted(text(p) for p in kept.predicates)} {longest}"


def _partial_signature(kept: KeptPartials) -> str:
    return f"{kept.form} {describe(kept.aggregate)} {describe(kept.window)} {_signature_of_source(kept)}"


def _signature_of_source(kept: KeptPartials) -> str:
    return f"{kept.source.columns} {sorted(text(p) for p in kept.source.predicates)}"


def _database(url: str) -> str:
    return urlsplit(url).path.lstrip("/")
