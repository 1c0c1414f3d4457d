"""What-if arguments as people type them: `plugs=20000`, `agg1=db`, `plugs=1000..40000`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import isfinite

from optimizer.engines import DATABASES
from optimizer.errors import HintError
from optimizer.explain.explanation import SweepRange
from optimizer.physical import Where


def parse_rates(given: Iterable[str]) -> dict[str, float]:
    """
    >>> parse_rates(["plugs=20k"])
    {'plugs': 20000.0}
    """
    return {name: _number(value, f"--rate {name}={value}") for name, value in parse_pairs(given, "--rate plugs=20000")}


def parse_force(given: Iterable[str]) -> dict[str, Where]:
    """
    >>> parse_force(["agg1=db"])
    {'agg1': <Where.DB: 'db'>}
    """
    engines = {"spe": Where.SPE, "spark": Where.SPE, "db": Where.DB} | dict.fromkeys(DATABASES, Where.DB)
    found = {}
    for name, value in parse_pairs(given, "--force agg1=db"):
        if value not in engines:
            raise HintError(f"--force {name}={value}: the engine is spe or db")
        found[name] = engines[value]
    return found


def parse_sweep(given: str) -> SweepRange:
    """
    >>> parse_sweep("plugs=1k..40k")
    SweepRange(stream='plugs', low=1000.0, high=40000.0)
    """
    ((name, value),) = parse_pairs([given], "--sweep plugs=1000..40000")
    low, dots, high = value.partition("..")
    if not dots or high.startswith("."):
        raise HintError(f"--sweep {given}: write --sweep plugs=1000..40000")
    return SweepRange(name, _number(low, f"--sweep {given}"), _number(high, f"--sweep {given}"))


def parse_pairs(given: Iterable[str], form: str) -> list[tuple[str, str]]:
    found = []
    for item in given:
        name, equals, value = item.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise HintError(f"{item!r} is not name=value; write {form}")
        found.append((name.strip(), value.strip()))
    return found


def _number(text: str, where: str) -> float:
    scale = {"k": 1e3, "m": 1e6}.get(text[-1:].lower(), 1.0)
    digits = text[:-1] if scale > 1 else text
    try:
        value = float(digits.replace(",", "").replace("_", "")) * scale
    except ValueError:
        value = float("nan")
    if not isfinite(value) or value <= 0:
        raise HintError(f"{where}: {text!r} is not a positive number")
    return value


def parse_seconds(text: str, option: str) -> float:
    """
    >>> parse_seconds("90s", "--for"), parse_seconds("1.5m", "--for"), parse_seconds("500ms", "--trigger")
    (90.0, 90.0, 0.5)
    """
    matched = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)?\s*", text)
    if matched is None:
        raise HintError(f"{option} is a time such as 500ms, 60s, 5m or 1h, found {text!r}")
    return float(matched[1]) * {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}[matched[2] or "s"]
