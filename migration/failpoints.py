"""Named places in the life of a deployment where a test can end the process as a power cut would.

`PENSTOCK_FAILPOINT=after commit@3` kills the process with SIGKILL the first time batch 3 reaches that place;
`PENSTOCK_FAILPOINT=starting` at a place outside of batches. At the places named "during …" that an engine is about to
work on its own for a while, a timer kills in the midst of it.
"""

from __future__ import annotations

import os
import signal
import threading

VARIABLE = "PENSTOCK_FAILPOINT"
NAMES = (
    "claimed",
    "starting",
    "batch begins",
    "during spark job",
    "after spark state",
    "after append",
    "during eviction",
    "before commit",
    "during commit",
    "after commit",
    "during spark eviction",
    "before query",
    "during query",
    "before result",
    "during result",
    "after result",
)
# Seconds after which an engine is at work: a job takes tenths of a second, a query or a commit some milliseconds.
_LATER = {"during spark job": 0.05, "during commit": 0.0003, "during query": 0.0007}


def failpoint(name: str, batch: int | None = None) -> None:
    assert name in NAMES, name
    if os.environ.get(VARIABLE) == (name if batch is None else f"{name}@{batch}"):
        if name in _LATER:
            threading.Timer(_LATER[name], _die).start()
        else:
            _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
