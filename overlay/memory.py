"""The bound on what a peer holds in memory, and how it is shared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final
from weakref import WeakValueDictionary

from overlay.errors import InvalidInputError
from overlay.pace import Pace

MEMORY_BYTES: Final = 2**30
"""Default of `overlay.memory_bytes`: room for some dozen of the longest messages under way, recent
epochs of many streams, and posts that wait, beside `PROCESS_BYTES`."""

PROCESS_BYTES: Final = 160 * 2**20
"""What the process takes before it holds anything for anybody: the interpreter, Arrow, the catalog
and the tables of a federation of some hundred peers (measured: 120 to 140 MiB)."""

LEAST_BYTES: Final = 256 * 2**20
"""The least `overlay.memory_bytes`: below it a few posts of 8 MiB would fill what is shared."""


class Memory:
    """Everything of variable size that a peer holds: queues of connections, messages in hand,
    recent epochs, posts that wait for their boundary.

    Each holder may hold as much as is free (dynamic thresholds: Choudhury and Hahne, Dynamic Queue
    Length Thresholds, IEEE/ACM ToN 1998, section III): one alone half of the limit, n greedy ones
    1/(n+1) each; so there is always room for one more.

    Args:
        limit: bytes.

    Attributes:
        held: bytes, by all.
        freed: called whenever there is more room.
    """

    def __init__(self, limit: int = MEMORY_BYTES - PROCESS_BYTES) -> None:
        self.limit = limit
        self.held = 0
        self.freed: list[Callable[[], None]] = []
        self._shares: WeakValueDictionary[str, Share] = WeakValueDictionary()

    @classmethod
    def of_process(cls, memory_bytes: int) -> Memory:
        """For a process that is to take about so many bytes in all.

        Raises:
            InvalidInputError: they are too few to work with.
        """
        if memory_bytes < LEAST_BYTES:
            raise InvalidInputError(
                f"overlay.memory_bytes is {memory_bytes}; at least {LEAST_BYTES} are needed"
            )
        return cls(memory_bytes - PROCESS_BYTES)

    @property
    def free(self) -> int:
        return self.limit - self.held

    def share(self, holder: str) -> Share:
        """What one holder has of it, as long as anybody keeps it: a participant by all its peers,
        our own clients together, a stream by the posts that wait."""
        share = self._shares.get(holder)
        if share is None:
            share = self._shares[holder] = Share(self)
        return share


class Share:
    """What one holder takes of this peer.

    Attributes:
        held: bytes. pace: its time.
    """

    def __init__(self, memory: Memory | None = None) -> None:
        self._memory = memory or Memory()
        self.held = 0
        self.pace = Pace()

    def hold(self, size: int) -> None:
        """Hold so many bytes more, or less."""
        self.held += size
        self._memory.held += size
        if size < 0:
            for tell in self._memory.freed:
                tell()

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Hold so many bytes more within the block."""
        self.hold(size)
        try:
            yield
        finally:
            self.hold(-size)

    def set(self, held: int) -> None:
        """Hold that many bytes from now on."""
        self.hold(held - self.held)

    @property
    def full(self) -> bool:
        """Whether it holds more than it may."""
        return self.held > self._memory.free
