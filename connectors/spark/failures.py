"""Spark's errors in one sentence for a person: the condition and its message, without the stack."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]\s*(.+?)(?:\s*SQLSTATE.*)?$", re.MULTILINE)
# Advice for people who write Spark's SQL and settings.
_ADVICE = re.compile(r"\s*(?:Use [`'\"]try_|If necessary set ).*")
_CAUSE = re.compile(r"(?:Caused by: )?(?:java|org|com)\.[\w.$]+(?:Exception|Error): (.+)")


def cause_of(error: PySparkException | Py4JError | str) -> str:
    """
    >>> cause_of("Aborted\\nSparkArithmeticException: [ARITHMETIC_OVERFLOW] overflow. Use 'try_add'. SQLSTATE: 22003")
    'Spark: overflow. (ARITHMETIC_OVERFLOW)'
    """
    text = str(error)
    conditions = [m for m in _CONDITION.finditer(text) if m[1] not in _WRAPPERS]
    causes = _CAUSE.findall(text)
    if conditions:
        told, name = _ADVICE.sub("", conditions[-1][2].strip()), conditions[-1][1]
        if name.endswith("NO_HINT") and causes:  # what is wrong with the file, which the condition only names
            told = f"{told} {causes[-1]}"
        return f"Spark: {told} ({name})"
    return f"Spark: {causes[-1] if causes else text.splitlines()[0] if text else type(error).__name__}"


_WRAPPERS = {"STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR", "FAILED_EXECUTE_UDF", "TASK_WRITE_FAILED"}
