"""Pings sent for others."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

MAX_RELAYS: Final = 1024
"""Pings under way for others: a peer asks for few at a time, so more is a flood."""

MAX_RELAYS_PER_ASKER: Final = 32
"""For one of them: its probe in turn, and those of many connections that broke at once."""


@dataclass(frozen=True, slots=True)
class Relay:
    """asker: who asked, under its `number`, to ping `peer`."""

    asker: bytes
    number: int
    peer: bytes


class Relays:
    """By the number of our own ping."""

    def __init__(self) -> None:
        self._relays: dict[int, Relay] = {}
        self._asked: Counter[bytes] = Counter()

    def add(self, number: int, relay: Relay) -> bool:
        """Whether there was room."""
        full = len(self._relays) >= MAX_RELAYS
        if full or self._asked[relay.asker] >= MAX_RELAYS_PER_ASKER:
            return False
        self._relays[number] = relay
        self._asked[relay.asker] += 1
        return True

    def get(self, number: int) -> Relay | None:
        return self._relays.get(number)

    def answered(self, number: int, by: bytes) -> Relay | None:
        """Whom to tell that its peer answered; forgotten with it."""
        relay = self._relays.get(number)
        if relay is None or relay.peer != by:
            return None
        self.forget(number)
        return relay

    def forget(self, number: int) -> None:
        relay = self._relays.pop(number, None)
        if relay is not None:
            self._asked[relay.asker] -= 1
            if not self._asked[relay.asker]:
                del self._asked[relay.asker]
