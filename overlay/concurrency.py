"""Tasks that belong together: one ends, all end, and one error comes out. Locks by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

import trio

from overlay.errors import MedusaError


class Locks:
    """A lock for each name, there as long as somebody holds it or waits for it: what takes its
    time, or waits for a stranger, holds up its own kind alone."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, trio.Lock] = WeakValueDictionary()

    def of(self, name: str) -> trio.Lock:
        return self._locks.setdefault(name, trio.Lock())


async def until_one_ends(*tasks: Callable[[], Awaitable[None]]) -> None:
    """Run the tasks together until the first of them returns or fails; the others are cancelled.

    Raises:
        MedusaError, EndOfChannel: that of the first to fail, as itself and not in a group, so that
            a caller can tell what it was.
    """
    failures: list[MedusaError | trio.EndOfChannel] = []
    async with trio.open_nursery() as nursery:

        async def watch(task: Callable[[], Awaitable[None]]) -> None:
            try:
                await task()
            except (MedusaError, trio.EndOfChannel) as error:
                failures.append(error)
            nursery.cancel_scope.cancel()

        for task in tasks:
            nursery.start_soon(watch, task)
    if failures:
        raise failures[0]


@contextmanager
def one_error() -> Iterator[None]:
    """At the outermost nursery: a group of our own errors becomes the first of them.

    A group with anything else in it, a fault of ours or an interrupt, goes out as it is.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        ours, others = group.split(MedusaError)
        if others is not None or ours is None:
            raise
        first: BaseException = ours
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from group
