"""Errors that reach a person: what was found, where, and the form to write instead."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    """A span of the text, 1-based line and column of its first character."""

    line: int
    column: int
    start: int
    end: int  # one past the last character


def position_at(text: str, start: int, end: int | None = None) -> Position:
    """
    >>> position_at("SELECT a\\nFROM b", 14)
    Position(line=2, column=6, start=14, end=15)
    """
    start = max(0, min(start, len(text)))
    line = text.count("\n", 0, start) + 1
    column = start - (text.rfind("\n", 0, start) + 1) + 1
    return Position(line, column, start, max(start + 1, start + 1 if end is None else end))


class PenstockError(Exception):
    """The base of every error a user can cause."""


class SqlError(PenstockError):
    """A query or catalog text that cannot be accepted."""

    def __init__(self, message: str, text: str = "", position: Position | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.text = text
        self.position = position
        self.hint = hint

    @property
    def found(self) -> str:
        """The words of the text that the error is about."""
        if self.position is None:
            return ""
        return self.text[self.position.start : self.position.end].split("\n")[0][:80]

    def render(self, name: str = "query") -> str:
        """The message as a compiler would print it, with the line and a caret under what was found."""
        where = f":{self.position.line}:{self.position.column}" if self.position else ""
        lines = [f"{name}{where}: {self.message}"]
        if self.position:
            source = (self.text.split("\n") or [""])[self.position.line - 1].replace("\t", " ")
            # A very long line is cut around the place, so that the caret stays in view.
            first = max(0, self.position.column - 1 - 60)
            lines.append("  " + source[first : first + 120])
            lines.append("  " + " " * (self.position.column - 1 - first) + "^" * max(1, min(len(self.found), 60)))
        if self.hint:
            lines.append(f"write: {self.hint}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.render()


class HintError(PenstockError):
    """A hint that cannot hold, or an override of something that is not there."""
