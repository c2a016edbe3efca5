"""How subscribers share what a peer can send: a part at a time, participants in turn."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import trio

from engine.objects.schema import END
from engine.streams.feed import Cursor
from engine.streams.parts import PART_BYTES
from overlay.clients import CLIENTS
from overlay.errors import BusyError
from overlay.memory import Memory
from overlay.rpc import Caller, Duplex

TURNS: Final = 2
"""Parts that are read and encoded at once; each takes up to three times `PART_BYTES`. More would
not be quicker on the same disk and cores, and the next participant would wait for all of them."""

MAX_OF_PARTICIPANT: Final = 1024
"""Subscriptions of one participant's peers, or of our own clients, that are served here: each takes
part of a millisecond an epoch."""

MAX_OF_PEER: Final = 256
"""Subscriptions of one peer, so that no connection takes all that its participant may have."""


class Turns:
    """For which subscription a part is made next: participants take turns, and the subscriptions of
    one participant are served in the order in which they asked. A participant that holds too much
    of the memory waits until the other side has read some of it."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._waiting: OrderedDict[str, deque[trio.Event]] = OrderedDict()
        self._taken = 0
        memory.freed.add(self._give)

    @asynccontextmanager
    async def turn(self, holder: str) -> AsyncIterator[None]:
        """Within the block it is the holder's turn to make one part."""
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


async def at_once(_boundary: int) -> None:
    """Nothing holds readers back."""
    await trio.lowlevel.checkpoint()


class Delivery:
    """Sends streams to those who subscribe to them.

    Args:
        memory: what this peer may hold.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._turns = Turns(memory)
        self._of_participant: Counter[str] = Counter()
        self._of_peer: Counter[bytes] = Counter()

    @contextmanager
    def subscription(self, caller: Caller) -> Iterator[None]:
        """One more of the caller's subscriptions is served, until the block ends.

        Raises:
            BusyError: as many as may be are served already.
        """
        holder, peer = _holder(caller), caller.peer_id or b""
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

    async def send(
        self,
        cursor: Cursor,
        duplex: Duplex,
        caller: Caller,
        *,
        until: int = END,
        released: Callable[[int], Awaitable[None]] = at_once,
    ) -> None:
        """Send what follows, until the stream has ended or the caller has it up to `until`.

        A part is made when the caller takes more, and not before.

        Args:
            released: returns once readers may have the stream up to that boundary, microseconds.

        Raises:
            NotRetainedError: the rows that follow are gone. ClosedError: the log was closed.
            MedusaError: the call failed.
        """
        holder = _holder(caller)
        share = self._memory.share(holder)
        while cursor.after < until:
            await cursor.wait()
            await duplex.wait_writable()
            async with self._turns.turn(holder):
                found = await cursor.read()
            if found is None:
                continue
            message, body = found
            del found
            with share.holding(len(body)):
                if message.upto is not None and not message.tentative:
                    await released(message.upto)
                await duplex.send(message, body)
            del body  # it must not stay while we wait for the next
            cursor.advance(message)


def _holder(caller: Caller) -> str:
    """The holder whose share of the memory a caller's connection takes."""
    return CLIENTS if caller.peer_id is None else caller.participant
