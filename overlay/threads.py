"""Threads for long work that others ask for: a few at a time, and in turn between participants.

Reading and planning other participants' documents takes up to seconds of Python; in a thread it
does not block the event loop. Each participant has one thread at a time and a queue of its own;
beyond that queue its work is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

import trio

from medusa.overlay.errors import BusyError

T = TypeVar("T")

AT_ONCE: Final = 2
"""Threads. They share one interpreter with the event loop, so more would only slow it down; two, so
that one participant's long work does not delay the others."""

MAX_WAITING: Final = 32
"""Pieces of work of one participant, including the one under way: a restarting peer asks for some
at once; more is a flood."""


@dataclass
class _Queue:
    turn: trio.Lock = field(default_factory=trio.Lock)
    length: int = 0


class Threads:
    """The threads of one peer."""

    def __init__(self) -> None:
        self._threads = trio.CapacityLimiter(AT_ONCE)
        self._queues: dict[str, _Queue] = {}

    async def run(self, participant: str, work: Callable[[], T]) -> T:
        """Run `work` in that participant's turn; return its result or raise its error. Work that
        has begun is waited for even when this is cancelled.

        Raises:
            BusyError: that participant has `MAX_WAITING` pieces here already.
        """
        queue = self._queues.setdefault(participant, _Queue())
        if queue.length >= MAX_WAITING:
            raise BusyError(f"{MAX_WAITING} pieces of work for {participant} wait here: try again")
        queue.length += 1
        try:
            async with queue.turn:
                return await trio.to_thread.run_sync(work, limiter=self._threads)
        finally:
            queue.length -= 1
            if not queue.length:
                del self._queues[participant]
