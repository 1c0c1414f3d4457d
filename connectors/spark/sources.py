"""The streams of a catalog as streaming DataFrames, by connector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from connectors.spark import records, smartplug
from connectors.spark.failures import cause_of
from connectors.spark.records import quoted
from connectors.types import arrow_type, spark_type
from optimizer.catalog import Column, Stream
from optimizer.errors import PenstockError

KAFKA = "org.apache.spark:spark-sql-kafka-0-10_2.13"
_FORMATS = ("parquet", "csv", "json")
_OURS = ("connector", "rate", "format")
_DECIDED = ("mode", "columnnameofcorruptrecord", "inferschema", "enforceschema")
_WIDER = {
    "tinyint": ("smallint", "int", "bigint", "float", "double"),
    "smallint": ("int", "bigint", "float", "double"),
    "int": ("bigint", "double"),
    "float": ("double",),
    "timestamp": ("timestamp_ntz",),  # both in UTC
    "timestamp_ntz": ("timestamp",),
}


@dataclass(frozen=True)
class Source:
    """An open stream. `frame` has the columns asked for, in the catalog's types; where `can_be_malformed`, also
    `_malformed` (the reason) and `_raw` (the record), which are NULL for good tuples."""

    frame: DataFrame
    replayable: bool  # a batch that is read again has the same tuples
    can_be_malformed: bool
    note: str


def open_stream(spark: SparkSession, stream: Stream, columns: tuple[str, ...], rate: float | None = None) -> Source:
    """`rate` is for the connectors that make tuples themselves; without it, the catalog's holds."""
    connector = stream.options.get("connector")
    if connector not in _CONNECTORS:
        found = "no connector" if connector is None else f"the unknown connector {connector!r}"
        known = ", ".join(_CONNECTORS)
        raise PenstockError(f"stream {stream.name} has {found}; write WITH (connector = …) with one of {known}")
    if rate is None:
        rate = stream.offered
    try:
        return _CONNECTORS[str(connector)](spark, stream, columns, rate)
    except PenstockError as error:
        raise PenstockError(f"stream {stream.name}: {error}") from error
    except (PySparkException, Py4JError) as error:
        raise PenstockError(f"stream {stream.name} cannot be read: {cause_of(error)}") from error


def computed_rows(spark: SparkSession, stream: Stream, columns: tuple[str, ...], count: int) -> DataFrame | None:
    """The first tuples of a stream that can be computed without being streamed; None for any other connector."""
    if stream.options.get("connector") != "smartplug":
        return None
    given = {name: value for name, value in stream.options.items() if name != "connector"}
    if given.get("start") == "now":
        del given["start"]  # the values of another day will do
    try:
        frame = smartplug.smartplug_rows(spark, 0, count, given)
        _match(frame.schema, stream, "the smart-plug stream")
    except PenstockError as error:
        raise PenstockError(f"stream {stream.name}: {error}") from error
    return _typed(frame, stream, columns)


def _smartplug(spark: SparkSession, stream: Stream, columns: tuple[str, ...], rate: float | None) -> Source:
    options = {name: value for name, value in stream.options.items() if name != "connector"}
    given = smartplug.settings(options if rate is None else options | {"rate": rate})
    frame = smartplug.smartplug_stream(spark, given)
    _match(frame.schema, stream, "the smart-plug stream")
    pace = "in real time" if given.real else "as fast as they are read"
    note = f"{given.rate:g} made-up tuples/s, {pace}, at most {given.max_per_batch:,} a batch"
    return Source(_typed(frame, stream, columns), True, False, note)


def _rate(spark: SparkSession, stream: Stream, columns: tuple[str, ...], rate: float | None) -> Source:
    options = _passed(stream)
    if "rowspersecond" not in options:
        options["rowspersecond"] = str(max(1, round(rate or 1)))
    frame = spark.readStream.format("rate").options(**options).load()
    _match(frame.schema, stream, "Spark's rate source")
    return Source(_typed(frame, stream, columns), True, False, f"{options['rowspersecond']} numbers a second")


def _files(spark: SparkSession, stream: Stream, columns: tuple[str, ...], rate: float | None) -> Source:
    options, text_format = _passed(stream), str(stream.options.get("format", "parquet"))
    if text_format not in _FORMATS:
        raise PenstockError(f"format must be one of {', '.join(_FORMATS)}, found {text_format!r}")
    path = _required(options, "path", "the directory of the files")
    del options["path"]
    note = f"{text_format} files in {path}"
    if text_format == "json":
        _one_line_each(options)
        frame = records.parsed(spark.readStream.options(**options).text(path), stream, columns, text_format, options)
    elif text_format == "csv":
        frame = _csv(spark, stream, columns, path, options)
    else:
        found = _found_schema(spark, path, "parquet", options)
        if found is not None:
            _match(found, stream, path)
        else:
            note += ", none there yet"
        typed = spark.readStream.schema(found or _declared(stream)).options(**options).parquet(path)
        if not records.can_lack(stream, columns):
            return Source(_typed(typed, stream, columns), True, False, note)
        frame = records.from_typed(_typed(typed, stream, tuple(c.name for c in stream.columns)), stream, columns)
    return Source(frame, True, True, note)


