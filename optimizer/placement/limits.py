"""What it means for a unit to stay within a limit, for all searches alike.

Sums of the same numbers in another order differ in their last digits; without a tolerance such a difference would
decide whether a plan whose unit is exactly full is feasible.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from optimizer.placement.problem import PlacementProblem, Units

TOLERANCE = 1e-9


def exceeds(u: float, limit: float) -> bool:
    """Is a unit over its limit, by more than rounding?

    >>> exceeds(0.1 + 0.2, 0.3), exceeds(0.31, 0.3)
    (False, True)
    """
    return u > limit * (1 + TOLERANCE)


def start_limit(problem: PlacementProblem, feasibility_check: bool) -> float:
    """The limit that units need not go below: a second per second, or the loop alone where it takes longer.

    There is none without a feasibility check, and none where Cb is Cu.
    """
    return max(1.0, problem.loop) if feasibility_check and problem.units is not Units.LOOP else inf


def bits_of(in_db: int, n: int) -> tuple[bool, ...]:
    """A placement from its bits, operator 0 the lowest.

    >>> bits_of(0b110, 4)
    (False, True, True, False)
    """
    return tuple(bool(in_db >> i & 1) for i in range(n))


def int_of(in_db: Sequence[bool]) -> int:
    """The bits of a placement.

    >>> int_of((False, True, True, False)) == 0b110
    True
    """
    return sum(1 << i for i, here in enumerate(in_db) if here)
