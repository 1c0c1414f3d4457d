"""Plans by the hash of what was asked; the least recently used leave first."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar

from optimizer.explain.api import Format

Request = TypeVar("Request")


def content_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Kept(Generic[Request]):
    """What was asked, and the plan in the formats it was asked in.

    Texts, not the explanation: thousands of linked objects per plan would make each full garbage collection a pause of
    hundreds of milliseconds.
    """

    request: Request
    texts: dict[Format, str] = field(default_factory=dict)


class PlanCache(Generic[Request]):
    """Shared by the threads that answer requests."""

    def __init__(self, capacity: int = 512) -> None:
        self._capacity = capacity
        self._plans: OrderedDict[str, Kept[Request]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._plans)

    def get(self, key: str) -> Kept[Request] | None:
        with self._lock:
            if key in self._plans:
                self._plans.move_to_end(key)
            return self._plans.get(key)

    def put(self, key: str, kept: Kept[Request]) -> None:
        with self._lock:
            self._plans[key] = kept
            self._plans.move_to_end(key)
            while len(self._plans) > self._capacity:
                self._plans.popitem(last=False)
