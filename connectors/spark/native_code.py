"""Python source text: literals, names as Spark quotes them, and chains of method calls, broken where they are long."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from keyword import iskeyword

from sqlglot.dialects.spark import Spark

_WIDTH = 100
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def quoted(name: str) -> str:
    """
    >>> quoted("value"), quoted("select"), quoted("the `b`")
    ('value', '`select`', '`the ``b```')
    """
    plain = _PLAIN.fullmatch(name) and name.upper() not in Spark.Tokenizer.KEYWORDS
    return name if plain else "`" + name.replace("`", "``") + "`"


def reference(alias: str, name: str) -> str:
    """
    >>> reference("p", "from")
    'p.`from`'
    """
    return f"{quoted(alias)}.{quoted(name)}"


def literal(text: str) -> str:
    """
    >>> print(literal("p.kind = 'a'"), literal('say "hi"'))
    "p.kind = 'a'" 'say "hi"'
    """
    written = repr(text)
    if written[0] == "'" and '"' not in text:
        return '"' + written[1:-1].replace("\\'", "'") + '"'
    return written


def dictionary(values: Mapping[str, str | float | bool]) -> str:
    """
    >>> print(dictionary({"rate": 10.0, "path": "data"}))
    {"rate": 10.0, "path": "data"}
    """
    shown = ((literal(key), literal(value) if isinstance(value, str) else repr(value)) for key, value in values.items())
    return "{" + ", ".join(f"{key}: {value}" for key, value in shown) + "}"


def free_name(wanted: str, taken: set[str]) -> str:
    """A Python name like the wanted one, which is taken from now on.

    >>> free_name("the plug", {"the_plug"}), free_name("class", set())
    ('the_plug_2', '_class')
    """
    plain = re.sub(r"\W", "_", wanted, flags=re.ASCII)
    start = plain if plain.isidentifier() and not iskeyword(plain) else f"_{plain}"
    name, count = start, 1
    while name in taken:
        count += 1
        name = f"{start}_{count}"
    taken.add(name)
    return name


def call(method: str, arguments: Sequence[str]) -> str:
    line = f".{method}({', '.join(arguments)})"
    if len(line) <= _WIDTH and "\n" not in line:
        return line
    return f".{method}(\n" + "".join(f"{indented(a)},\n" for a in arguments) + ")"


def listed(items: Sequence[str]) -> str:
    """A list; more than one item stand below each other."""
    if len(items) == 1:
        return f"[{items[0]}]"
    return "[\n" + "".join(f"{indented(item)},\n" for item in items) + "]"


def indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.split("\n"))


def statement(start: str, head: str, calls: Sequence[str]) -> str:
    """
    >>> statement("p = ", "plugs", ['.alias("p")'])
    'p = plugs.alias("p")'
    """
    line = start + head + "".join(calls)
    if len(calls) <= 1 or ("\n" not in line and len(line) <= _WIDTH):
        return line
    return f"{start}(\n" + indented("\n".join((head, *calls))) + "\n)"
