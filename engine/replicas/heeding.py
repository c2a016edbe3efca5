"""Hearing what the failure detector says, for as long as there is somebody to act on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from overlay.gossip.events import Health

Heed = Callable[[bytes, Health], None]


@contextmanager
def heeding(changed: list[Heed], heed: Heed) -> Iterator[None]:
    """`heed` is told of every change within the block, and of none after it."""
    changed.append(heed)
    try:
        yield
    finally:
        changed.remove(heed)
