"""Who has a query: the peer that keeps it, and the one that takes over when that one dies."""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class Tenure(Struct, frozen=True):
    """
    Attributes:
        fence: grows with every takeover; who has a lower one is not to be believed any more.
        primary, secondary: peer ids (hex); "": none, or not yet written down.
    """

    fence: int = 0
    primary: str = ""
    secondary: str = ""

    @property
    def rank(self) -> tuple[int, str]:
        """A total order, so that all peers believe the same of two that hold one fence."""
        return self.fence, self.primary

    def succeeds(self, other: Tenure) -> bool:
        return self.rank > other.rank


TAKERS: Final = 1024
"""Fences of one millisecond."""


def next_fence(fence: int, now: float, taker: str) -> int:
    """Greater than any before, also of a query of that name deleted long ago; and hardly ever that
    of another peer which takes the query in the same moment.

    Args:
        now: seconds since the epoch. taker: the peer's id (hex).
    """
    moment = max(fence // TAKERS + 1, int(now * 1000))
    return moment * TAKERS + int(taker, 16) % TAKERS
