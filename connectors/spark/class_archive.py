"""Spark's classes in an archive that a JVM maps into memory instead of loading them one by one.

Loading and checking some fifteen thousand classes is most of what starting Spark takes. Java's class data sharing keeps
them as they are after that, once per installation. A JVM that finds the archive made by another Java, or for other
jars, does without it; so does one that finds none.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

OPTIONS = "spark.driver.extraJavaOptions"
_RECORD = "-XX:ArchiveClassesAtExit="


def archive() -> Path:
    """Where the archive of this Python environment is, or would be; it goes when the environment goes."""
    return Path(sys.prefix) / "share" / "penstock" / "spark-classes.jsa"


def with_archive(settings: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings, with Java told of the archive where there is one."""
    path = archive()
    if not path.exists() or _RECORD in settings.get(OPTIONS, ""):  # a JVM cannot add to an archive
        return dict(settings)
    # An archive that does not fit is no news for the user of a command.
    words = f"-XX:SharedArchiveFile={_quoted(path)} -Xshare:auto -Xlog:disable -Xlog:all=error:stderr"
    return {**settings, OPTIONS: f"{words} {settings.get(OPTIONS, '')}".strip()}


def recording(path: Path) -> str:
    """The Java option under which a JVM writes the classes it has loaded to an archive when it ends."""
    return f"{_RECORD}{_quoted(path)}"


def _quoted(path: Path) -> str:
    return f'"{path}"' if " " in str(path) else str(path)
