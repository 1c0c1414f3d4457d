"""The built-in stream `connector = 'smartplug'`: the measurements of 2,125 smart plugs in 40 houses, at any rate.

Tuple number `id` is a function of (seed, rate, start, id) alone, so that a batch read again is the same batch, and the
stream can be computed without being streamed. The Python data source hands out ranges of ids and nothing else; the
tuples are made of them by Spark's own expressions, which run compiled on the executors. Values come from hashes,
tables and plain arithmetic: every machine computes the same doubles.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from itertools import accumulate, pairwise
from math import isfinite
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from optimizer.errors import PenstockError

# Executors need not have Penstock installed: the data source travels as code.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

SCHEMA = {
    "id": "bigint",
    "ts": "timestamp_ntz",
    "value": "double",
    "property": "int",  # 0 work, kWh; 1 load, W
    "plug_id": "int",  # counted within the household
    "household_id": "int",  # counted within the house
    "house_id": "int",
}
HOUSES, HOUSEHOLDS, PLUGS = 40, 425, 2125
_CHUNK = 10_000  # ids per row of the data source, a bound on the array that is unfolded at once
_HOUR_US = 3_600_000_000
# The share of its level that a plug draws at every full hour of the day, and the mean of it.
_CURVE = (30, 24, 20, 18, 18, 22, 38, 58, 62, 52, 46, 48, 56, 52, 46, 46, 54, 70, 88, 100, 98, 86, 64, 44)
_MEAN = sum(_CURVE) / len(_CURVE) / 100


@dataclass(frozen=True, slots=True)
class Settings:
    """What a catalog says of a smart-plug stream, checked."""

    rate: float = 2000.0  # tuples per second
    seed: int = 0
    start_us: int | None = 1_704_067_200_000_000  # event time of tuple 0, 2024-01-01; None: when it is deployed
    real: bool = True  # tuple i appears i/rate seconds after the deployment; or else as fast as it is read
    max_per_batch: int = 8000
    limit: int | None = None  # tuples in all
    disorder_us: int = 0  # how late the late ones are at most
    late_share: float = 0.01


_NAMES = ("rate", "seed", "start", "pace", "max_per_batch", "limit", "disorder", "late_share")


def settings(options: Mapping[str, str | float | bool]) -> Settings:
    """
    >>> settings({"rate": 100.0, "pace": "full"}).max_per_batch
    400
    """
    for name in options:
        if name not in _NAMES:
            near = get_close_matches(name, _NAMES, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise PenstockError(f"smartplug has no option {name}{hint} (it has {', '.join(_NAMES)})")
    rate = _number(options, "rate", 2000.0, low=1e-6)
    pace = options.get("pace", "real")
    if pace not in ("real", "full"):
        raise PenstockError(f"smartplug: pace must be 'real' or 'full', found {pace!r}")
    return Settings(
        rate,
        int(_number(options, "seed", 0.0, low=-(2.0**31))),
        _start(options.get("start", "2024-01-01 00:00:00")),
        pace == "real",
        int(_number(options, "max_per_batch", max(1.0, 4 * rate), low=1)),
        int(_number(options, "limit", 0.0, low=0)) if "limit" in options else None,
        int(_number(options, "disorder", 0.0, low=0, high=1e9) * 1e6),
        _number(options, "late_share", 0.01, low=0, high=1),
    )


def _number(
    options: Mapping[str, str | float | bool], name: str, default: float, low: float, high: float = 1e12
) -> float:
    value = options.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or not low <= value <= high:
        raise PenstockError(f"smartplug: {name} must be a number from {low:g} to {high:g}, found {value!r}")
    return float(value)


def _start(words: str | float | bool) -> int | None:
    if words == "now":
        return None
    try:
        start = datetime.fromisoformat(str(words))
    except ValueError as error:
        message = f"smartplug: start must be a time such as '2024-01-01 00:00:00', or 'now', found {words!r}"
        raise PenstockError(message) from error
    start = start.replace(tzinfo=UTC) if start.tzinfo is None else start
    return (start - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def smartplug_stream(spark: SparkSession, given: Settings) -> DataFrame:
    spark.dataSource.register(SmartPlugs)
    reader = spark.readStream.format(SmartPlugs.name()).options(
        rate=repr(given.rate),
        start_us="" if given.start_us is None else str(given.start_us),
        real=given.real,
        max_per_batch=str(given.max_per_batch),
        limit="" if given.limit is None else str(given.limit),
        partitions=str(spark.sparkContext.defaultParallelism),
    )
    ids = reader.load().select(F.explode(F.expr("sequence(first, last)")).alias("id"), "start_us")
    return _tuples(ids, given)


def smartplug_rows(
    spark: SparkSession, start_index: int, end_index: int, options: Mapping[str, str | float | bool]
) -> DataFrame:
    """The tuples `start_index` to `end_index - 1` of the stream with these options, without streaming them."""
    given = settings(options)
    if given.start_us is None:
        raise PenstockError("a smartplug stream with start = 'now' has no tuples before it runs; give it a fixed start")
    end = end_index if given.limit is None else min(end_index, given.limit)
    ids = spark.range(start_index, max(start_index, end)).select("id", F.lit(given.start_us).alias("start_us"))
    return _tuples(ids, given)


def _tuples(ids: DataFrame, given: Settings) -> DataFrame:
    """(id, start_us) to the tuples. Three steps, so that each works on named columns."""
    chance, lateness = _uniform("late", given.seed, "id"), _uniform("lateness", given.seed, "id")
    late = F.when(chance < given.late_share, (lateness * given.disorder_us).cast("bigint")).otherwise(F.lit(0))
    since = F.floor(F.col("id") * (1e6 / given.rate)) - (late if given.disorder_us else F.lit(0))
    numbered = ids.select(
        "id",
        since.cast("bigint").alias("since_us"),
        (F.col("start_us") + since).cast("bigint").alias("ts_us"),
        (F.col("id") % 2).cast("int").alias("property"),
        F.expr(f"cast((id div 2) % {PLUGS} as int)").alias("plug"),
    )
    # Most plugs are small, a few are heaters: from 5 W to about 2,900 W.
    size = _uniform("level", given.seed, "plug")
    placed = numbered.select(
        "*",
        F.element_at(_table(addresses(), "int"), F.col("plug") + 1).alias("address"),
        (5 + 2900 * size * size * size).alias("level"),
    )
    value = F.when(F.col("property") == 1, _load(given.seed)).otherwise(_work(given.seed))
    columns = {
        "id": F.col("id"),
        "ts": F.expr("timestampadd(MICROSECOND, ts_us, TIMESTAMP_NTZ'1970-01-01 00:00:00')"),
        "value": value,
        "property": F.col("property"),
        "plug_id": F.expr("address % 100"),
        "household_id": F.expr("(address div 100) % 100"),
        "house_id": F.expr("address div 10000"),
    }
    return placed.select(*(columns[name].cast(type_).alias(name) for name, type_ in SCHEMA.items()))


def _load(seed: int) -> Column:
    """W now: the plug's level along the curve of the day, between two full hours in proportion, and noise of 30 %."""
    curve = _table(_CURVE, "double")
    day_us = F.pmod(F.col("ts_us"), F.lit(24 * _HOUR_US))
    hour = F.floor(day_us / _HOUR_US).cast("int")
    part = (day_us % _HOUR_US) / _HOUR_US
    here, there = F.element_at(curve, hour + 1), F.element_at(curve, (hour + 1) % 24 + 1)
    noise = 0.7 + 0.6 * _uniform("noise", seed, "id")
    return _rounded(F.col("level") * (here + (there - here) * part) / 100 * noise, 1e3)


