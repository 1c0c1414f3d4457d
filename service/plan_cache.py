"""Plans by the hash of what was asked; the least recently used leave first."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from threading import Lock

from optimizer.explain.explanation import Explanation


def content_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class PlanCache:
    """Shared by the threads that answer requests."""

    def __init__(self, capacity: int = 512) -> None:
        self._capacity = capacity
        self._plans: OrderedDict[str, Explanation] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._plans)

    def get(self, key: str) -> Explanation | None:
        with self._lock:
            if key in self._plans:
                self._plans.move_to_end(key)
            return self._plans.get(key)

    def put(self, key: str, explanation: Explanation) -> None:
        with self._lock:
            self._plans[key] = explanation
            self._plans.move_to_end(key)
            while len(self._plans) > self._capacity:
                self._plans.popitem(last=False)
