from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import Final

import trio

from medusa.engine.streams.log.parts import PART_BYTES
from medusa.overlay.errors import BusyError
from medusa.overlay.memory import Memory
from medusa.overlay.rpc import Caller

TURNS: Final = 2
"""Parts that are read and encoded at once; each takes up to three times `PART_BYTES`. More parts at
once would not be quicker on the same disk and cores, and would delay the next participant."""

MAX_OF_PARTICIPANT: Final = 1024
"""Subscriptions of one participant's peers, or one token's clients: each takes < 1 ms an epoch."""

MAX_OF_PEER: Final = 256
"""Subscriptions of one peer, so that one connection does not take all subscriptions of its
participant."""


class Turns:
    """Decides for which subscription a part is made next. Participants take turns; subscriptions of
    one participant are served in the order of their requests. A participant that holds too much
    memory waits until the other side has read some of it."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._waiting: OrderedDict[str, deque[trio.Event]] = OrderedDict()
        self._taken = 0
        memory.freed.add(self._give)

    @asynccontextmanager
    async def turn(self, holder: str) -> AsyncIterator[None]:
        """Wait for the holder's turn; it makes one part within the block."""
        given = trio.Event()
        self._waiting.setdefault(holder, deque()).append(given)
        self._give()
        try:
            await given.wait()
            yield
        finally:
            if given.is_set():
                self._taken -= 1
            else:
                self._leave(holder, given)
            self._give()

    def _leave(self, holder: str, given: trio.Event) -> None:
        waiting = self._waiting[holder]
        waiting.remove(given)
        if not waiting:
            del self._waiting[holder]

    def _give(self) -> None:
        while self._waiting and self._taken < TURNS:
            fits = (each for each in self._waiting if self._memory.share(each).fits(PART_BYTES))
            holder = next(fits, None)
            if holder is None:
                return
            given = self._waiting[holder].popleft()
            if self._waiting[holder]:
                self._waiting.move_to_end(holder)
            else:
                del self._waiting[holder]
            self._taken += 1
            given.set()


class Delivery:
    """Shares a peer's sending among subscribers: one part at a time, participants in turn.

    Args:
        memory: the bound on the memory of this peer's calls.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._turns = Turns(memory)
        self._of_participant: Counter[str] = Counter()
        self._of_peer: Counter[bytes] = Counter()

    @contextmanager
    def subscription(self, caller: Caller) -> Iterator[None]:
        """Count one more of the caller's subscriptions, until the block ends.

        Raises:
            BusyError: too many are served already.
        """
        holder, peer = caller.holder, caller.peer_id or b""
        if self._of_participant[holder] >= MAX_OF_PARTICIPANT:
            raise BusyError(
                f"{MAX_OF_PARTICIPANT} subscriptions of {holder} are served here already: end some"
            )
        if peer and self._of_peer[peer] >= MAX_OF_PEER:
            raise BusyError(
                f"{MAX_OF_PEER} subscriptions of peer {peer.hex()[:12]} are served here already: "
                "end some, or subscribe by another peer"
            )
        self._of_participant[holder] += 1
        self._of_peer[peer] += 1
        try:
            yield
        finally:
            self._of_participant -= Counter({holder: 1})
            self._of_peer -= Counter({peer: 1})

    def shares(self, caller: Caller) -> Shares:
        """A feed's share, for that caller, of this peer's memory and time."""
        return Shares(self._turns, self._memory, caller.holder)


class Shares:
    """A holder's share of this peer's sending and memory."""

    def __init__(self, turns: Turns, memory: Memory, holder: str) -> None:
        self._turns = turns
        self._share = memory.share(holder)
        self._holder = holder

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Wait for the holder's turn, and hold it during the block, which makes the holder's next
        part."""
        return self._turns.turn(self._holder)

    def holding(self, size: int) -> AbstractContextManager[None]:
        """Count a part of `size` bytes as held by the holder within the block."""
        return self._share.holding(size)
