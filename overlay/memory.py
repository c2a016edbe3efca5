"""The bound on a peer's memory, and how holders share it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Self
from weakref import WeakValueDictionary

from medusa.overlay.errors import InvalidInputError
from medusa.overlay.listeners import Listeners
from medusa.overlay.pace import Pace

MEMORY_BYTES: Final = 2**30
"""Default of `overlay.memory_bytes`, which bounds the Python process; the JVM comes on top."""

PROCESS_BYTES: Final = 208 * 2**20
"""Bytes that the process takes by itself: the interpreter, Arrow, the catalog and the tables of a
federation of some hundred peers (measured: 120 to 140 MiB), and the parts of streams under
construction (`medusa.engine.streams.reading.delivery`, 48 MiB)."""

LEAST_BYTES: Final = 384 * 2**20
"""The least `overlay.memory_bytes`: below it a dozen posts of 8 MiB would fill the budget for
messages."""

MESSAGES_LEAST: Final = 9 * 2**20
"""Bytes that a participant may always hold beside its connections and calls: the largest post, or a
part of a stream. It exceeds a participant's share only while many participants hold as much as they
may, or while one has very many connections."""

STREAM_LEAST: Final = 256 * 2**10
"""Bytes that may always wait for a stream: small posts go on, however much others hold."""


class Memory:
    """A bound in bytes that holders share.

    Each holder may hold as much as is free (dynamic thresholds: Choudhury and Hahne, Dynamic Queue
    Length Thresholds, IEEE/ACM ToN 1998, section III). One greedy holder gets half of the limit, n
    of them 1/(n+1) each; so there is always room for one more.

    Args:
        limit: bytes, for all holders.
        least: bytes that each holder may hold in any case.

    Attributes:
        held: bytes, by all holders.
        freed: called whenever there is more room.
    """

    def __init__(self, limit: int, least: int = 0) -> None:
        self.limit = limit
        self.least = least
        self.held = 0
        self.freed: Listeners[[]] = Listeners()
        self._shares: WeakValueDictionary[str, Share] = WeakValueDictionary()

    @property
    def free(self) -> int:
        return self.limit - self.held

    def share(self, holder: str) -> Share:
        """The share of one holder; it is dropped once nothing refers to it."""
        share = self._shares.get(holder)
        if share is None:
            share = self._shares[holder] = Share(self, holder)
        return share


class Share:
    """One holder's part of a peer's memory and time.

    Attributes:
        holder: the participant or token that has the share. held: bytes. flat: of these bytes, the
            charges for connections and calls, at a flat rate.
        pace: the account of its time.
    """

    def __init__(self, memory: Memory | None = None, holder: str = "") -> None:
        self._memory = memory or Memory(MEMORY_BYTES)
        self.holder = holder
        self.held = 0
        self.flat = 0
        self.pace = Pace()

    def hold(self, size: int) -> None:
        """Hold that many bytes more; fewer if negative."""
        self.held += size
        self._memory.held += size
        if size < 0:
            self._memory.freed.notify()

    def charge(self, size: int) -> None:
        """Charge that many bytes more at a flat rate; fewer if negative."""
        self.flat += size
        self.hold(size)

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Hold that many bytes more within the block."""
        self.hold(size)
        try:
            yield
        finally:
            self.hold(-size)

    def set(self, held: int) -> None:
        """Hold that many bytes from now on, in place of the present number."""
        self.hold(held - self.held)

    def fits(self, size: int) -> bool:
        """Whether the holder may hold that many bytes more: as many as are free, or the least
        beside flat charges. Waiting does not free flat charges, so nobody may have to wait for
        that."""
        messages = self.held - self.flat
        return self.held + size <= self._memory.free - size or messages + size <= self._memory.least

    @property
    def full(self) -> bool:
        """Whether the holder holds more than it may."""
        return not self.fits(0)

    @property
    def crowded(self) -> bool:
        """Whether nothing more may be charged at a flat rate."""
        return self.held > max(self._memory.free, self._memory.least)


class Account:
    """The part of its participant's share that one connection takes: memory, which is released as a
    whole at the connection's end, and time.

    Attributes:
        share: the share of the participant. held: bytes, until the connection's end.
        cost_s: estimated time that the other side's frames, calls and messages have taken, seconds.
    """

    def __init__(self, share: Share) -> None:
        self.share = share
        self.cost_s = 0.0
        self.held = self._flat = 0

    def hold(self, size: int) -> None:
        """Hold that many bytes more; fewer if negative."""
        self.held += size
        self.share.hold(size)

    def charge(self, size: int) -> None:
        """Charge that many bytes more at a flat rate; fewer if negative."""
        self.held += size
        self._flat += size
        self.share.charge(size)

    def close(self) -> None:
        """Release all memory; bytes that are held from now on count for nobody."""
        self.share.charge(-self._flat)
        self.share.hold(self._flat - self.held)
        self.share = Share()


@dataclass(frozen=True)
class Budgets:
    """The memory of a process by kind, so that waiting posts take none from answers to readers.

    Attributes:
        messages: queued, under way or in a handler, by participant, and by token of our clients.
        streams: posts that wait for their boundary, and incomplete epochs, by stream.
        recent_bytes: bytes for the latest epochs of all streams, which readers are about to ask
            for.
    """

    messages: Memory
    streams: Memory
    recent_bytes: int

    @classmethod
    def of_process(cls, memory_bytes: int) -> Self:
        """The budgets of a process that may take about `memory_bytes`.

        Raises:
            InvalidInputError: a process cannot work with so few bytes.
        """
        if memory_bytes < LEAST_BYTES:
            raise InvalidInputError(
                f"memory_bytes is {memory_bytes}; at least {LEAST_BYTES} are needed"
            )
        shared = memory_bytes - PROCESS_BYTES
        return cls(
            Memory(shared // 2, MESSAGES_LEAST),
            Memory(shared * 3 // 8, STREAM_LEAST),
            shared // 8,
        )
