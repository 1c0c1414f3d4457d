"""A PostgreSQL to measure on: at the address given, or one of our own for as long as the command runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from warnings import catch_warnings, filterwarnings

from optimizer.errors import PenstockError


def available() -> bool:
    """Whether one of our own can be started: pgserver is an extra."""
    return find_spec("pgserver") is not None


@contextmanager
def postgres(url: str | None) -> Iterator[str]:
    if url is not None:
        yield url
        return
    if not available():
        raise PenstockError(
            "measuring on PostgreSQL needs a server: give its address with --url, leave it out with --db duckdb, or "
            "pip install pgserver"
        )
    with catch_warnings():
        filterwarnings("ignore", message="XDG_RUNTIME_DIR")  # a directory under /tmp does as well
        import pgserver  # an extra

    server = pgserver.get_server(Path(mkdtemp(prefix="penstock-pg-")), cleanup_mode="delete")
    try:
        yield str(server.get_uri())
    finally:
        server.cleanup()
