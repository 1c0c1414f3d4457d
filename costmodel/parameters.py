"""The numbers of a profile by name, and what each of them is multiplied by in a cost.

Every cost of the model is a sum of profile numbers times rates and sizes. So the factor of a number is what the cost
comes to when that number is 1 and all others are 0, whatever the cost is made of: a calibration needs no second copy of
the model's formulas, and fits whatever form the model has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from costmodel.profile import CalibrationProfile

T = TypeVar("T")


def parameters(profile: CalibrationProfile) -> dict[str, float]:
    """Every number by its path.

    >>> from costmodel.profile import default_profile
    >>> [name for name in parameters(default_profile()) if name.startswith("duckdb.send")]
    ['duckdb.send.fixed', 'duckdb.send.row', 'duckdb.send.byte']
    """
    found = dict(_flat(profile.spe, "spe"))
    for name, costs in profile.databases.items():
        found |= _flat(costs, name)
    return found


def _flat(value: Any, path: str) -> Iterable[tuple[str, float]]:
    if is_dataclass(value) and not isinstance(value, type):
        for f in fields(value):
            yield from _flat(getattr(value, f.name), f"{path}.{f.name}")
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}")
    else:
        yield path, float(value)


def with_parameters(profile: CalibrationProfile, values: Mapping[str, float]) -> CalibrationProfile:
    """The profile with some numbers replaced."""
    spe = _changed(profile.spe, "spe", values)
    databases = {name: _changed(costs, name, values) for name, costs in profile.databases.items()}
    return replace(profile, spe=spe, databases=databases)


def _changed(value: T, path: str, values: Mapping[str, float]) -> T:
    if is_dataclass(value) and not isinstance(value, type):
        parts = {f.name: _changed(getattr(value, f.name), f"{path}.{f.name}", values) for f in fields(value)}
        return cast(T, type(value)(**parts))
    if isinstance(value, dict):
        return cast(T, {key: _changed(inner, f"{path}.{key}", values) for key, inner in value.items()})
    return cast(T, values.get(path, value))


def factors(
    cost: Callable[[CalibrationProfile], float], profile: CalibrationProfile, names: Iterable[str]
) -> dict[str, float]:
    """By which factor each of these numbers goes into a cost; those that do not are left out."""
    nothing = with_parameters(profile, dict.fromkeys(parameters(profile), 0.0))
    found = {name: cost(with_parameters(nothing, {name: 1.0})) for name in names}
    return {name: factor for name, factor in found.items() if factor}