def _work(seed: int) -> Column:
    """kWh since the plug was installed: what it drew before the stream, and its mean load since."""
    before = 1000 * _uniform("work", seed, "plug")
    return _rounded(before + F.col("level") * _MEAN / 1000 * F.col("since_us") / _HOUR_US, 1e6)


def _rounded(value: Column, scale: float) -> Column:
    """Not Spark's `round`, which goes by way of decimals and takes longer than all the rest."""
    return F.floor(value * scale + 0.5) / scale


def _uniform(purpose: str, seed: int, column: str) -> Column:
    """A number in [0, 1) that the column's value decides."""
    return F.shiftrightunsigned(F.xxhash64(F.lit(purpose), F.lit(seed), F.col(column)), 11) * 2.0**-53


def _table(values: Sequence[int], type_: str) -> Column:
    """A constant array. Written as one text, as thousands of literals would be analysed in every batch."""
    return F.split(F.lit(",".join(map(str, values))), ",").cast(f"array<{type_}>")


def addresses() -> tuple[int, ...]:
    """By number of the plug: house · 10000 + household · 100 + plug, households and plugs of different sizes."""
    found = []
    plugs = iter(_sizes(PLUGS, HOUSEHOLDS))
    for house, households in enumerate(_sizes(HOUSEHOLDS, HOUSES)):
        for household in range(households):
            found += [house * 10_000 + household * 100 + plug for plug in range(next(plugs))]
    return tuple(found)


