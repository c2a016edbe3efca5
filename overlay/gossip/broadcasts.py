"""What is passed on by riding on packets: each item so many times, fewest-sent first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from overlay.gossip.messages import PER_ITEM

MAX_ITEMS: Final = 4096
"""Items waiting, some 0.5 MB: news beyond that is lost here, and found by push-pull."""

MAX_LOOKS: Final = 32
"""Items looked at for a packet: those that do not fit must not make each packet scan them all."""

K = TypeVar("K")


class Broadcasts(Generic[K]):
    """Items under keys; a newer item of a key takes the older one's place. Costs nothing per item
    that is not sent."""

    def __init__(self, limit: Callable[[], int]) -> None:
        """limit: how often an item is sent, asked anew each time."""
        self._limit = limit
        self._sent: dict[K, int] = {}
        self._levels: list[dict[K, bytes]] = [{}]

    def __len__(self) -> int:
        return len(self._sent)

    def put(self, key: K, item: bytes) -> None:
        """Send this, from now on and as if it were new."""
        self.drop(key)
        if len(self._sent) >= MAX_ITEMS:
            self._drop_most_sent()
        self._sent[key] = 0
        self._levels[0][key] = item

    def drop(self, key: K) -> None:
        """Do not send that any more."""
        times = self._sent.pop(key, None)
        if times is not None:
            del self._levels[times][key]

    def take(self, room: int) -> tuple[list[bytes], int]:
        """Items for one packet of so many bytes, and the bytes left; each counts as sent."""
        if not self._sent:
            return [], room
        limit = self._limit()
        taken: list[bytes] = []
        moved: list[tuple[K, bytes, int]] = []
        looks = 0
        for times, level in enumerate(self._levels):
            for key in reversed(level):  # the newest of those sent equally often
                item = level[key]
                looks += 1
                if len(item) + PER_ITEM <= room:
                    room -= len(item) + PER_ITEM
                    taken.append(item)
                    moved.append((key, item, times + 1))
                if looks >= MAX_LOOKS:
                    break
            if looks >= MAX_LOOKS:
                break
        for key, item, times in moved:
            self.drop(key)
            if times < limit:
                while len(self._levels) <= times:
                    self._levels.append({})
                self._levels[times][key] = item
                self._sent[key] = times
        return taken, room

    def _drop_most_sent(self) -> None:
        level = next(level for level in reversed(self._levels) if level)
        self.drop(next(iter(level)))
