"""Traffic without an end: a trace played over and over, at a speed that changes while it plays."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import trio

from testnet.load.watches import WINDOW_S
from testnet.pace import POST_ROWS, TICK_S
from tools.client.async_client import AsyncMedusaClient


class Tape:
    """A trace, played from its beginning again when it has ended: later by whole windows, so that
    every round gives the same answers at other times.

    Args:
        trace: connections by ascending ts; at least one.
        ahead: seconds of trace that come at once.
    """

    def __init__(self, trace: pa.Table, ahead: float = 0.0) -> None:
        self._trace = trace.combine_chunks()
        self._times: list[float] = trace.column("ts").to_pylist()
        self._start = math.floor(self._times[0] / WINDOW_S) * WINDOW_S
        end = math.floor(self._times[-1] / WINDOW_S + 1) * WINDOW_S
        self._span = end - self._start
        self._next = 0
        self._round = 0
        self._at = ahead

    def forward(self, seconds: float) -> Iterator[pa.Table]:
        """The connections of the next so many seconds of trace, in parts fit to be posted."""
        self._at += seconds
        while self._at >= (self._round + 1) * self._span:
            yield from self._upto(len(self._times))
            self._round, self._next = self._round + 1, 0
        until = self._start + self._at - self._round * self._span
        yield from self._upto(bisect.bisect_left(self._times, until))

    def _upto(self, end: int) -> Iterator[pa.Table]:
        for first in range(self._next, end, POST_ROWS):
            part = self._trace.slice(first, min(POST_ROWS, end - first))
            later = pc.add(part.column("ts"), float(self._round * self._span))
            yield part.set_column(0, "ts", later).cast(part.schema)
        self._next = max(self._next, end)


class Player:
    """Posts a tape to a stream until it is told to end.

    Attributes:
        speed: seconds of trace per second; may be changed at any time.
        posted: what was posted, for the batch run; it shares its memory with the trace.
        on_rows: called with the rows of each post.
    """

    def __init__(self, tape: Tape, client: AsyncMedusaClient, stream: str, speed: float) -> None:
        self.speed = speed
        self.posted: list[pa.Table] = []
        self.on_rows: Callable[[int], None] = lambda rows: None
        self._tape = tape
        self._client = client
        self._stream = stream
        self._ending = trio.Event()

    def end(self) -> None:
        """Post no more, and tell the stream that it has ended."""
        self._ending.set()

    async def run(self) -> None:
        """Play until `end`.

        Raises:
            MedusaError: a post has failed for good.
        """
        due = trio.current_time()
        while not self._ending.is_set():
            for part in self._tape.forward(self.speed * TICK_S):
                await self._client.post_event(self._stream, part)
                self.posted.append(part)
                self.on_rows(part.num_rows)
            # Where the peer was slower than that, what was missed is not made up for.
            due = max(due + TICK_S, trio.current_time())
            with trio.move_on_at(due):
                await self._ending.wait()
        await self._client.post_event(self._stream, None, end=True)
        await self._client.flush()