def _sizes(total: int, groups: int) -> list[int]:
    """`total` things in `groups` groups, the largest up to four times the smallest.

    >>> _sizes(20, 4), sum(_sizes(2125, 425))
    ([3, 5, 8, 4], 2125)
    """
    weights = [5 + 4 * i % 11 for i in range(groups)]
    borders = [total * w // sum(weights) for w in accumulate(weights, initial=0)]
    return [b - a for a, b in pairwise(borders)]


class SmartPlugs(DataSource):
    """Rows (first, last, start_us): the ids that are due, in ranges."""

    @classmethod
    def name(cls) -> str:
        return "penstock_smartplug"

    def schema(self) -> str:
        return "first bigint, last bigint, start_us bigint"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return SmartPlugReader(self.options)


class SmartPlugReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """An offset is {index, wall_us, start_us}: a restart goes on with the clock of the deployment, not with its own."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.rate = float(options["rate"])
        self.real = options["real"] == "true"
        self.max_per_batch = int(options["max_per_batch"])
        self.limit = int(options["limit"]) if options["limit"] else None
        self.slices = int(options["partitions"])
        # Spark asks for the initial offset again and again until the first batch is planned; it has to be one instant.
        self.wall_us = time.time_ns() // 1000
        self.start_us = int(options["start_us"] or self.wall_us)
        self.target_us: int | None = None

    def initialOffset(self) -> dict[str, int]:
        return {"index": 0, "wall_us": self.wall_us, "start_us": self.start_us}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.max_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:
        if not self.real and self.limit is None:
            raise ValueError("a smartplug stream with pace = 'full' has no end; give it a limit")
        self.target_us = time.time_ns() // 1000

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self.max_per_batch
        end = start["index"] + rows
        if self.real:
            now = self.target_us or time.time_ns() // 1000
            due = int((now - start["wall_us"]) * self.rate / 1e6)
            end = due if isinstance(limit, ReadAllAvailable) else min(end, due)
        if self.limit is not None:
            end = min(end, self.limit)
        return start | {"index": max(start["index"], end)}  # a wall clock may be set back

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        first, behind = start["index"], end["index"]
        slices = min(self.slices, -(-(behind - first) // _CHUNK))
        borders = [first + (behind - first) * i // max(1, slices) for i in range(slices + 1)]
        # The times are those of `end`, which is in the log: before the first batch `start` is a new one in every run.
        return [InputPartition((a, b, end["start_us"])) for a, b in pairwise(borders)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        first, behind, start_us = partition.value
        for a in range(first, behind, _CHUNK):
            yield a, min(a + _CHUNK, behind) - 1, start_us
