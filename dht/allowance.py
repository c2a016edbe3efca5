"""How often one peer, or participant, may ask for something that costs: a token bucket each.
Sans-IO."""

from __future__ import annotations

from typing import Final

STORES_PER_S: Final = 50.0
"""Stores taken from one peer, in the long run. Each costs the check of a signature and a commit,
0.1 ms: so half a percent of a processor a peer. An honest peer with as many records as a
participant may have (20,000) renews 44 a second."""

STORE_BURST: Final = 1000
"""Stores taken from one peer at once: a whole hand-over, or what a peer tells when it starts."""

HAND_OVERS_PER_S: Final = 0.1
"""Newcomers of one participant that are given the records they should hold, in the long run: up to
1,000 records each, so 100 KB a second. Publishers reach the others within minutes."""

HAND_OVER_BURST: Final = 20
"""And at once: all peers of a large participant start again after a power cut."""


class Allowances:
    """`burst` at once, refilled at `per_s` a second; `now` is seconds of any one clock.

    A bucket that is full again is as good as an unused one, and forgotten: no more are kept than
    there were askers lately.
    """

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s = per_s
        self._burst = burst
        self._spent: dict[bytes, tuple[float, float]] = {}  # and when it was so much

    def take(self, peer_id: bytes, now: float) -> bool:
        """Whether this peer (or participant) may, once more."""
        self._forget_full(now)
        spent = self._spent_by(peer_id, now) + 1
        if spent > self._burst:
            return False
        # to the end: who asked longest ago is looked at first
        self._spent.pop(peer_id, None)
        self._spent[peer_id] = spent, now
        return True

    def __len__(self) -> int:
        return len(self._spent)

    def _spent_by(self, peer_id: bytes, now: float) -> float:
        spent, at = self._spent.get(peer_id, (0.0, now))
        return max(0.0, spent - (now - at) * self._per_s)

    def _forget_full(self, now: float) -> None:
        while self._spent and not self._spent_by(oldest := next(iter(self._spent)), now):
            del self._spent[oldest]
