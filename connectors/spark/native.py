"""The native emission: an all-SPE plan as one Structured Streaming query, written out as a PySpark script.

It is what a Spark user would write by hand, and what Penstock's own loop is compared with. The result has the column
`tick` and the query's own; rows of a tick come out in append mode and are complete once the watermark has passed it.
Spark's watermark differs from Penstock's in two ways: it moves from batch to batch, by the tuples that pass the
selections (which Spark pushes below it), and a tuple right on it is late for a join of tuples.
"""

from __future__ import annotations

from sqlglot import exp

from connectors.spark.native_code import indented, literal, quoted
from connectors.spark.native_query import RESERVED, QueryWriter, reads_tick, selected_leaf
from connectors.spark.native_sources import SMARTPLUG_IMPORT, stream_reader, table_reader
from costmodel.flow import Drive
from optimizer.algebra import (
    Aggregate,
    Emission,
    Join,
    JoinKind,
    Node,
    RelationToStream,
    StoredTable,
    Window,
    WindowUnit,
    duration,
    leaves,
    outputs,
    post_order,
    scalars,
)
from optimizer.catalog import Catalog
from optimizer.engines import SPARK
from optimizer.errors import PenstockError
from optimizer.estimate import drive_of

_SCRIPT = '''\
"""One Structured Streaming query for

{sql}

Run it with `spark-submit` or Python; `--checkpoint` names the directory Spark keeps its progress and state in.
"""

{imports}


def query(spark: SparkSession, streams: dict[str, DataFrame]) -> DataFrame:
{body}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--partitions", type=int, default=2, help="of Spark's state; stays with the checkpoint")
    given = parser.parse_args()
    spark = (
        SparkSession.builder.master(given.master)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.ansi.enabled", True)
        .config("spark.sql.shuffle.partitions", given.partitions)
        .getOrCreate()
    )
{sources}
    result = query(spark, streams)
    sink = result.writeStream.outputMode("append").format("console").option("truncate", False)
    sink.option("checkpointLocation", given.checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main()
'''


def native_problem(tree: RelationToStream, catalog: Catalog) -> str | None:
    """Why there is no native emission of a query; None where there is one."""
    windows = [leaf for leaf in leaves(tree) if isinstance(leaf, Window)]
    found = _of_windows(windows, drive_of(tree), catalog)
    if tree.emission is not Emission.RSTREAM and drive_of(tree) is Drive.SLIDE:
        found = found or f"{tree.emission.name} of a query with an aggregate needs the result of the tick before"
    for node in post_order(tree):
        if not isinstance(node, RelationToStream):
            found = found or _of_operator(node)
        if name := SPARK.lacks(node):
            found = found or f"Spark has no function {name}"
    names = {name for node in post_order(tree) if not isinstance(node, RelationToStream) for _, name in outputs(node)}
    names |= {item.name for item in tree.items}
    if taken := sorted(name for name in names if name.lower() in RESERVED):
        found = found or f"a column is called {taken[0]}, a name the emitted code needs itself"
    return found


def _of_windows(windows: list[Window], drive: Drive, catalog: Catalog) -> str | None:
    if drive is Drive.TUPLE and len(windows) == 1:
        return None  # every tuple goes through once, whatever its window
    for window in windows:
        spec, watermark = window.spec, catalog.streams[window.stream].watermark
        if spec.unit is WindowUnit.ROWS:
            return f"{window.alias} is a window of rows, which Structured Streaming does not have"
        if watermark is None or watermark.column != window.time_column:
            return f"stream {window.stream} has no watermark on {window.time_column}"
        if drive is Drive.SLIDE and spec.slide is None:
            return f"the window of {window.alias} has no SLIDE"
        if drive is Drive.SLIDE and spec.slide is not None and spec.slide > spec.size:
            words = f"{duration(spec.slide)} is longer than it is, {duration(spec.size)}"
            return f"the slide of the window of {window.alias}, {words}; Spark refuses that"
    slides = sorted({w.spec.slide or 0 for w in windows})
    if drive is Drive.SLIDE and len(slides) > 1:
        return f"windows slide by {duration(slides[0])} and by {duration(slides[1])}, and Spark would not join them"
    return None


def _of_operator(node: Node) -> str | None:
    streaming = _streams(node)
    if isinstance(node, Aggregate) and not node.keys and not node.functions:
        return "a SELECT DISTINCT of no column has one row, and Spark gives none"
    if isinstance(node, Aggregate) and streaming:
        if not node.keys:
            return "an aggregate without GROUP BY has a row for an empty window, and Spark gives none"
        distinct = next((f.expression for f in node.functions if f.expression.find(exp.Distinct)), None)
        if distinct is not None:
            return f"{distinct.sql()}: Spark has no distinct aggregates on streams"
    if isinstance(node, Join) and node.kind is JoinKind.LEFT and streaming and not _streams(node.left):
        return "a stored table on the left of a LEFT JOIN with a stream: Spark cannot tell which of its rows stay alone"
    below, _ = selected_leaf(node)
    if not streaming and any(reads_tick(scalar) for scalar in scalars(node)):
        name = below.alias if isinstance(below, StoredTable) else "a stored table"
        return f"TICK() is compared with {name} alone, which has no ticks"
    return None


def _streams(node: Node) -> bool:
    return any(isinstance(leaf, Window) for leaf in leaves(node))


def native_script(tree: RelationToStream, catalog: Catalog, sql: str) -> str:
    """A script with `query(spark, streams)`, which builds the result, and a `main` that runs it."""
    if problem := native_problem(tree, catalog):
        raise PenstockError(f"there is no native Spark query for this one: {problem}; run it with Penstock's own loop")
    writer = QueryWriter(tree, catalog)
    body = indented("\n".join(writer.write()))
    readers = _readers(writer, tree, catalog)
    return _SCRIPT.format(
        sql=sql.strip().replace("\\", "\\\\").replace('"""', '\\"\\"\\"'),
        imports=_imports(readers),
        body=body,
        sources=indented(readers),
    )


def _readers(writer: QueryWriter, tree: RelationToStream, catalog: Catalog) -> str:
    lines = ["streams = {"]
    for name in writer.streams:
        # A stream without a connector is taken for a table of Spark's own catalog.
        reader = stream_reader(catalog.streams[name]) or f"spark.readStream.table({literal(quoted(name))})"
        lines.append(indented(f"{literal(name)}: {reader},"))
    lines.append("}")
    for name in dict.fromkeys(leaf.table for leaf in leaves(tree) if isinstance(leaf, StoredTable)):
        if stored := table_reader(catalog.tables[name]):
            lines.append(f"{stored}.createOrReplaceTempView({literal(name)})")
    return "\n".join(lines)


def _imports(readers: str) -> str:
    lines = ["import argparse"]
    lines += ["import os"] if "os.environ" in readers else []
    lines += ["", "import duckdb"] if "duckdb.connect" in readers else [""]
    lines += ["from pyspark.sql import DataFrame, SparkSession", "from pyspark.sql import functions as F"]
    lines += ["", SMARTPLUG_IMPORT] if "smartplug_stream" in readers else []
    return "\n".join(lines)
