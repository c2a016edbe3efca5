"""Hearing what gossip says, for as long as there is somebody to act on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

News = TypeVar("News")


@contextmanager
def heeding(
    heard: list[Callable[[bytes, News], None]], heed: Callable[[bytes, News], None]
) -> Iterator[None]:
    """`heed` is told of all news of peers within the block, and of none after it."""
    heard.append(heed)
    try:
        yield
    finally:
        heard.remove(heed)
