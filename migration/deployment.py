"""A plan deployed: one Spark query over all its streams, its stores, its ledger, its sink, in one state directory.

state/deployment.json   which plan this is
state/checkpoint/       Spark's own
state/store.duckdb      window stores and ledger (for PostgreSQL: a schema of the deployment's own)
state/spark/            buffers and partial aggregates of SPE operators
state/handover/         large relations on their way from the database into Spark, while a batch runs
state/dead-letter/      records that could not be read, with the reason
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, ValidationError
from pyspark.sql import DataFrame, SparkSession

from connectors.database import Database, DatabaseUnavailable
from connectors.dead_letter import DeadLetters
from connectors.duckdb import DuckDb
from connectors.postgres import Postgres
from connectors.postgres_parallel import ExecutorStaging
from connectors.sinks import Sink, open_sink
from connectors.spark.handover import Handover
from connectors.spark.sliding import Form
from connectors.spark.state import SpeState
from migration.batch import Batches
from migration.evaluate import Evaluator
from migration.failpoints import failpoint
from migration.feed import Feed
from migration.layout import Layout, forms_of, layout
from migration.metrics import BatchReport, Clock
from migration.mig import migs
from migration.progress import Progress
from migration.streaming import Settings, StreamingRun
from migration.views import window_view
from migration.watermark import Watermarks
from optimizer.algebra import Emission
from optimizer.catalog import Catalog
from optimizer.engines import database
from optimizer.errors import PenstockError
from optimizer.physical import PhysicalPlan

FIRST_WAIT, LONGEST_WAIT = 0.2, 5.0  # seconds between attempts to reach a database that went away


class Record(BaseModel):
    """What `deployment.json` says."""

    model_config = ConfigDict(frozen=True)

    version: int = 2
    id: str  # also the name of its schema in PostgreSQL
    plan: str
    database: str
    forms: dict[str, Form]  # of sliding aggregates in Spark, by operator
    sql: str


class Deployment(StreamingRun):
    def __init__(self, spark: SparkSession, plan: PhysicalPlan, sql: str, catalog: Catalog, settings: Settings) -> None:
        super().__init__(settings)
        self.spark, self.plan, self.catalog = spark, plan, catalog
        self._check_runnable()
        self._record = self._claim(sql)
        self.kept = _kept(plan, catalog, self._record.forms)
        self.database: Database = self._open_database()
        try:
            self._prepare()
        except BaseException:
            self.database.close()
            raise

    def _check_runnable(self) -> None:
        counted = any(leaf.node.spec.unit == "rows" for leaf in self.plan.leaves if hasattr(leaf.node, "spec"))
        if counted and self.plan.tree.emission is not Emission.RSTREAM and self.plan.drive == "slide":
            raise PenstockError(
                f"{self.plan.tree.emission.name} over a row window cannot be run; write RSTREAM, or a RANGE window"
            )

    # -- the state directory -----------------------------------------------------------------------------------------

    def _claim(self, sql: str) -> Record:
        state, wanted = self.settings.state, _wanted(self.plan, sql, self.settings)
        path = state / "deployment.json"
        try:
            if self.settings.in_memory and path.exists():
                _remove(state)  # nothing of an in-memory window is left: the query begins anew
            if found := _known(state, wanted, self.settings.form):
                return found
            state.mkdir(parents=True, exist_ok=True)
            whole = state / "deployment.json.new"
            whole.write_text(wanted.model_dump_json(indent=2))
            whole.replace(path)  # there or not, never half of it
            failpoint("claimed")
        except OSError as error:
            raise PenstockError(f"the state directory {state} cannot be used: {error.strerror}") from None
        return wanted

    def _open_database(self) -> Database:
        if self.plan.database == "duckdb":
            return DuckDb(None if self.settings.in_memory else self.settings.state / "store.duckdb")
        return _postgres(self.settings, self._record.id)

    def _prepare(self) -> None:
        settings, state = self.settings, self.settings.state
        self.clock = Clock()
        self.evaluator = Evaluator(
            self.spark,
            self.plan,
            self.catalog,
            self.kept,
            self.database,
            SpeState(self.spark, str(state / "spark")),
            Handover(self.spark, state / "handover"),
            self.clock,
        )
        self.database.prepare(tuple(k.store(self.catalog) for k in self.kept.in_database))
        for k in self.kept.in_database:
            for window in k.windows:
                filters = self.kept.filters.get(window.alias, ())
                self.database.view(*window_view(window, k, filters, self.catalog, self.database.dialect))
        self.evaluator.attach_tables()
        failpoint("starting")
        self.sink: Sink = open_sink(settings.sink, self._record.id, self.spark)
        self.sink.prepare(self.evaluator.schema)
        self.feed = Feed.open(self.spark, self.plan, self.catalog, self.kept, settings.rates)
        self.batches = Batches(
            self.plan,
            self.catalog,
            self.kept,
            self.feed,
            self.evaluator,
            self.database,
            self.sink,
            DeadLetters(state / "dead-letter"),
            Watermarks.of(self.feed.streams, self.catalog),
            self.clock,
            self._progress(),
            self._staging(),
        )

    def _staging(self) -> ExecutorStaging | None:
        """On a cluster the executors write to PostgreSQL; with one machine the way through the driver is shorter."""
        spread = not str(self.spark.sparkContext.master).startswith("local")
        return ExecutorStaging(self.database) if spread and isinstance(self.database, Postgres) else None

    def _progress(self) -> Progress:
        entry = self.database.last_entry()
        return Progress.model_validate_json(entry.record) if entry else Progress()

    @property
    def warnings(self) -> list[str]:
        """What keeps this deployment from being exactly once."""
        found = [f"stream {name}: {source.note}" for name, source in self.feed.sources.items() if not source.replayable]
        if not self.database.durable:
            found.append("the windows are in memory: a restart begins anew")
        if not self.sink.exactly_once:
            found.append(self.sink.note)
        return found

    # -- running -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.begin(self.feed.frame)

    def handle(self, frame: DataFrame, batch: int) -> BatchReport:
        """Runs a batch; where the database went away, waits for it and runs the batch again."""
        wait = FIRST_WAIT
        while True:
            try:
                return self.batches.run(frame, batch)
            except DatabaseUnavailable as error:
                self.settings.on_wait(f"{error}; trying again in {wait:.1f} s")
                if self.stop_asked.wait(wait):
                    raise  # the batch is run when the deployment starts again
                wait = min(2 * wait, LONGEST_WAIT)
                self._reopen()

    def _reopen(self) -> None:
        try:
            self.database.reconnect()
            self.batches.progress = self._progress()
        except DatabaseUnavailable as error:
            self.settings.on_wait(str(error))

    def close(self) -> None:
        self.stop()
        self.sink.close()
        self.database.close()

    def drop(self) -> None:
        """After `close`: nothing of the deployment is left."""
        drop_state(self.settings.state, self.settings.url)


def kept_by(plan: PhysicalPlan, catalog: Catalog, form: Form | None) -> Layout:
    """What a deployment of the plan keeps, and where."""
    return _kept(plan, catalog, forms_of(plan, form))


def _kept(plan: PhysicalPlan, catalog: Catalog, forms: Mapping[str, Form]) -> Layout:
    fragments = migs(plan, catalog, database(plan.database).dialect)
    return layout(plan, forms, frozenset().union(*(mig.reads for mig in fragments)))


def look_ahead(plan: PhysicalPlan, sql: str, settings: Settings) -> None:
    """Raises what would keep the plan from being deployed, as far as it shows before Spark has taken its time to start:
    the state of another plan, a database or a sink that is not there or does not let us in."""
    if not settings.in_memory:
        _known(settings.state, _wanted(plan, sql, settings), settings.form)
    if plan.database == "postgres":
        _postgres(settings, "public").close()
    if not settings.sink.startswith("kafka:"):  # that one is opened by Spark
        open_sink(settings.sink, "", None).close()


def _wanted(plan: PhysicalPlan, sql: str, settings: Settings) -> Record:
    # Never the id of one that was deleted: its sink would take the first batches for those it has.
    name = f"penstock_{uuid4().hex[:12]}"
    kind = "memory" if settings.in_memory else plan.database
    return Record(id=name, plan=plan.id, database=kind, forms=forms_of(plan, settings.form), sql=sql)


def _known(state: Path, wanted: Record, form: Form | None) -> Record | None:
    """The record in a state directory, which is one of the same plan; None where there is none.

    Forms that nobody asked for stay what they were: at another rate the plan may prefer others.
    """
    path = state / "deployment.json"
    if not path.exists():
        return None
    found = _read(path)
    for what in ("plan", "database", *(("forms",) if form else ())):
        if getattr(found, what) != getattr(wanted, what):
            raise PenstockError(
                f"{state} holds the state of another deployment ({what} {_words(getattr(found, what))}, now "
                f"{_words(getattr(wanted, what))}); pin its plan with --plan, choose another --state, or start over "
                "with --fresh"
            )
    return found


def _words(value: str | dict[str, Form]) -> str:
    return value if isinstance(value, str) else ", ".join(f"{name} by {form.value}" for name, form in value.items())


def _postgres(settings: Settings, schema: str) -> Postgres:
    if not settings.url:
        raise PenstockError("PostgreSQL needs an address: --url postgresql://user@host:5432/database")
    return Postgres(settings.url, schema)


def drop_state(state: Path, url: str | None) -> None:
    """Removes a deployment that is not running: its tables in the database and its state directory."""
    path = state / "deployment.json"
    if not path.exists():
        if state.exists() and any(state.iterdir()):
            raise PenstockError(f"{state} is not a deployment's state directory; nothing was removed")
        return
    record = _read(path)
    if record.database == "postgres":
        if not url:
            raise PenstockError(f"{state} has its windows in PostgreSQL: add --url, so that its schema can be dropped")
        Postgres(url, record.id).drop()
    _remove(state)


def _remove(state: Path) -> None:
    """The checkpoint first and the record last: what a crash leaves can be removed again, and cannot be run."""
    shutil.rmtree(state / "checkpoint", ignore_errors=True)
    for part in [p for p in state.iterdir() if p.is_dir()]:
        shutil.rmtree(part)
    for file in sorted(state.iterdir(), key=lambda p: p.name == "deployment.json"):
        file.unlink()
    state.rmdir()


def _read(path: Path) -> Record:
    try:
        return Record.model_validate_json(path.read_text())
    except (OSError, ValidationError):
        raise PenstockError(f"{path} is not a deployment's record; choose another --state") from None
