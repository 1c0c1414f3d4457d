"""Profile numbers from measurements: least squares on the relative error, none of them negative.

A measurement is a time and the factors by which profile numbers go into it. A time that is twice another must not count
twice as much, so each line is divided by its time. Numbers that no measurement asks for keep the value they had; those
that the measurements hardly tell apart are drawn to it, with the weight of one measurement in thirty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

PULL = 1 / 30  # of a number's old value, in measurements
_LEAST = 1e-12  # a number that was 0 has no scale of its own


@dataclass(frozen=True, slots=True)
class Measurement:
    """Seconds, of a part of the work (`kind`) in one experiment (`what`)."""

    kind: str
    what: str
    seconds: float
    factors: Mapping[str, float]

    def estimate(self, values: Mapping[str, float]) -> float:
        return sum(factor * values[name] for name, factor in self.factors.items())


@dataclass(frozen=True, slots=True)
class Residual:
    """How far the fitted numbers are from one measurement: estimate over measured."""

    measurement: Measurement
    ratio: float

    @property
    def q_error(self) -> float:
        return max(self.ratio, 1 / self.ratio) if self.ratio > 0 else float("inf")


def fit(measurements: Sequence[Measurement], known: Mapping[str, float]) -> dict[str, float]:
    """The numbers that the measurements are about; `known` has what they were.

    >>> told = [Measurement("m", "a", 2.0, {"x": 1.0, "y": 1.0}), Measurement("m", "b", 3.0, {"x": 1.0, "y": 2.0})]
    >>> found = fit(told, {"x": 1.0, "y": 1.0})
    >>> round(found["x"], 2), round(found["y"], 2)
    (1.0, 1.0)
    """
    names = sorted({name for m in measurements for name in m.factors})
    if not names:
        return {}
    # In units of the old values, so that seconds and nanoseconds weigh the same.
    scale = np.array([max(known[name], _LEAST) for name in names])
    rows = np.array([[m.factors.get(name, 0.0) / m.seconds for name in names] for m in measurements]) * scale
    pull = np.sqrt(PULL) * np.eye(len(names))
    found, _ = nnls(
        np.vstack([rows, pull]), np.concatenate([np.ones(len(measurements)), np.full(len(names), PULL**0.5)])
    )
    return {name: float(value) for name, value in zip(names, found * scale, strict=True)}


def residuals(measurements: Sequence[Measurement], values: Mapping[str, float]) -> list[Residual]:
    return [Residual(m, m.estimate(values) / m.seconds) for m in measurements]
