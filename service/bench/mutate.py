"""Seeded damage to SQL texts: what typing, pasting, generating and attacking do to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

_TOKEN = re.compile(r"'[^']*'|\"[^\"]*\"|\w+(?:\.\d+)?|\s+|.", re.DOTALL)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_NAME = re.compile(r"[A-Za-z_]\w*")
_NUMBERS = ("0", "-1", "1e308", "1e400", "1e-320", "9" * 19, "9" * 400, "0.1", "0x1F", "1_000", "٣", "1.2.3", "''")
_CHARACTERS = "'\"`;,.()[]{}<>=!+-*/%\\|&^~@#$?:_0aZ \n\t\r\x00\x1b\x7f\ufeff\u200b\u2028éß漢🔌\U000e0001\udc80"
_WORDS = (
    *(
        "SELECT",
        "FROM",
        "WHERE",
        "GROUP BY",
        "HAVING",
        "JOIN",
        "LEFT",
        "CROSS",
        "ON",
        "USING",
        "AS",
        "WITH",
        "DISTINCT",
    ),
    *("AND", "OR", "NOT", "NULL", "IN", "IS", "BETWEEN", "LIKE", "CASE", "WHEN", "THEN", "ELSE", "END", "EXISTS"),
    *("UNION", "ORDER BY", "LIMIT", "OVER", "RANGE", "ROWS", "SLIDE", "SECOND", "MINUTES", "HOP", "TUMBLE", "TABLE"),
    *("DESCRIPTOR", "INTERVAL", "window", "RSTREAM", "ISTREAM", "CREATE", "STREAM", "STATISTICS", "WATERMARK FOR"),
    *("PRIMARY KEY", "avg", "count", "max", "sum", "plugs", "weather", "houses", "ts", "value", "house_id", "TRUE"),
    *("*", "(", ")", "[", "]", ",", ".", ";", "=", "<>", "--", "/*", "*/", "'", '"', "::", "->", "=>", "||", "?"),
    *(":x", "$1", "@v", "DATE", "UNNEST", "LATERAL", "FILTER", "WITHIN GROUP", "QUALIFY", "ANY", "ALL", "ARRAY"),
)
_DEPTHS = (4, 40, 400, 4_000)
_LONG = (70, 300, 5_000, 60_000)


def mutated(rng: Random, text: str, others: Sequence[str]) -> str:
    """A text with one to four kinds of damage; `others` are spliced into it.

    Two of five texts are changed gently, in names, numbers and letters only: most of those get past the parser.
    """
    if rng.random() < 0.4:
        for _ in range(rng.choice((1, 1, 2))):
            text = rng.choice(_GENTLE)(rng, text, rng.choice((text, text, rng.choice(others))))
        return text
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        (mutation,) = rng.choices(_MUTATIONS, _WEIGHTS)
        text = mutation(rng, text, rng.choice(others))
    return text


def _words(text: str) -> list[str]:
    return _TOKEN.findall(text) or [""]


def _delete_word(rng: Random, text: str, _: str) -> str:
    words = _words(text)
    at = rng.randrange(len(words))
    return "".join(words[:at] + words[at + rng.choice((1, 1, 2, 5)) :])


def _double_word(rng: Random, text: str, _: str) -> str:
    words = _words(text)
    at = rng.randrange(len(words))
    return "".join([*words[:at], words[at], " ", *words[at:]])


def _swap_words(rng: Random, text: str, _: str) -> str:
    words = _words(text)
    a, b = rng.randrange(len(words)), rng.randrange(len(words))
    words[a], words[b] = words[b], words[a]
    return "".join(words)


def _insert_word(rng: Random, text: str, _: str) -> str:
    words = _words(text)
    at = rng.randrange(len(words) + 1)
    return "".join([*words[:at], f" {rng.choice(_WORDS)} ", *words[at:]])


def _replace_name(rng: Random, text: str, other: str) -> str:
    """By a name of the other text, so that many results still parse."""
    words, names = _words(text), _NAME.findall(other)
    places = [i for i, word in enumerate(words) if _NAME.fullmatch(word)]
    if places and names:
        words[rng.choice(places)] = rng.choice(names)
    return "".join(words)


def _replace_number(rng: Random, text: str, _: str) -> str:
    found = list(_NUMBER.finditer(text))
    if not found:
        return text
    number = rng.choice(found)
    put = rng.choice(_NUMBERS) if rng.random() < 0.5 else str(rng.randrange(1, 10 ** rng.randrange(1, 14)))
    return text[: number.start()] + put + text[number.end() :]


def _delete_characters(rng: Random, text: str, _: str) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + text[at + rng.choice((1, 1, 3)) :]


def _insert_characters(rng: Random, text: str, _: str) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(_CHARACTERS) * rng.choice((1, 1, 1, 2, 50)) + text[at:]


def _truncate(rng: Random, text: str, _: str) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] if rng.random() < 0.7 else text[at:]


def _splice(rng: Random, text: str, other: str) -> str:
    head, tail = _words(text), _words(other)
    return "".join(head[: rng.randrange(len(head) + 1)] + tail[rng.randrange(len(tail) + 1) :])


def _repeat(rng: Random, text: str, _: str) -> str:
    return rng.choice(("", ";", " UNION ", "\n")).join([text] * rng.choice((2, 2, 3, 40)))


def _move_words(rng: Random, text: str, _: str) -> str:
    words = _words(text)
    a, b = sorted((rng.randrange(len(words) + 1), rng.randrange(len(words) + 1)))
    at = rng.randrange(len(words) + 1)
    rest = words[:a] + words[b:]
    return "".join(rest[:at] + words[a:b] + rest[at:])


def _nest(rng: Random, text: str, _: str) -> str:
    """Brackets, negations or subqueries around a word or the whole, not always closed."""
    depth = rng.choice(_DEPTHS)
    before, after = rng.choice(
        (("(", ")"), ("[", "]"), ("NOT ", ""), ("-", ""), ("abs(", ")"), ("CASE WHEN ", " THEN 1 END"))
    )
    if rng.random() < 0.2:
        depth = min(depth, 400)
        return "SELECT * FROM (" * depth + text + ") AS s" * depth
    words = _words(text)
    at = rng.randrange(len(words))
    words[at] = before * depth + words[at] + after * (depth if rng.random() < 0.8 else depth - 1)
    return "".join(words)


def _lengthen(rng: Random, text: str, _: str) -> str:
    """One word, or a chain of them, of great length."""
    words = _words(text)
    places = [i for i, word in enumerate(words) if _NAME.fullmatch(word) or _NUMBER.fullmatch(word)]
    if not places:
        return text
    at, times = rng.choice(places), rng.choice(_LONG)
    link = rng.choice(("", "", " + ", " AND ", " OR ", ", ", ".", " || ", " = "))
    words[at] = link.join([words[at]] * (times if link == "" else times // 10))
    return "".join(words)


def _change_case(rng: Random, text: str, _: str) -> str:
    return rng.choice((text.upper(), text.lower(), text.swapcase(), text.title()))


_Mutation = Callable[[Random, str, str], str]
_WEIGHTED: tuple[tuple[_Mutation, int], ...] = (
    *((_delete_word, 12), (_double_word, 8), (_swap_words, 8), (_insert_word, 12), (_replace_name, 14)),
    *((_replace_number, 12), (_delete_characters, 8), (_insert_characters, 10), (_truncate, 4), (_splice, 6)),
    *((_repeat, 2), (_move_words, 6), (_nest, 2), (_lengthen, 2), (_change_case, 3)),
)
_MUTATIONS = tuple(mutation for mutation, _ in _WEIGHTED)
_WEIGHTS = tuple(weight for _, weight in _WEIGHTED)
_GENTLE = (_replace_name, _replace_name, _replace_number, _change_case)
