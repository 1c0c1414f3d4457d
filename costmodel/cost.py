"""The cost of a plan and the order of plans (paper 001, section 5.2 and Definition 1).

Definition 1 compares two infeasible plans by their bottleneck alone and so leaves ties; here the smaller utilization
breaks them, which makes the order total up to equal costs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import total_ordering

FULL = 1.0 + 1e-9  # a unit whose parts add up to a second is full, in whatever order they are added


@total_ordering
@dataclass(frozen=True, slots=True)
class PlanCost:
    """⟨Cb, Cu⟩: the busiest unit's share of a second, and the seconds of work per second over all units.

    >>> PlanCost(0.9, 5.0) < PlanCost(1.1, 1.2)      # feasible before infeasible
    True
    >>> PlanCost(0.9, 1.0) < PlanCost(0.2, 1.5)      # both feasible: the smaller utilization
    True
    >>> PlanCost(2.0, 9.0) < PlanCost(3.0, 4.0)      # both infeasible: the smaller bottleneck
    True
    """

    bottleneck: float
    utilization: float

    @property
    def feasible(self) -> bool:
        return self.bottleneck <= FULL

    @property
    def key(self) -> tuple[float, float]:
        """Sorts as Definition 1 does: all feasible plans share one bottleneck of 1."""
        return (1.0 if self.feasible else self.bottleneck, self.utilization)

    def __lt__(self, other: PlanCost) -> bool:
        return self.key < other.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlanCost) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


NOTHING = PlanCost(0.0, 0.0)


def of_units(units: Iterable[float]) -> PlanCost:
    """Equations (5) and (6): the largest and the sum over units that each run on their own.

    >>> of_units([0.25, 0.5])
    PlanCost(bottleneck=0.5, utilization=0.75)
    """
    bottleneck = utilization = 0.0
    for u in units:
        bottleneck = max(bottleneck, u)
        utilization += u
    return PlanCost(bottleneck, utilization)
