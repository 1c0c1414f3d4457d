"""A Spark query whose batches are ours to handle: it starts, it is waited for, it ends between two batches."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from connectors.spark.failures import cause_of
from connectors.spark.sliding import Form
from migration.metrics import BatchReport
from optimizer.errors import PenstockError


class RunFailed(PenstockError):
    """The running query stopped; the state is as the last batch left it."""


@dataclass(frozen=True)
class Settings:
    state: Path
    sink: str = "console"
    form: Form | None = None  # of sliding aggregates in Spark; as the plan says, where not given
    url: str | None = None  # of PostgreSQL
    in_memory: bool = False
    trigger: float | None = 0.5  # seconds between the starts of batches; None: all there is, then end
    rates: Mapping[str, float] = field(default_factory=dict)
    on_batch: Callable[[BatchReport], None] = lambda report: None
    on_wait: Callable[[str], None] = lambda message: None


class StreamingRun(ABC):
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.query: StreamingQuery | None = None
        self._busy = threading.Lock()
        self.stop_asked = threading.Event()  # whoever waits in a batch for something to come back, waits no longer
        self._stopping = False
        self._failure: Exception | None = None

    @abstractmethod
    def handle(self, frame: DataFrame, batch: int) -> BatchReport:
        """What happens to a batch; Spark commits it when this returns."""

    def begin(self, frame: DataFrame) -> None:
        checkpoint = str(self.settings.state / "checkpoint")
        writer = frame.writeStream.foreachBatch(self._batch).option("checkpointLocation", checkpoint)
        if self.settings.trigger is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self.settings.trigger * 1000:.0f} milliseconds")
        self.query = writer.start()

    def _batch(self, frame: DataFrame, batch: int) -> None:
        with self._busy:
            if self._stopping:
                raise RunFailed("stopping")  # the batch is run when the deployment starts again
            try:
                self.settings.on_batch(self.handle(frame, batch))
            except (PySparkException, Py4JError) as error:  # the second where PySpark has no class of its own
                self._failure = RunFailed(cause_of(error))
                raise self._failure from None
            except Exception as error:  # Spark would keep its text only
                self._failure = error
                raise

    def wait(self, seconds: float | None = None) -> bool:
        """Until the query ends, or for some seconds; whether it has ended. Raises what made it fail."""
        assert self.query is not None
        try:
            ended = self.query.awaitTermination(seconds)  # type: ignore[arg-type]  # fractions work
        except (PySparkException, Py4JError) as error:
            raise self._failure or RunFailed(cause_of(error)) from None
        return ended is not False

    def between_batches(self) -> threading.Lock:
        """For a look at the state: no batch runs while it is held."""
        return self._busy

    def stop(self) -> None:
        """Ends between two batches: one in flight is finished first, the next one is left to the next start."""
        self.stop_asked.set()
        if self.query is not None and self.query.isActive:
            with self._busy:
                self._stopping = True
            self.query.stop()
