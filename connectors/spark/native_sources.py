"""How the emitted script reads the streams and stored tables of a catalog: plain Spark, by connector."""

from __future__ import annotations

from urllib.parse import urlsplit

from connectors.spark.native_code import call, dictionary, literal, quoted, statement
from connectors.types import arrow_type, spark_type
from optimizer.catalog import Stream, Table

_OURS = ("connector", "rate", "format", "path", "topic")
SMARTPLUG_IMPORT = (
    "from connectors.spark.smartplug import settings, smartplug_stream  # the generator comes with penstock"
)


def stream_reader(stream: Stream) -> str | None:
    """An expression for the streaming DataFrame; None for a connector the script does not know."""
    options = {name: _text(value) for name, value in stream.options.items() if name not in _OURS}
    schema = literal(_schema(stream))
    form = str(stream.options.get("format", "json"))
    match stream.options.get("connector"):
        case "smartplug":
            given = {name: value for name, value in stream.options.items() if name != "connector"}
            return f"smartplug_stream(spark, settings({dictionary(given)}))"
        case "files":
            calls = [call("schema", [schema]), *_options(options)]
            calls.append(call(str(stream.options.get("format", "parquet")), [literal(str(stream.options.get("path")))]))
            return statement("", "spark.readStream", calls)
        case "rate":
            options.setdefault("rowspersecond", str(round(stream.offered or 1)))
            return statement("", "spark.readStream", [call("format", [literal("rate")]), *_options(options), ".load()"])
        case "kafka":
            topic = {"subscribe": str(stream.options["topic"])} if "topic" in stream.options else {}
            value = 'F.col("value").cast("string")'
            calls = [call("format", [literal("kafka")]), *_options(options | topic), ".load()"]
            return statement("", "spark.readStream", [*calls, *_parsed(value, form, schema)])
        case "socket":
            calls = [call("format", [literal("socket")]), *_options(options), ".load()"]
            return statement("", "spark.readStream", [*calls, *_parsed(literal("value"), form, schema)])
        case _:
            return None


def table_reader(table: Table) -> str | None:
    """An expression for the stored table's DataFrame; None for a table that Spark itself has."""
    path, name = str(table.options.get("path")), str(table.options.get("table", table.name))
    match table.options.get("connector"):
        case "files":
            form = str(table.options.get("format", "parquet"))
            calls = [call("schema", [literal(_schema(table))]), call(form, [literal(path)])]
            return statement("", "spark.read", calls)
        case "duckdb":
            return f"spark.createDataFrame(duckdb.connect({literal(path)}).table({literal(name)}).to_arrow_table())"
        case "postgres":
            parts = urlsplit(str(table.options.get("url", "")))
            where = f"{parts.hostname or 'localhost'}:{parts.port or 5432}{parts.path}"
            given = {"url": f"jdbc:postgresql://{where}", "dbtable": f"{table.options.get('schema', 'public')}.{name}"}
            # Who logs in is not for a file that is passed around.
            login = 'user=os.environ["PGUSER"], password=os.environ["PGPASSWORD"]'
            calls = [call("format", [literal("jdbc")]), *_options(given), f".options({login})", ".load()"]
            return statement("", "spark.read", calls)
        case _:
            return None


def _parsed(value: str, form: str, schema: str) -> list[str]:
    parse = "F.from_csv" if form == "csv" else "F.from_json"
    return [call("select", [f"{parse}({value}, {schema}).alias({literal('record')})"]), '.select("record.*")']


def _options(options: dict[str, str]) -> list[str]:
    return [call("options", [f"**{dictionary(options)}"])] if options else []


def _schema(relation: Stream | Table) -> str:
    return ", ".join(f"{quoted(c.name)} {spark_type(arrow_type(c.type))}" for c in relation.columns)


def _text(value: str | float | bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else value
