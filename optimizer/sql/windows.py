"""Every stream of a query gets its window: the `[…]` clause, HOP and TUMBLE, and Spark's `GROUP BY window(…)`.

`window_start` and `window_end` of Flink and `window.start` and `window.end` of Spark become the tick, `TICK()`, and
the tick less the window's size. They are constant at a tick, so they leave GROUP BY; where nothing else is grouped by,
HAVING keeps the empty window from giving a row.
"""

from __future__ import annotations

from difflib import get_close_matches

from sqlglot import exp

from optimizer.algebra import WindowSpec, WindowUnit
from optimizer.catalog import Catalog, Stream
from optimizer.sql.dialect import parse_duration, window_of
from optimizer.sql.parse import refused

_NO_WINDOW = "{name} [RANGE 5 MINUTES SLIDE 1 SECOND]"
_SPARK_FORM = "GROUP BY window(ts, '5 minutes', '1 second'), …  -- size first, then slide"


def tick() -> exp.Expression:
    return exp.Anonymous(this="TICK", expressions=[])


def resolve_windows(query: exp.Select, catalog: Catalog, text: str) -> None:
    """Checks every relation against the catalog and leaves a window on each stream; changes the query in place."""
    for select in list(query.find_all(exp.Select)):
        tables = [t for t in _sources(select) if isinstance(t, exp.Table)]
        for table in tables:
            _fold(table)
        named = _common_tables(select)
        for table in tables:
            _check_source(table, named, catalog, text)
        _spark_window(select, [t for t in tables if t.name in catalog.streams and t.name not in named], text)
        for table in tables:
            if table.name in catalog.streams and table.name not in named:
                _check_stream(table, catalog.streams[table.name], text)
        _window_columns(select, tables)
        _constant_groups(select)
    specs = {w for t in query.find_all(exp.Table) if (w := window_of(t))}
    if len({(w.unit, w.slide) for w in specs}) > 1 and (mark := _first_tick(query)) is not None:
        raise refused(
            "window_start and window_end are not defined for windows with different slides",
            mark,
            text,
            "one SLIDE for all windows, or neither column",
        )


def _sources(select: exp.Select) -> list[exp.Expr]:
    return [select.args["from_"].this, *(join.this for join in select.args.get("joins") or [])]


def _fold(table: exp.Table) -> None:
    if not table.this.args.get("quoted"):
        table.this.set("this", table.name.lower())


def _common_tables(select: exp.Select) -> set[str]:
    """The names WITH clauses around a SELECT give."""
    names: set[str] = set()
    node: exp.Expr | None = select
    while node is not None:
        if with_ := node.args.get("with_"):
            names |= {
                cte.alias if cte.args["alias"].this.args.get("quoted") else cte.alias.lower()
                for cte in with_.expressions
            }
        node = node.parent
    return names


def _check_source(table: exp.Table, named: set[str], catalog: Catalog, text: str) -> None:
    if table.name in named or table.name in catalog.tables:
        if window_of(table):
            raise refused(f"{table.name} is no stream, so it has no window", table, text, f"FROM {table.name}")
    elif table.name not in catalog.streams:
        near = get_close_matches(table.name, [*catalog.names(), *named], 1)
        known = ", ".join(catalog.names()) or "nothing"
        hint = near[0] if near else f"a stream or table of the catalog, which has {known}"
        raise refused(f"no stream or table is called {table.name}", table, text, hint)


def _check_stream(table: exp.Table, stream: Stream, text: str) -> None:
    if window_of(table) is None:
        raise refused(f"stream {table.name} has no window", table, text, _NO_WINDOW.format(name=table.name))
    columns = {c.name: c.type for c in stream.columns}
    given = table.meta.get("time_column")
    if given is None:
        table.meta["time"] = _time_column(stream)
    else:
        name = given.name if given.args.get("quoted") else given.name.lower()
        hint = _time_column(stream) or "the stream's time column"
        if name not in columns:
            raise refused(f"{table.name} has no column {name}", given, text, hint)
        if not columns[name].sql().upper().startswith("TIMESTAMP"):
            words = f"a window moves over a TIMESTAMP, {name} is {columns[name].sql()}"
            raise refused(words, given, text, hint)
        table.meta["time"] = name
    if table.meta["time"] is None:
        hint = "WATERMARK FOR ts AS ts - INTERVAL '2' SECOND in its CREATE STREAM"
        raise refused(f"stream {table.name} has no time column", table, text, hint)


