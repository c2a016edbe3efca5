"""When to greet which peer of the peer table: soon, and ever more rarely while it is silent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from random import Random  # noqa: TID251 -- the type only: the generator is passed in
from typing import Final

from dht.shares import chosen

FIRST_WAIT_S: Final = 1.0
"""Seconds after the first unanswered greeting; doubled each time."""

MAX_WAIT_S: Final = 60.0
"""Seconds between greetings of a peer that stays silent: who returns is met within a minute."""

MAX_AT_ONCE: Final = 8
"""Greetings a round: a large peer table is met over some rounds, not in one burst; and those of one
participant with many peers do not keep the others waiting."""


@dataclass(slots=True)
class _Greeted:
    next_at: float
    wait_s: float


class Meeting:
    """Chooses whom to greet. Times are seconds of any one clock."""

    def __init__(self, rng: Random, participant_of: Callable[[bytes], str]) -> None:
        self._rng = rng
        self._participant_of = participant_of
        self._greeted: dict[bytes, _Greeted] = {}

    def due(self, known: Iterable[bytes], met: Collection[bytes], now: float) -> list[bytes]:
        """Some of the known peers not met whose time has come; they count as greeted."""
        strangers = [peer for peer in known if peer not in met]
        self._greeted = {peer: self._greeted[peer] for peer in strangers if peer in self._greeted}
        ready = [peer for peer in strangers if self._is_due(peer, now)]
        self._rng.shuffle(ready)
        greeted = chosen(ready, self._participant_of, MAX_AT_ONCE)
        for peer in greeted:
            before = self._greeted.get(peer)
            wait_s = FIRST_WAIT_S if before is None else min(2 * before.wait_s, MAX_WAIT_S)
            self._greeted[peer] = _Greeted(now + wait_s, wait_s)
        return greeted

    def any_due(self, strangers: Iterable[bytes], now: float) -> bool:
        """Whether there is anybody to greet now."""
        return any(self._is_due(peer, now) for peer in strangers)

    def begins(self, strangers: Iterable[bytes], now: float) -> bool:
        """Whether any of them is yet to be greeted for the first time, or to answer that."""
        return any(
            greeted is None or (greeted.wait_s == FIRST_WAIT_S and now < greeted.next_at)
            for greeted in map(self._greeted.get, strangers)
        )

    def _is_due(self, peer: bytes, now: float) -> bool:
        greeted = self._greeted.get(peer)
        return greeted is None or greeted.next_at <= now
