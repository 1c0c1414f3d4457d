"""The experiments of a calibration: small queries over the smart-plug stream, each under chosen placements.

Together they make every operator work in both engines, on few and on many tuples, groups and panes, so that what is
fixed, what grows with the arrivals, what grows with the windows and what grows with the results can be told apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest

from connectors.spark.sliding import Form
from optimizer.algebra import Aggregate, Node, Select, Window

CATALOG = """
CREATE STREAM plugs (
    id BIGINT NOT NULL, ts TIMESTAMP NOT NULL, value DOUBLE, property INT NOT NULL, plug_id INT NOT NULL,
    household_id INT NOT NULL, house_id INT NOT NULL, WATERMARK FOR ts AS ts
) WITH (connector = 'smartplug', rate = 2000);
CREATE STATISTICS ON plugs (id) WITH (distinct = 1000000000);
CREATE STATISTICS ON plugs (property) WITH (distinct = 2);
CREATE STATISTICS ON plugs (house_id) WITH (distinct = 40);
CREATE STATISTICS ON plugs (house_id, household_id) WITH (distinct = 425);
CREATE STATISTICS ON plugs (house_id, household_id, plug_id) WITH (distinct = 2125);
CREATE STATISTICS ON plugs WHERE property = 1 WITH (selectivity = 0.5);
"""
KEYS = {40: ("house_id",), 425: ("house_id", "household_id"), 2125: ("house_id", "household_id", "plug_id")}


def average(window: int, groups: int = 2125, calls: tuple[str, ...] = ("AVG(p.value)",)) -> str:
    """An aggregate per plug, household or house."""
    keys = ", ".join(f"p.{key}" for key in KEYS[groups])
    named = ", ".join(f"{call} AS x{i}" for i, call in enumerate(calls))
    return (
        f"SELECT {keys}, {named} FROM plugs [RANGE {window} SECONDS SLIDE 1 SECOND] AS p "
        f"WHERE p.property = 1 GROUP BY {keys}"
    )


def above(window: int) -> str:
    """The tuples of a window beside an aggregate of it, as in CQ1 and CQ2."""
    keys = KEYS[2125]
    on = " AND ".join(f"p.{key} = m.{key}" for key in keys)
    return (
        f"SELECT {', '.join(f'p.{key}' for key in keys)}, COUNT(*) AS n "
        f"FROM plugs [RANGE {window} SECONDS SLIDE 1 SECOND] AS p JOIN ("
        f"SELECT {', '.join(f'q.{key}' for key in keys)}, AVG(q.value) AS x "
        f"FROM plugs [RANGE {window} SECONDS SLIDE 1 SECOND] AS q WHERE q.property = 1 "
        f"GROUP BY {', '.join(f'q.{key}' for key in keys)}) AS m ON {on} "
        f"WHERE p.property = 1 AND p.value > m.x GROUP BY {', '.join(f'p.{key}' for key in keys)}"
    )


def compared(short: int, long: int) -> str:
    """Two aggregates of windows of different sizes side by side, as in CQ3 and CQ4."""
    sides = (average(short), average(long).replace("p.", "q.").replace("AS p", "AS q"))
    keys = ", ".join(KEYS[2125])
    return f"SELECT a.x0 - b.x0 AS change FROM ({sides[0]}) AS a JOIN ({sides[1]}) AS b USING ({keys})"


def nested(window: int) -> str:
    """An aggregate of an aggregate, as in CQ5."""
    inner = average(window, calls=("SUM(p.value)",))
    return f"SELECT t.house_id, MAX(t.x0) AS x FROM ({inner}) AS t GROUP BY t.house_id"


def paired(window: int) -> str:
    """A window joined with itself, tuple by tuple: neither side is small."""
    return (
        f"SELECT p.house_id, COUNT(*) AS n FROM plugs [RANGE {window} SECONDS SLIDE 1 SECOND] AS p "
        f"JOIN plugs [RANGE {window} SECONDS SLIDE 1 SECOND] AS q ON p.id = q.id "
        "WHERE p.property = 1 AND q.property = 1 GROUP BY p.house_id"
    )


@dataclass(frozen=True)
class Experiment:
    """`in_database` names what runs there: nothing, all, rest (all but selections), aggregates (those of
    windows), last (the other aggregates), above (the rest without aggregates of windows), joined (the rest without the
    other aggregates), selections (nothing else: whole windows come back)."""

    sql: str
    rate: float
    in_database: str
    database: str = "duckdb"
    form: Form = Form.PANE

    @property
    def what(self) -> str:
        return f"{self.in_database} in the database, {self.rate:g} tuples/s, {self.form.value}: {self.sql[:60]}"

    @property
    def code(self) -> str:
        """Names what Spark compiles; windows of any length run the same code, and whatever the database runs."""
        if self.in_database in ("all", "rest"):
            return self.in_database
        return f"{self.in_database} {self.form.value} {re.sub('[0-9]', '', self.sql)}"

    def places(self, node: Node) -> bool:
        match self.in_database:
            case "nothing":
                return False
            case "all":
                return True
            case "rest":
                return not isinstance(node, Select)
            case "selections":
                return isinstance(node, Select)
            case "aggregates":
                return isinstance(node, Aggregate) and _on_window(node)
            case "joined":
                return not (isinstance(node, Select) or (isinstance(node, Aggregate) and not _on_window(node)))
            case "last":
                return isinstance(node, Aggregate) and not _on_window(node)
            case _:
                return not (isinstance(node, Select) or (isinstance(node, Aggregate) and _on_window(node)))


def _on_window(node: Aggregate) -> bool:
    below: Node = node.input
    while isinstance(below, Select):
        below = below.input
    return isinstance(below, Window)


_CALLS = (
    ("COUNT(*)",),
    ("MAX(p.value)", "MIN(p.value)"),
    ("SUM(p.value)", "STDDEV(p.value)"),
    ("COUNT(DISTINCT p.household_id)",),
    ("APPROX_QUANTILE(p.value, 0.5)",),
)


def quick(databases: Iterable[str]) -> Iterator[Experiment]:
    in_spark = [
        Experiment(average(20), 2_000, "nothing"),
        Experiment(average(20), 40_000, "nothing"),
        Experiment(average(120), 2_000, "nothing"),
        Experiment(above(20), 2_000, "nothing"),
        Experiment(compared(10, 20), 2_000, "nothing"),
        Experiment(paired(20), 10_000, "nothing"),
        Experiment(average(10), 1_000, "nothing", form=Form.EXPAND),
        Experiment(nested(20), 2_000, "nothing"),
    ]
    return _in_turn(in_spark, *map(_quick_in, databases))


def _quick_in(database: str) -> list[Experiment]:
    return [
        Experiment(average(30), 40_000, "rest", database),
        Experiment(above(30), 20_000, "rest", database),
        Experiment(compared(10, 20), 2_000, "aggregates", database),
        Experiment(compared(10, 20), 2_000, "above", database),
        Experiment(average(30), 2_000, "all", database),
        Experiment(above(20), 1_000, "aggregates", database),
        Experiment(above(20), 5_000, "joined", database),
        Experiment(above(20), 5_000, "last", database),
        Experiment(above(20), 5_000, "selections", database),
    ]


def full(databases: Iterable[str]) -> Iterator[Experiment]:
    return _in_turn(_full_in_spark(), *map(_full_in, databases))


def _full_in_spark() -> list[Experiment]:
    panes = [(60, 2125, 1_000), (60, 2125, 40_000), (10, 40, 10_000), (10, 40, 100_000)]
    panes += [(120, 40, 5_000), (120, 2125, 5_000), (300, 2125, 2_000), (10, 2125, 5_000), (60, 2125, 300_000)]
    copies = [(5, 1_000), (20, 1_000), (5, 5_000), (60, 500)]
    windows = [(30, 1_000), (60, 5_000), (300, 8_000), (300, 30_000)]
    found = [Experiment(average(w, g), r, "nothing") for w, g, r in panes]
    found += [Experiment(above(w), r, "nothing") for w, r in windows]
    found += [Experiment(compared(20, 60), 2_000, "nothing"), Experiment(compared(60, 300), 10_000, "nothing")]
    found += [Experiment(nested(60), 2_000, "nothing"), Experiment(nested(300), 10_000, "nothing")]
    found += [Experiment(paired(20), 10_000, "nothing"), Experiment(paired(60), 10_000, "nothing")]
    found += [Experiment(average(w), r, "nothing", form=Form.EXPAND) for w, r in copies]
    found += [Experiment(average(20, calls=calls), 40_000, "nothing") for calls in _CALLS]
    found += [Experiment(average(120, calls=calls), 5_000, "nothing") for calls in _CALLS[:-1]]  # many panes
    return found


def _full_in(database: str) -> list[Experiment]:
    sizes, largest = [(60, 20_000), (60, 2_000), (300, 20_000), (60, 80_000), (300, 60_000)], 300_000
    crossing = [(20, 20_000), (60, 20_000)]
    if database == "postgres":
        sizes, largest = [(60, 10_000), (60, 2_000), (300, 5_000), (60, 30_000)], 20_000
        crossing = [(20, 5_000), (60, 10_000), (60, 20_000)]
    found = [Experiment(above(w), r, "rest", database) for w, r in (*sizes, (300, largest))]
    found += [Experiment(average(w), r, "rest", database) for w, r in (*sizes, (300, largest))]
    found += [Experiment(above(w), r, p, database) for w, r in crossing for p in ("joined", "last", "selections")]
    found += [Experiment(above(w), r, "all", database) for w, r in (sizes[0], (300, largest / 2))]
    for rate in (2_000, 10_000):
        found += [Experiment(compared(20, 60), rate, p, database) for p in ("aggregates", "above", "rest")]
        found += [Experiment(nested(60), rate, p, database) for p in ("aggregates", "rest")]
        found.append(Experiment(above(60), rate / 2, "aggregates", database))
    found += [Experiment(average(300), r, "selections", database) for r in (4_000, 10_000, 40_000)]  # large relations
    found += [Experiment(average(w), r, "all", database) for w, r in sizes]
    found += [Experiment(average(60, groups), 20_000, "rest", database) for groups in (40, 425)]
    found += [Experiment(above(w), r, "above", database) for w, r in ((60, 1_000), (300, 10_000))]
    found += [Experiment(compared(60, 300), 20_000, p, database) for p in ("above", "rest")]
    found += [Experiment(above(300), 20_000, "aggregates", database)]
    if database == "postgres":  # windows as large as at its limit
        found += [Experiment(above(300), 50_000, "rest", database), Experiment(average(300), 60_000, "rest", database)]
        found += [Experiment(average(300), 40_000, "all", database)]
    calls = _CALLS[:-1] if database == "postgres" else _CALLS  # it has no approximate quantiles
    found += [Experiment(average(60, calls=some), 20_000, "rest", database) for some in calls]
    return found


def _in_turn(*lists: list[Experiment]) -> Iterator[Experiment]:
    """One of each, again and again: where the time runs out, all of them have told something."""
    for some in zip_longest(*lists):
        yield from (experiment for experiment in some if experiment is not None)
