"""When to renew which record: well before it expires, spread out, and soon after a failure."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from random import Random  # noqa: TID251 -- the type only: the generator is passed in
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

FIRST_RETRY_S: Final = 1.0
"""Seconds until a failed renewal is tried again; doubled up to the ordinary interval."""

AT_ONCE: Final = 8
"""Renewals under way together: each is some 16 datagrams."""


@dataclass(slots=True)
class _Entry:
    at: float
    retry_s: float = FIRST_RETRY_S


class Schedule(Generic[K]):
    """Times are seconds of any one clock."""

    def __init__(self, every_s: float, rng: Random) -> None:
        self._every_s = every_s
        self._rng = rng
        self._entries: dict[K, _Entry] = {}

    def add(self, key: K, at: float) -> None:
        """Renew it at that time, and from then on regularly."""
        self._entries[key] = _Entry(at)

    def remove(self, key: K) -> None:
        self._entries.pop(key, None)

    def renewed(self, key: K, now: float) -> None:
        """It was told. The next time varies, so that what began together does not stay so."""
        self.add(key, now + self._every_s * self._rng.uniform(0.75, 1.0))

    def failed(self, key: K, now: float) -> None:
        """It could not be told: try again after a while that doubles."""
        retry_s = self._entries[key].retry_s if key in self._entries else FIRST_RETRY_S
        wait_s = min(retry_s, self._every_s) * self._rng.uniform(0.75, 1.0)
        self._entries[key] = _Entry(now + wait_s, 2 * retry_s)

    def due(self, now: float) -> list[K]:
        """At most AT_ONCE keys whose time has come, the longest waiting first."""
        ready = [
            (entry.at, n, key)
            for n, (key, entry) in enumerate(self._entries.items())
            if entry.at <= now
        ]
        return [key for _, _, key in sorted(ready, key=lambda r: r[:2])[:AT_ONCE]]

    def next_at(self) -> float:
        """When the next renewal is due; infinity if nothing is to be renewed."""
        return min((entry.at for entry in self._entries.values()), default=float("inf"))
