"""Who has a query: the peer that keeps it, and the one that takes over when that one dies."""

from __future__ import annotations

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


def next_fence(fence: int, now: float) -> int:
    """Greater than any before, also of a query of that name deleted long ago. now: seconds since
    the epoch."""
    return max(fence + 1, int(now * 1000))
