"""What we say of ourselves: that we are alive, with ever higher incarnations, or that we leave."""

from __future__ import annotations

from typing import Final

from overlay.gossip.claims import MAX_INCARNATION, Keys, Word, make_claim
from overlay.gossip.events import Persist

RESERVE: Final = 1000
"""Incarnations written down ahead: one write to disk per thousand refutations."""


class Standing:
    """Our own incarnation and our signed word for it.

    Attributes:
        claim: the latest of ours.
    """

    def __init__(self, me: bytes, keys: Keys, incarnation: int, reserved: int) -> None:
        """reserved: incarnations up to this one are written down."""
        self._me = me
        self._keys = keys
        self._reserved = reserved
        self.claim = make_claim(keys, me, Word.ALIVE, me, incarnation)

    @property
    def incarnation(self) -> int:
        return self.claim.incarnation

    @property
    def left(self) -> bool:
        return self.claim.word is Word.LEFT

    def outdo(self, incarnation: int) -> list[Persist]:
        """Say that we are alive, in an incarnation above that one; write it down first."""
        ours = min(max(incarnation, self.incarnation) + 1, MAX_INCARNATION)
        if ours > self._reserved:
            return [self.begin(ours)]
        self._say_alive(ours)
        return []

    def begin(self, incarnation: int) -> Persist:
        """Say that we are alive, in that incarnation whatever was said before; write it down
        first."""
        self._say_alive(incarnation)
        self._reserved = min(incarnation + RESERVE, MAX_INCARNATION)
        return Persist(self._reserved)

    def _say_alive(self, incarnation: int) -> None:
        self.claim = make_claim(self._keys, self._me, Word.ALIVE, self._me, incarnation)

    def leave(self) -> None:
        """Say that we stop."""
        self.claim = make_claim(self._keys, self._me, Word.LEFT, self._me, self.incarnation)
