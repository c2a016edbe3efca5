"""Who accuses how often: an honest peer probes one peer at a time, so its accusations are few."""

from __future__ import annotations

from typing import Final

BURST: Final = 32.0
"""Accusations of one peer at once: all connections of a machine that stopped break together."""

MAX_ACCUSERS: Final = 4096
"""Peers whose accusations are counted; beyond that the one counted longest is forgotten."""


class Budgets:
    """A token bucket for each author of accusations that would start a suspicion."""

    def __init__(self, refill_s: float) -> None:
        """refill_s: seconds in which one more accusation is earned."""
        self._refill_s = refill_s
        self._buckets: dict[bytes, tuple[float, float]] = {}

    def spend(self, author: bytes, now: float) -> bool:
        """Whether it may accuse once more now."""
        tokens, since = self._buckets.pop(author, (BURST, now))
        tokens = min(BURST, tokens + (now - since) / self._refill_s)
        allowed = tokens >= 1
        self._buckets[author] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > MAX_ACCUSERS:
            del self._buckets[next(iter(self._buckets))]
        return allowed
