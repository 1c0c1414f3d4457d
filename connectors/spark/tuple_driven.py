"""Tuple-driven operators on Spark: the fragment's own SQL over temporary views.

A row comes out once, when the newest of its tuples has its time in the span. What stands below the root is evaluated
over all that its stores hold, with a span that begins at the epoch; only the root has the true one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from uuid import uuid4

import pyspark.sql.functions as F
from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp

from connectors.inference import output_types
from connectors.spark.expressions import lowered_node, moment, spark_name
from connectors.tick import Span
from costmodel.flow import Drive
from optimizer.algebra import Node, with_inputs
from optimizer.algebra import inputs as inputs_of
from optimizer.catalog import Catalog
from optimizer.sql.render import flat_names, fragment_query


def spark_fragment(
    spark: SparkSession,
    node: Node,
    inputs: Mapping[str, DataFrame],
    shipped: Mapping[int, str],
    span: Span,
    catalog: Catalog,
) -> DataFrame:
    """The operator's rows of a span, under flat names.

    `inputs` has the relations that the fragment's SQL names: `win_p` for the window p, with the stream's own columns, a
    stored table under its name, and what `shipped` calls the results of other operators. Those have flat columns,
    except a selection of a window, which is a window store as well.
    """
    query = fragment_query(_in_sparks_words(node, shipped, catalog), shipped, Drive.TUPLE, True)
    names, types = flat_names(node), output_types(node, catalog)
    with _views(inputs) as views:
        frame = spark.sql(_over(query, views, span).sql(dialect="spark"))
    columns = [f"_{i}" for i in range(len(names))]  # by position: a projection has its items' own names
    typed = [F.col(c).cast(spark_name(types[own])).alias(names[own]) for c, own in zip(columns, names, strict=True)]
    return frame.toDF(*columns).select(*typed)


def _in_sparks_words(node: Node, shipped: Mapping[int, str], catalog: Catalog) -> Node:
    if id(node) in shipped or not inputs_of(node):
        return node
    types = {own: t for below in inputs_of(node) for own, t in output_types(below, catalog).items()}
    below = tuple(_in_sparks_words(below, shipped, catalog) for below in inputs_of(node))
    return with_inputs(lowered_node(node, types), below)


def _over(query: exp.Select, views: Mapping[str, str], span: Span) -> exp.Expr:
    """The query on its views, the span's times in place of its parameters."""
    times = {"since": moment(span.since), "until": moment(span.until)}

    def one(part: exp.Expr) -> exp.Expr:
        if isinstance(part, exp.Cast) and isinstance(part.this, exp.Parameter):
            return times[part.this.name]
        if isinstance(part, exp.Table):
            alias = exp.TableAlias(this=exp.to_identifier(part.alias_or_name, quoted=True))
            return exp.Table(this=exp.to_identifier(views[part.name]), db=exp.to_identifier("global_temp"), alias=alias)
        return part

    return query.transform(one)


@contextmanager
def _views(inputs: Mapping[str, DataFrame]) -> Iterator[dict[str, str]]:
    """Temporary views under names of their own; a query that was analysed needs them no longer.

    Global ones, because a micro-batch belongs to a session that its streaming query has cloned.
    """
    views = {name: f"penstock_{uuid4().hex}" for name in inputs}
    try:
        for name, frame in inputs.items():
            frame.createGlobalTempView(views[name])
        yield views
    finally:
        for name, frame in inputs.items():
            frame.sparkSession.catalog.dropGlobalTempView(views[name])
