"""CQ4-style n-way joins: each plug's average load over n windows of growing size, joined (paper 001, section 8.2)."""

from __future__ import annotations

from pathlib import Path

from optimizer.errors import PenstockError

# The shapes whose plan counts Table 2 gives.
TABLE2_SHAPES = {
    2: "(agg1 agg2)",
    5: "(((agg1 agg2) agg3) (agg4 agg5))",
    8: "(((((agg1 agg2) agg3) (agg4 agg5)) agg6) agg7) agg8",
}

_BRANCH = """(
    SELECT {p}.house_id, {p}.household_id, {p}.plug_id, AVG({p}.value) AS avg_load
    FROM plugs [RANGE {minutes} MINUTES SLIDE 1 SECOND] AS {p}
    WHERE {p}.property = 1
    GROUP BY {p}.house_id, {p}.household_id, {p}.plug_id
) AS {a}"""
_ON = "a1.house_id = {a}.house_id AND a1.household_id = {a}.household_id AND a1.plug_id = {a}.plug_id"


def nway_query(n: int) -> str:
    """The n-way query: windows of 1, 3, 5, … minutes.

    >>> print(nway_query(2).splitlines()[0])
    SELECT a1.house_id, a1.household_id, a1.plug_id, a1.avg_load - a2.avg_load AS change_2
    """
    if n < 2:
        raise PenstockError(f"a join needs at least two windows, found {n}")
    changes = ", ".join(f"a{i - 1}.avg_load - a{i}.avg_load AS change_{i}" for i in range(2, n + 1))
    branches = [_BRANCH.format(p=f"p{i}", a=f"a{i}", minutes=2 * i - 1) for i in range(1, n + 1)]
    joins = [f"JOIN {branch}\n  ON {_ON.format(a=f'a{i}')}" for i, branch in enumerate(branches[1:], 2)]
    head = f"SELECT a1.house_id, a1.household_id, a1.plug_id, {changes}"
    return "\n".join([head, f"FROM {branches[0]}", *joins]) + "\n"


def smartplug(name: str) -> str:
    """A file of the smart-plug example, from the clone the command runs in."""
    path = Path(__file__).parents[2] / "examples" / "smartplug" / name
    if not path.exists():
        raise PenstockError(f"the example {name} is not beside the package; run the benches from a clone")
    return path.read_text()
