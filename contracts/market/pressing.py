"""When nobody has room: which full partner to ask next to make some, and how far it may go."""

from __future__ import annotations

import math
from typing import Final

from contracts.market.config import MAX_HOPS, MarketConfig
from contracts.market.holdings import Key
from contracts.market.partners import PartnerState

FAR_RESTS: Final = 4
"""Rests, in first waits (`retry_s`), up to which an overloaded peer searches the wider
neighbourhood: two searches, as a rest is four times the one before."""


class Pressing:
    """All full partners are asked at one distance before any is asked to go farther, for every hop
    is one more move: with their shares together this is a search for the shortest way to room.

    Attributes:
        pressed: partners that were asked, and not told yet that it is no longer needed.
        hops: of the latest request. until: seconds until which those asked may take for it.
        rest_until: seconds until which nobody is asked again, for nobody could help; unless it may
            be farther than `_rested` hops.
        wake_at: seconds at which `following` may have somebody to ask; inf: it will not.
    """

    __slots__ = ("_config", "_rest", "_rested", "hops", "pressed", "rest_until", "until", "wake_at")

    def __init__(self, config: MarketConfig) -> None:
        self._config = config
        self._rest = 0.0
        self._rested = 0
        self.pressed: set[Key] = set()
        self.hops = 0
        self.until = self.rest_until = -math.inf
        self.wake_at = math.inf

    @property
    def reach(self) -> int:
        """How far to ask on our own behalf. Once that was in vain some times only partners are
        asked: there will be news when somebody farther away has room."""
        return MAX_HOPS if self._rest < FAR_RESTS * self._config.retry_s else 1

    def following(
        self, full: list[PartnerState], limit: int, now: float, *, widen: bool
    ) -> PartnerState | None:
        """The partner to ask next, with `hops`; None: nobody before `wake_at`.

        Args:
            full: the partners that could be asked. limit: hops, at most.
            widen: begin with the nearest; else whoever asked us to has done so.
        """
        if self._rested and now >= self.rest_until:
            self._rested = 0
            for state in full:
                state.pressed = 0
        pressed = min((state.pressed for state in full), default=limit)
        if pressed >= limit:
            self.wake_at = self.until if now < self.until else math.inf
            return None
        hops = max(1, min(2 * pressed, limit)) if widen else limit
        if hops != self.hops and now < self.until:
            self.wake_at = self.until
            return None
        self.hops = hops
        self.until = now + hops * self._config.press_s
        state = next(state for state in full if state.pressed < hops)
        state.pressed = hops
        return state

    def resting(self, limit: int, now: float) -> bool:
        """Whether to ask within so many hops has been in vain, not long ago."""
        return limit <= 0 or (now < self.rest_until and limit <= self._rested)

    def rest(self, limit: int, now: float, spread: float) -> None:
        """Nobody could help: begin anew after a while, a longer one each time."""
        if now >= self.rest_until:
            self._rest = min(max(4 * self._rest, self._config.retry_s), self._config.retry_most_s)
            self.rest_until = now + self._rest * spread
        self._rested = limit

    def resume(self) -> None:
        """Somebody has room, or took something, or more is at stake."""
        self._rest = 0.0
        self.rest_until = -math.inf