def _time_column(stream: Stream) -> str | None:
    """The watermark's column; without one, the only timestamp."""
    if stream.watermark:
        return stream.watermark.column
    stamps = [c.name for c in stream.columns if c.type.sql().upper().startswith("TIMESTAMP")]
    return stamps[0] if len(stamps) == 1 else None


def _spark_window(select: exp.Select, streams: list[exp.Table], text: str) -> None:
    calls = [c for c in select.find_all(exp.Anonymous) if c.name.upper() == "WINDOW" and c.parent_select is select]
    if not calls:
        return
    call = calls[0]
    if not isinstance(call.parent, exp.Group) or len(calls) > 1:
        raise refused("window(…) stands once, in GROUP BY", call, text, _SPARK_FORM)
    spec, column = _spark_spec(call, text)
    bare = [t for t in streams if window_of(t) is None and (not column.table or column.table == t.alias_or_name)]
    if len(bare) != 1:
        hint = "[RANGE … SLIDE …] behind the stream it is meant for"
        raise refused(f"window(…) is meant for one stream without a window, found {len(bare)}", call, text, hint)
    bare[0].meta["window"] = spec
    bare[0].meta["time_column"] = column.this
    size = _interval(spec.size)
    for reference in list(select.find_all(exp.Column)):
        if reference.table.lower() == "window" and reference.name.lower() in ("start", "end"):
            _replace(reference, tick() if reference.name.lower() == "end" else exp.Sub(this=tick(), expression=size))
        elif reference.name.lower() == "window" and not reference.table and reference.parent_select is select:
            raise refused("window is a pair of times", reference, text, "window.start or window.end")
    call.replace(tick())


def _spark_spec(call: exp.Anonymous, text: str) -> tuple[WindowSpec, exp.Column]:
    arguments = call.expressions
    if len(arguments) not in (2, 3) or not isinstance(arguments[0], exp.Column):
        raise refused("window(…) takes a time column, a size and a slide", call, text, _SPARK_FORM)
    lengths = [_length(a) for a in arguments[1:]]
    for argument, length in zip(arguments[1:], lengths, strict=True):
        if length is None:
            raise refused(f"expected a duration, found {argument.sql()}", argument, text, _SPARK_FORM)
    size, slide = lengths[0], lengths[-1]
    assert size is not None
    return WindowSpec(WindowUnit.TIME, size, slide), arguments[0]


def _length(argument: exp.Expr) -> int | None:
    if isinstance(argument, exp.Interval):
        unit = argument.args.get("unit")
        return parse_duration(f"{argument.this.name if argument.this else ''} {unit.name if unit else ''}")
    return parse_duration(argument.name) if isinstance(argument, exp.Literal) and argument.is_string else None


def _interval(microseconds: int) -> exp.Interval:
    return exp.Interval(
        this=exp.Literal.string(f"{microseconds / 1_000_000:.6f}".rstrip("0").rstrip(".")), unit=exp.var("SECOND")
    )


def _window_columns(select: exp.Select, tables: list[exp.Table]) -> None:
    """Flink's window columns, of the HOP or TUMBLE they are qualified by, or of the first."""
    hops = [t for t in tables if t.meta.get("window_columns")]
    for reference in list(select.find_all(exp.Column)) if hops else []:
        name = reference.name.lower()
        owner = [t for t in hops if not reference.table or t.alias_or_name == reference.table]
        if name not in ("window_start", "window_end") or not owner or reference.parent_select is not select:
            continue
        spec = window_of(owner[0])
        assert spec is not None
        _replace(reference, tick() if name == "window_end" else exp.Sub(this=tick(), expression=_interval(spec.size)))


def _replace(reference: exp.Column, by: exp.Expression) -> None:
    """Keeps the column's name where it was a result column, and its place in the text."""
    by.meta.update(reference.this.meta)
    if isinstance(reference.parent, exp.Select):
        reference.replace(exp.alias_(by, reference.name))
    else:
        reference.replace(exp.paren(by, copy=False) if isinstance(by, exp.Sub) else by)


def _first_tick(query: exp.Select) -> exp.Expr | None:
    return next((c for c in query.find_all(exp.Anonymous) if c.name.upper() == "TICK"), None)


def _constant_groups(select: exp.Select) -> None:
    group = select.args.get("group")
    if not group:
        return
    kept = [e for e in group.expressions if not (e.find(exp.Anonymous) and not e.find(exp.Column))]
    if len(kept) == len(group.expressions):
        return
    if kept:
        group.set("expressions", kept)
    else:
        select.set("group", None)
        count = exp.Count(this=exp.Star(), big_int=True)  # as the parser writes it, so that it is not computed twice
        select.having(exp.GT(this=count, expression=exp.Literal.number(0)), copy=False)
