"""What the trials of a query's placements say of the optimizer's decisions: verdicts, regrets, misses.

A *verdict* is right if the model and the measurement agree on whether a plan keeps up. u grows with the rate, so a plan
that keeps up with more keeps up here, and one that fails below fails here: such verdicts rest on a bound. *Regret* is
how many times worse the picked plan is than the best one measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.bench.curve import Basis, Point, Reading

UNDECIDED = 0.05  # u this close to 1 is as good as 1


@dataclass(frozen=True)
class Measured:
    """A placement at a rate."""

    plan: str
    in_spark: tuple[str, ...]
    how: str
    predicted: float  # u
    u: float | None  # not measured: the budget did not reach
    basis: Basis  # at least: given up, or failing at a lower rate; at most: keeping up with a higher one
    picked: bool
    pure: bool = False  # all in Spark, or all in the database

    @property
    def undecided(self) -> bool:
        return self.u is not None and abs(self.u - 1.0) <= UNDECIDED and self.basis is Basis.MEASURED

    @property
    def right(self) -> bool | None:
        """Whether model and measurement agree; None where the measurement does not tell."""
        if self.u is None:
            return None
        if (self.basis is Basis.AT_LEAST and self.u <= 1.0) or (self.basis is Basis.AT_MOST and self.u > 1.0):
            return None
        return (self.predicted <= 1.0) == (self.u <= 1.0)


def reading(points: Sequence[Point], rate: float) -> tuple[float | None, Basis]:
    """u of a plan at a rate: as measured, or bounded by what it does at other rates.

    >>> reading([Point(1000, 0.2), Point(4000, 0.8)], 2000)
    (0.8, <Basis.AT_MOST: 'at most'>)
    >>> reading([Point(1000, 1.2)], 2000), reading([Point(1000, 0.2)], 2000)
    ((1.2, <Basis.AT_LEAST: 'at least'>), (None, <Basis.MEASURED: 'measured'>))
    """
    here = next((p for p in points if p.rate == rate), None)
    if here is not None:
        return here.u, Basis.AT_LEAST if here.censored else Basis.MEASURED
    failing = max((p for p in points if p.rate < rate and p.u > 1.0), key=lambda p: p.rate, default=None)
    if failing is not None:
        return failing.u, Basis.AT_LEAST
    keeping = [p for p in points if p.rate > rate and p.u <= 1.0 and not p.censored]
    if keeping:
        return min(keeping, key=lambda p: p.rate).u, Basis.AT_MOST
    return None, Basis.MEASURED


@dataclass(frozen=True)
class AtRate:
    """`pure_regret` is against the better of all in Spark and all in the database."""

    rate: float
    placements: tuple[Measured, ...]
    regret: float | None  # in u
    best: tuple[str, ...] | None  # operators in Spark of the best plan measured
    pure_regret: float | None


@dataclass(frozen=True)
class Maximum:
    plan: str
    in_spark: tuple[str, ...]
    maximum: Reading
    picked: bool


@dataclass(frozen=True)
class Case:
    query: str
    database: str
    complete: bool  # all placements, or a sample
    rates: tuple[AtRate, ...]
    throughput_regret: float | None  # maxima interpolated from the measured rates
    maxima: tuple[Maximum, ...]


@dataclass(frozen=True)
class Decision:
    cases: tuple[Case, ...]
    measured: int
    right: int
    decided: int  # verdicts that could be compared
    undecided: int  # of those, with u within 5 % of 1
    misses: tuple[str, ...]
    left_out: tuple[str, ...]


def at_rate(rate: float, rows: Sequence[Measured]) -> AtRate:
    exact = [r for r in rows if r.u is not None and r.basis is Basis.MEASURED]
    picked = next((r.u for r in rows if r.picked and r.u is not None and r.basis is not Basis.AT_MOST), None)
    best = min(exact, key=lambda r: r.u or 0.0, default=None)
    pure = min((r.u for r in exact if r.pure and r.u), default=None)
    regret = picked / best.u if picked and best and best.u else None
    against_pure = picked / pure if picked and pure else None
    return AtRate(rate, tuple(rows), regret, best.in_spark if best else None, against_pure)


def throughput_regret(maxima: Sequence[Maximum]) -> float | None:
    """How many times more tuples the best plan sustains; 1 where the picked one is the best.

    None where that is not known: a picked plan that keeps up as far as it was looked at may be as good as any other.

    >>> def of(value, basis, picked): return Maximum("p", (), Reading(value, basis), picked)
    >>> throughput_regret([of(2e4, Basis.INTERPOLATED, True), of(3e4, Basis.AT_LEAST, False)])
    1.5
    >>> throughput_regret([of(2e4, Basis.AT_LEAST, True), of(3e4, Basis.AT_LEAST, False)]) is None
    True
    """
    picked = max((m.maximum for m in maxima if m.picked), key=lambda top: top.value, default=None)
    if picked is None:
        return None
    best = max(m.maximum.value for m in maxima if m.maximum.basis is not Basis.AT_MOST or m.picked)
    if picked.basis is Basis.AT_LEAST and best > picked.value:
        return None
    return best / picked.value


def summary(cases: Sequence[Case], left_out: tuple[str, ...]) -> Decision:
    rows = [(case, at, m) for case in cases for at in case.rates for m in at.placements]
    decided = [(case, at, m) for case, at, m in rows if m.right is not None]
    signs = {Basis.AT_LEAST: "≥ ", Basis.AT_MOST: "≤ "}
    misses = []
    for case, at, m in decided:
        if not m.right:
            close = " (undecided)" if m.undecided else ""
            where = ", ".join(m.in_spark) or "nothing"
            misses.append(
                f"{case.query} {case.database} {at.rate:,.0f}/s, in Spark {where}: "
                f"predicted {m.predicted:.2f}, measured {signs.get(m.basis, '')}{m.u:.2f}{close}"
            )
    return Decision(
        tuple(cases),
        sum(m.u is not None for _, _, m in rows),
        sum(bool(m.right) for _, _, m in decided),
        len(decided),
        sum(m.undecided for _, _, m in decided),
        tuple(misses),
        left_out,
    )
