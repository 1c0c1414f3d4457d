"""Spark's errors in one sentence for a person: the condition and its message, without the stack."""

from __future__ import annotations

import re

from pyspark.errors import PySparkException

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]\s*(.+?)(?:\s*SQLSTATE.*)?$", re.MULTILINE)
_CAUSE = re.compile(r"(?:Caused by: )?(?:java|org|com)\.[\w.$]+(?:Exception|Error): (.+)")


def cause_of(error: PySparkException | str) -> str:
    """
    >>> cause_of("Job aborted\\nSparkArithmeticException: [ARITHMETIC_OVERFLOW] overflow. SQLSTATE: 22003")
    'Spark: overflow. (ARITHMETIC_OVERFLOW)'
    """
    text = str(error)
    conditions = [m for m in _CONDITION.finditer(text) if m[1] not in _WRAPPERS]
    if conditions:
        return f"Spark: {conditions[-1][2].strip()} ({conditions[-1][1]})"
    causes = _CAUSE.findall(text)
    return f"Spark: {causes[-1] if causes else text.splitlines()[0] if text else type(error).__name__}"


_WRAPPERS = {"STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR", "FAILED_EXECUTE_UDF", "TASK_WRITE_FAILED"}
