"""Which machine this is, in one line: a profile says where it was measured, and another machine has other costs."""

from __future__ import annotations

import os
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_ENGINES = ("pyspark", "duckdb")


@cache
def fingerprint() -> str:
    """What the hardware is, then after a semicolon the versions of the engines."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    hardware = [f"{os.cpu_count()} cores", f"{memory:.0f} GiB", platform.machine(), _processor()]
    return f"{', '.join(filter(None, hardware))}; {', '.join(filter(None, map(_version, _ENGINES)))}"


def _processor() -> str:
    """The processor by its model name; commas and semicolons part the fingerprint."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    name = next((line.partition(":")[2] for line in lines if line.startswith("model name")), platform.processor())
    return " ".join(name.replace(",", " ").replace(";", " ").split())


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return ""


def hardware(machine: str) -> str:
    """
    >>> hardware("2 cores, 24 GiB, x86_64; pyspark 4.3.0, duckdb 2.0.0")
    '2 cores, 24 GiB, x86_64'
    """
    return machine.partition(";")[0].strip()


def other_versions(machine: str, here: str) -> list[str]:
    """The engines that have another version here.

    >>> other_versions("2 cores; pyspark 4.3.0, duckdb 2.0.0", "2 cores; pyspark 4.3.1, duckdb 2.0.0")
    ['pyspark 4.3.1 instead of 4.3.0']
    """
    was, now = _versions(machine), _versions(here)
    return [f"{name} {now[name]} instead of {was[name]}" for name in now if was.get(name, now[name]) != now[name]]


def _versions(machine: str) -> dict[str, str]:
    words = [part.split() for part in machine.partition(";")[2].split(",")]
    return {pair[0]: pair[1] for pair in words if len(pair) == 2}
