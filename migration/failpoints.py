"""Named places in the life of a batch where a test can end the process as a power cut would.

`PENSTOCK_FAILPOINT=after commit@3` kills the process with SIGKILL the first time batch 3 reaches that place.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "PENSTOCK_FAILPOINT"
NAMES = (
    "batch begins",
    "after spark state",
    "after append",
    "during eviction",
    "before commit",
    "after commit",
    "before query",
    "during query",
    "before result",
    "during result",
    "after result",
)


def failpoint(name: str, batch: int) -> None:
    assert name in NAMES, name
    if os.environ.get(VARIABLE) == f"{name}@{batch}":
        os.kill(os.getpid(), signal.SIGKILL)
