"""Text to sqlglot expressions, with every failure turned into one kind of error that has a position."""

from __future__ import annotations

import re

from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError, TokenError

from optimizer.errors import Position, SqlError, position_at
from optimizer.sql.dialect import Penstock

MAX_TEXT = 200_000
MAX_NODES = 20_000
_SURROGATE = re.compile("[\ud800-\udfff]")
SELECT_FORM = "SELECT column, … FROM stream [RANGE 5 MINUTES SLIDE 1 SECOND] WHERE … GROUP BY …"
TOO_DEEP = "the text is nested too deeply"


def parse_statements(text: str) -> list[exp.Expr]:
    """The statements of a text, comments and empty ones left out.

    >>> [type(s).__name__ for s in parse_statements("SELECT 1; -- done")]
    ['Select']
    """
    if len(text) > MAX_TEXT:
        message = f"the text has {len(text)} characters, more than the {MAX_TEXT} that are read"
        raise SqlError(message, text, None, "a shorter text; views belong into separate queries")
    if half := _SURROGATE.search(text):
        raise SqlError("the text is not valid Unicode", text, position_at(text, half.start()), "text in UTF-8")
    try:
        parsed = Penstock().parse(text, error_level=ErrorLevel.IMMEDIATE, max_nodes=MAX_NODES)
    except ParseError as error:
        raise _located(error, text) from None
    except TokenError as error:
        start = len(text) if error.end is None else error.end
        message = "a quote, a comment or a character could not be read"
        raise SqlError(message, text, position_at(text, max(start - 1, 0)), "close every ' and \" and /*") from None
    except RecursionError:
        raise SqlError(TOO_DEEP, text, position_at(text, 0), "fewer nested parentheses or subqueries") from None
    except (SqlglotError, ValueError, TypeError, AttributeError, KeyError, IndexError, AssertionError) as error:
        # sqlglot fails on a few malformed texts with an error of its own code instead of a ParseError.
        message = f"the text could not be read as SQL ({type(error).__name__})"
        raise SqlError(message, text, position_at(text, 0), "one SELECT statement") from None
    return [s for s in parsed if s is not None and not isinstance(s, exp.Semicolon)]


def parse_predicate(text: str) -> exp.Expr:
    """A condition on its own, as `predicate_text` writes it.

    >>> predicate_text(parse_predicate('"plugs"."property" = 1'))
    '"plugs"."property" = 1'
    """
    found = parse_statements(f"SELECT 1 WHERE {text}")
    where = found[0].args.get("where") if len(found) == 1 else None
    if where is None or len(found[0].args["expressions"]) != 1:
        raise SqlError("a condition is missing", text, position_at(text, 0), "column = 1")
    condition: exp.Expr = where.this
    return condition.pop()


def predicate_text(predicate: exp.Expr) -> str:
    return predicate.sql(dialect=Penstock)


def _located(error: ParseError, text: str) -> SqlError:
    first = error.errors[0] if error.errors else {}
    message = str(first.get("description") or error).split("\n")[0].rstrip(".")
    start = first.get("start")
    position = position_at(text, start, first.get("end")) if isinstance(start, int) else position_at(text, len(text))
    found = text[position.start : position.end]
    if message.startswith("Required keyword"):  # sqlglot names its own classes here
        message = f"something is missing at '{found[:40]}'"
    elif found and found not in message and ", found " not in message:
        message = f"{message}, found '{found[:40]}'"
    return SqlError(message, text, position, str(first.get("form", "")) or SELECT_FORM)


def position_of(node: exp.Expr, text: str) -> Position | None:
    """Where a node stands: the first of its parts whose offsets the parser kept.

    A column's qualifier does not count: where binding added it, it has the offsets of the relation's alias.
    """
    parts = (n for n in node.walk() if not (isinstance(n.parent, exp.Column) and n.arg_key == "table"))
    spans = [(n.meta["start"], n.meta["end"]) for n in parts if isinstance(n.meta.get("start"), int)]
    return position_at(text, min(spans)[0], min(spans)[1] + 1) if spans else None


def refused(message: str, node: exp.Expr, text: str, hint: str) -> SqlError:
    """The error that refuses a node: what was found, where it stands, and what to write."""
    return SqlError(message, text, position_of(node, text), hint)
