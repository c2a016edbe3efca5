from __future__ import annotations

from collections import deque
from typing import Final

MAX_PASSED: Final = 512
"""Boundaries whose time is remembered: more than the keep-ups of a long bound."""


class Lag:
    """How long one peer has had tuples that another has not, by the clock and not by stime."""

    def __init__(self) -> None:
        self._passed: deque[tuple[int, float]] = deque(maxlen=MAX_PASSED)

    def note(self, boundary: int, now: float) -> None:
        """Note our boundary, microseconds. now: on any clock, seconds; the same for all calls."""
        if not self._passed or self._passed[-1][0] < boundary:
            self._passed.append((boundary, now))

    def over(self, boundary: int, now: float) -> float:
        """How long we have had tuples after `boundary`, the other peer's, seconds; 0.0: we have
        none. It does not go back: boundaries that the other has had are forgotten."""
        while self._passed and self._passed[0][0] <= boundary:
            self._passed.popleft()
        return now - self._passed[0][1] if self._passed else 0.0
