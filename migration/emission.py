"""ISTREAM and DSTREAM of a slide-driven query: what came into the result, or left it, since the tick before."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from optimizer.algebra import Emission


def changes(result: pa.Table, ticks: Sequence[datetime], emission: Emission) -> pa.Table:
    """The differences of the relations at neighbouring ticks, as bags; the first tick only serves to compare with."""
    name = result.column_names[0]
    at: dict[datetime, Counter[tuple[Any, ...]]] = {tick: Counter() for tick in ticks}
    for row in result.to_pylist(maps_as_pydicts=None):
        at[row[name]][tuple(row[c] for c in result.column_names[1:])] += 1
    found: list[tuple[Any, ...]] = []
    for before, now in itertools.pairwise(ticks):
        gone, come = (before, now) if emission is Emission.DSTREAM else (now, before)
        found += [(now, *row) for row in (at[gone] - at[come]).elements()]
    columns = list(zip(*found, strict=True)) if found else [()] * len(result.schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, result.schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=result.schema)
