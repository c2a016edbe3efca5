"""Deadlines under keys, in a heap: each operation takes O(log n)."""

from __future__ import annotations

import heapq
import math
from typing import Generic, TypeVar

K = TypeVar("K")


class Timers(Generic[K]):
    """At most one deadline for each key. Cancelled and moved ones stay in the heap until they come
    up."""

    def __init__(self) -> None:
        self._due: dict[K, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._count = 0

    def set(self, key: K, at: float) -> None:
        """Set the key's one deadline, in place of any earlier one."""
        self._count += 1
        self._due[key] = (at, self._count)
        heapq.heappush(self._heap, (at, self._count, key))

    def cancel(self, key: K) -> None:
        self._due.pop(key, None)

    def next_due(self) -> float:
        """The earliest deadline; infinity if there is none."""
        self._trim()
        return self._heap[0][0] if self._heap else math.inf

    def pop(self, now: float) -> K | None:
        """Remove and return a key whose deadline has come; None if there is none."""
        if self.next_due() > now:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._due[key]
        return key

    def _trim(self) -> None:
        while self._heap:
            at, number, key = self._heap[0]
            if self._due.get(key) == (at, number):
                return
            heapq.heappop(self._heap)
