"""Records as they come, split into tuples of the catalog's types and malformed records with the reason.

A record is never dropped and never stops the query: it keeps its row, with `_malformed` saying which column holds
what, and `_raw` the text of it. Both are NULL for a good tuple. Everything is an expression of Spark's.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from connectors.types import arrow_type, spark_type
from optimizer import catalog
from optimizer.catalog import Stream

MALFORMED, RAW = "_malformed", "_raw"
_CORRUPT = "_corrupt"
_SHOWN = 80  # characters of a value that a reason quotes


def parsed(
    lines: DataFrame, stream: Stream, columns: tuple[str, ...], text_format: str, options: Mapping[str, str]
) -> DataFrame:
    """Text records in the column `value`, one JSON object or one line of CSV each."""
    # Fields are read as text first: a reason can then quote what was there instead of a value.
    schema = text_schema([c.name for c in stream.columns])
    parse = F.from_json if text_format == "json" else F.from_csv
    fields = parse(F.col("value"), schema, dict(options) | reader_options())
    records = lines.where(F.trim("value") != "").select(F.col("value").alias(RAW), fields.alias("fields"))
    texts = records.select("fields.*", RAW)
    kind = "a JSON object" if text_format == "json" else f"a line of CSV with {len(stream.columns)} fields"
    return from_texts(texts, stream, columns, kind, F.col(RAW), options.get("timestampformat"))


def text_schema(names: list[str]) -> str:
    return ", ".join(f"{quoted(name)} string" for name in [*names, _CORRUPT])


def reader_options() -> dict[str, str]:
    return {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}


def from_texts(
    texts: DataFrame, stream: Stream, columns: tuple[str, ...], kind: str, raw: Column, time_format: str | None
) -> DataFrame:
    """Fields as text, and the record itself in `_corrupt` where it is not of its kind at all."""
    values: dict[str, Column] = {}
    reasons = []
    for column in _checked(stream, columns):
        text, arrow = F.col(quoted(column.name)), arrow_type(column.type)
        values[column.name] = _value(text, arrow, time_format)
        quote = F.concat(
            F.lit(f"{column.name}: '"), F.substring(text, 1, _SHOWN), F.lit(f"' is no {column.type.sql()}")
        )
        reasons += [F.when(text.isNotNull() & values[column.name].isNull(), quote), *_missing(column, stream, text)]
    broken = F.col(_CORRUPT)
    reason = F.when(broken.isNotNull(), F.lit(f"not {kind}")).otherwise(_joined(reasons))
    return _split(texts, {name: values[name] for name in columns}, reason, F.coalesce(broken, raw))


def from_typed(frame: DataFrame, stream: Stream, columns: tuple[str, ...]) -> DataFrame:
    """Values that have their types already, of which only NULLs can be wrong."""
    reasons = [r for c in _checked(stream, columns) for r in _missing(c, stream, F.col(quoted(c.name)))]
    raw = F.to_json(F.struct(*(quoted(name) for name in frame.columns)), {"ignoreNullFields": "false"})
    return _split(frame, {name: F.col(quoted(name)) for name in columns}, _joined(reasons), raw)


def can_lack(stream: Stream, columns: tuple[str, ...]) -> bool:
    """Whether a NULL in one of these columns makes a record malformed."""
    return any(not c.nullable or _is_time(c, stream) for c in _checked(stream, columns))


def quoted(name: str) -> str:
    """
    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def _checked(stream: Stream, columns: tuple[str, ...]) -> list[catalog.Column]:
    """What is wrong in a column that nobody reads does not matter; the time is always read."""
    return [c for c in stream.columns if c.name in columns or _is_time(c, stream)]


def _is_time(column: catalog.Column, stream: Stream) -> bool:
    return stream.watermark is not None and column.name == stream.watermark.column


def _missing(column: catalog.Column, stream: Stream, value: Column) -> list[Column]:
    if _is_time(column, stream):
        return [F.when(value.isNull(), F.lit(f"{column.name}: no time"))]
    return [] if column.nullable else [F.when(value.isNull(), F.lit(f"{column.name}: NULL, but it is NOT NULL"))]


def _value(text: Column, arrow: pa.DataType, time_format: str | None) -> Column:
    if pa.types.is_timestamp(arrow):
        # By way of TIMESTAMP, as a cast to TIMESTAMP_NTZ would leave out the zone of '12:00+02:00' unseen.
        instant = F.try_to_timestamp(text, F.lit(time_format)) if time_format else text.try_cast("timestamp")
        return instant.cast(spark_type(arrow))
    return text.try_cast(spark_type(arrow))


def _joined(reasons: list[Column]) -> Column:
    return F.nullif(F.concat_ws("; ", *reasons), F.lit("")) if reasons else F.lit(None).cast("string")


def _split(frame: DataFrame, values: Mapping[str, Column], reason: Column, raw: Column) -> DataFrame:
    kept = F.when(reason.isNotNull(), raw)
    return frame.select(*(v.alias(name) for name, v in values.items()), reason.alias(MALFORMED), kept.alias(RAW))
