"""When a plan has run long enough to be measured: its first batches are slower than those of a running deployment.

Spark compiles a plan's code, then Java compiles that in two stages while it runs, and caches fill. How many batches
that takes depends on the plan and the machine, so it is watched. Gains smaller than the scatter of batches cannot be
seen that way: who measures code for the first time asks for a number of batches as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

FASTER = 0.05  # a gain smaller than this is noise


def settled(seconds: Sequence[float], last: int) -> bool:
    """Whether the last batches were no faster than as many before them, or those that there are.

    >>> settled([4.0, 2.0, 1.0, 1.0], 2), settled([4.0, 2.0, 1.0, 1.0, 1.0, 0.99], 2), settled([1.0, 1.0], 2)
    (False, True, False)
    >>> settled([2.0, 1.0, 1.0], 2), settled([1.0, 1.0, 1.0], 2)
    (False, True)
    """
    if len(seconds) <= last:
        return False
    return median(seconds[-last:]) >= (1 - FASTER) * median(seconds[-2 * last : -last])
