"""What a user can cause ends in a message and exit code 2, never in a traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console

from costmodel.profile import ProfileError
from optimizer.errors import PenstockError, SqlError


@contextmanager
def errors_for_people(name: str) -> Iterator[None]:
    try:
        yield
    except SqlError as error:
        _fail(error.render(name))
    except (PenstockError, ProfileError) as error:
        _fail(str(error))


def _fail(message: str) -> None:
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    console.print(f"error: {message}", style="red" if console.is_terminal else None)
    raise typer.Exit(2)


def read_text(path: Path, what: str) -> str:
    if str(path) == "-":
        return sys.stdin.read()
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise PenstockError(f"{what} {path} cannot be read: {reason}") from None
