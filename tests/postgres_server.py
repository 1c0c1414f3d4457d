"""A real PostgreSQL for tests: the one that PENSTOCK_TEST_POSTGRES names, else one of our own, once per process."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pgserver


@cache
def postgres_url() -> str:
    """The URL of a server that runs until this process exits."""
    if given := os.environ.get("PENSTOCK_TEST_POSTGRES"):
        return given
    # pgserver stops the server and removes its directory at exit.
    return str(pgserver.get_server(Path(mkdtemp(prefix="penstock-pg-")), cleanup_mode="delete").get_uri())
