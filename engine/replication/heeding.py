"""Hearing what gossip says, or the clock, for as long as there is somebody to act on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

Heed = TypeVar("Heed")


@contextmanager
def heeding(heard: list[Heed], heed: Heed) -> Iterator[None]:
    """`heed` is told of all news within the block, and of none after it."""
    heard.append(heed)
    try:
        yield
    finally:
        heard.remove(heed)
