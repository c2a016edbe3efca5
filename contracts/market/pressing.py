"""Pressing: when no partner has room, chooses the next full partner that is asked to make room, and
the number of hops."""

from __future__ import annotations

import math
from random import Random  # noqa: TID251 - the type only: the generator is passed in
from typing import Final

from medusa.contracts.market.config import MAX_HOPS, MarketConfig
from medusa.contracts.market.holdings import Key
from medusa.contracts.market.partners import PartnerState

FAR_SEARCHES: Final = 2
"""Failed searches beyond its partners after which an overloaded peer asks its partners only."""


class Pressing:
    """Asks full partners to make room, all at one distance before any at a greater one: every hop
    is one more move. Together with their own searches this finds the shortest way to room.

    Attributes:
        pressed: partners that were asked, and that do not yet know that the room is no longer
            needed.
        hops: the distance of the latest request. until: seconds until which its answers are
            awaited.
        rest_until: seconds until which nobody is asked again, because nobody could help; farther
            requests than `_rested` hops are allowed.
        wake_at: seconds at which `following` may name a partner again; inf: it names none.
    """

    __slots__ = (
        "_config",
        "_rested",
        "_waits",
        "hops",
        "pressed",
        "rest_until",
        "until",
        "wake_at",
    )

    def __init__(self, config: MarketConfig) -> None:
        self._config = config
        self._waits = config.waits()
        self._rested = 0
        self.pressed: set[Key] = set()
        self.hops = 0
        self.until = self.rest_until = -math.inf
        self.wake_at = math.inf

    @property
    def reach(self) -> int:
        """Over how many hops this peer asks others to make room for its own tasks. After some
        failed searches it asks only its partners: they will pass on the news when a farther peer
        has room."""
        return MAX_HOPS if self._waits.failures < FAR_SEARCHES else 1

    def following(
        self, full: list[PartnerState], limit: int, now: float, *, widen: bool
    ) -> PartnerState | None:
        """The partner to ask next, with `hops`; None: nobody before `wake_at`.

        Args:
            full: the partners that could be asked.
            limit: hops, at most.
            widen: begin with the nearest; not for another peer's need, because that peer widens its
                own search.
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
        """Whether a request within `limit` hops has failed recently."""
        return limit <= 0 or (now < self.rest_until and limit <= self._rested)

    def rest(self, limit: int, now: float, rng: Random) -> None:
        """Pause because no partner could help; each pause is longer than the one before."""
        if now >= self.rest_until:
            self.rest_until = now + self._waits.failed(rng)
        self._rested = limit

    def resume(self) -> None:
        """End the pause: a partner has room or took a task, or the need has grown."""
        self._waits.succeeded()
        self.rest_until = -math.inf