def _csv(
    spark: SparkSession, stream: Stream, columns: tuple[str, ...], path: str, options: Mapping[str, str]
) -> DataFrame:
    names = [c.name for c in stream.columns]
    if options.get("header") == "true":
        # Columns are found by the header's names, in whatever order; another header in a later file is an error.
        found = _found_schema(spark, path, "csv", options)
        if found is not None:
            _named(found.names, stream, path)
            names = found.names
    # With pruning, fields that are not read would not be counted, and a broken line would look like a good one.
    forced = records.reader_options() | {"enforceSchema": "false", "columnPruning": "false"}
    texts = spark.readStream.schema(records.text_schema(names)).options(**options, **forced).csv(path)
    raw = F.to_csv(
        F.struct(*(quoted(n) for n in names)), {k: v for k, v in options.items() if k in ("sep", "delimiter")}
    )
    kind = f"a line of CSV with {len(names)} fields"
    return records.from_texts(texts, stream, columns, kind, raw, options.get("timestampformat"))


def _kafka(spark: SparkSession, stream: Stream, columns: tuple[str, ...], rate: float | None) -> Source:
    options, text_format = _passed(stream), _text_format(stream)
    if "topic" in options:
        options["subscribe"] = options.pop("topic")
    servers = _required(options, "kafka.bootstrap.servers", "the brokers, 'host:port'")
    if not options.keys() & {"subscribe", "subscribepattern", "assign"}:
        raise PenstockError("kafka needs the option topic (or subscribe, subscribepattern, assign)")
    try:
        messages = spark.readStream.format("kafka").options(**options).load()
    except AnalysisException as error:
        package = f"{KAFKA}:{spark.version}"
        raise PenstockError(
            f"this Spark cannot read Kafka ({_told(error)}); add the option spark.jars.packages={package}"
        ) from error
    lines = messages.select(F.col("value").cast("string").alias("value"))
    frame = records.parsed(lines, stream, columns, text_format, options)
    return Source(frame, True, True, f"{text_format} messages from Kafka at {servers}")


def _socket(spark: SparkSession, stream: Stream, columns: tuple[str, ...], rate: float | None) -> Source:
    options, text_format = _passed(stream), _text_format(stream)
    host, port = _required(options, "host", "the server"), _required(options, "port", "its port")
    lines = spark.readStream.format("socket").options(host=host, port=port).load()
    note = f"{text_format} lines from {host}:{port}; what is lost in a failure cannot be read again"
    return Source(records.parsed(lines, stream, columns, text_format, options), False, True, note)


Opener = Callable[[SparkSession, Stream, tuple[str, ...], float | None], Source]
_CONNECTORS: dict[str, Opener] = {
    "smartplug": _smartplug,
    "files": _files,
    "kafka": _kafka,
    "socket": _socket,
    "rate": _rate,
}


def _passed(stream: Stream) -> dict[str, str]:
    """The options that are Spark's, as text; their names are the same to Spark in any case."""
    for name in _DECIDED:
        if name in stream.options:
            words = "the catalog's columns are read, and malformed records are kept aside with the reason"
            raise PenstockError(f"the option {name} cannot be set: {words}")
    return {name: _text(value) for name, value in stream.options.items() if name not in _OURS}


def _text(value: str | float | bool) -> str:
    """
    >>> _text(2.0), _text(0.5), _text(True), _text("a")
    ('2', '0.5', 'true', 'a')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)


def _required(options: Mapping[str, str], name: str, meaning: str) -> str:
    if name not in options:
        raise PenstockError(f"the option {name} is missing ({meaning}); write WITH (…, {name} = '…')")
    return options[name]


def _text_format(stream: Stream) -> str:
    found = stream.options.get("format", "json")
    if found not in ("json", "csv"):
        raise PenstockError(f"format must be 'json' or 'csv', found {found!r}")
    return str(found)


def _one_line_each(options: Mapping[str, str]) -> None:
    for name in ("multiline", "encoding", "charset"):
        if name in options:
            raise PenstockError(f"the option {name} cannot be set: json files hold one object per line, in UTF-8")


def _found_schema(spark: SparkSession, path: str, text_format: str, options: Mapping[str, str]) -> StructType | None:
    """What the files that are there now hold; None without files."""
    try:
        return spark.read.options(**options).format(text_format).load(path).schema or None
    except AnalysisException as error:
        if error.getCondition() == "UNABLE_TO_INFER_SCHEMA":
            return None
        raise


def _declared(stream: Stream) -> str:
    return ", ".join(f"{quoted(c.name)} {_spark(c)}" for c in stream.columns)


def _spark(column: Column) -> str:
    return spark_type(arrow_type(column.type))


def _typed(frame: DataFrame, stream: Stream, columns: tuple[str, ...]) -> DataFrame:
    types = {c.name: _spark(c) for c in stream.columns}
    return frame.select(*(F.col(quoted(name)).cast(types[name]).alias(name) for name in columns))


def _named(found: list[str], stream: Stream, where: str) -> None:
    there = {name.lower() for name in found}
    if lacking := [c.name for c in stream.columns if c.name.lower() not in there]:
        raise PenstockError(f"{where} has no column {', '.join(lacking)}; it has {', '.join(found)}")


def _match(found: StructType, stream: Stream, where: str) -> None:
    """Every column of the catalog is there, in its type or one that fits into it."""
    _named(found.names, stream, where)
    types = {field.name.lower(): field.dataType.simpleString() for field in found.fields}
    wrong = []
    for column in stream.columns:
        wanted, there = _spark(column), types[column.name.lower()]
        if wanted != there and wanted not in _WIDER.get(there, ()):
            wrong.append(f"{column.name} is {there} there and {column.type.sql()} in the catalog")
    if wrong:
        raise PenstockError(f"{where} does not match the catalog: {'; '.join(wrong)}")


def _told(error: PySparkException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
