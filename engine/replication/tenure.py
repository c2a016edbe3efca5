"""Who has a query: the peer that keeps it, and the one that takes over when that one dies."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from overlay.clock import MILLIS, latest_number
from overlay.errors import InvalidInputError


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
        fence: the highest known; one that is not believed (`latest_fence`) need not be outdone.
        now: seconds since the epoch. taker: the peer's id (hex).
    """
    if fence > latest_fence(now):
        fence = 0
    moment = max(fence // TAKERS + 1, int(now * 1000))
    return moment * TAKERS + int(taker, 16) % TAKERS


def latest_fence(now: float) -> int:
    """The greatest that the clock of any peer can have made by now, seconds since the epoch. A
    greater one is not believed: `next_fence` after it would be believed by nobody either, and so
    the query could never be another peer's again."""
    return (latest_number(now, MILLIS) + 1) * TAKERS


def check_fence(what: str, fence: int, now: float) -> None:
    """
    Raises:
        InvalidInputError: it is of the future.
    """
    if fence > latest_fence(now):
        raise InvalidInputError(
            f"{what[:256]}: fence {fence} is of the future: check the clock of who says so"
        )
