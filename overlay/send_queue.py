"""Queues the frames of a connection in the order of writing (sans-IO).

Control frames go first. DATA goes by start-time fair queueing: each frame advances its stream's tag
by length / weight, and the lowest tag is next. An idle stream starts at the present tag, so a small
call overtakes all heavy streams and gathers no debt or credit while idle.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Final

from medusa.overlay.frames import FRAME_BYTES, LIMIT, Kind, encode, encode_header
from medusa.overlay.memory import Account
from medusa.overlay.streams import Buffer, Stream, move

WRITE_BYTES: Final = 128 * 2**10
"""Bytes of DATA taken for one write: enough for TLS's best speed, few enough (1 ms at 1 Gbit/s)
that the next frame waits little."""

AHEAD_BYTES: Final = 256 * 2**10
"""Bytes a stream may have queued before its sender waits: the next write is always ready."""


class SendQueue:
    """The frames of one side of a connection.

    Args:
        account: holds the bytes until they are written.
    """

    def __init__(self, account: Account) -> None:
        self._account = account
        self._writing = 0
        self._control: deque[bytes] = deque()
        self._credits: dict[int, Stream] = {}
        self._ready: list[tuple[float, int, Stream]] = []
        self._present = 0.0
        self._pong_due = False

    @property
    def pending(self) -> bool:
        """Whether `pull` would give anything."""
        return bool(self._control or self._credits or self._ready or self._pong_due)

    @property
    def control_frames(self) -> int:
        """Return how many control frames wait."""
        return len(self._control)

    def say(self, frame: bytes) -> None:
        """Queue a control frame."""
        self._control.append(frame)
        self._account.hold(len(frame))

    def pong(self) -> None:
        """Answer pings: one answer for all pings of a read, so that no queue can fill."""
        self._pong_due = True

    def grant(self, stream: Stream) -> None:
        """Announce the stream's credit."""
        self._credits[stream.number] = stream

    def schedule(self, stream: Stream) -> None:
        """Let a stream that has something to send take its turns."""
        if stream.sendable and not stream.scheduled:
            stream.scheduled = True
            stream.tag = max(stream.tag, self._present)
            heapq.heappush(self._ready, (stream.tag, stream.number, stream))

    def drop(self, stream: Stream) -> None:
        """Drop what a stream that is over has queued."""
        stream.outgoing.clear()
        self._account.hold(-sum(stream.whole))
        stream.whole.clear()
        stream.queued = 0
        self._credits.pop(stream.number, None)

    def pull(self, budget: int = WRITE_BYTES) -> tuple[list[Buffer], list[Stream]]:
        """The bytes to write next, and the streams that have data or a FINISH frame among them.

        The caller has written the result of the last call.
        """
        self.written()
        buffers: list[Buffer] = list(self._control)
        self._writing = sum(map(len, self._control))  # they are already counted as held
        self._control.clear()
        if self._pong_due:
            buffers.append(encode(Kind.PONG, 0))
            self._pong_due = False
        for stream in self._credits.values():
            limit = LIMIT.pack(stream.receive_limit)
            buffers.append(encode(Kind.CREDIT, stream.number, limit))
        self._credits.clear()
        pulled: dict[int, Stream] = {}
        while self._ready and budget > 0:
            tag, _, stream = heapq.heappop(self._ready)
            stream.scheduled = False
            if stream.sendable:
                self._present = tag
                budget -= self._pull_frame(stream, buffers)
                pulled[stream.number] = stream
                self.schedule(stream)
        return buffers, list(pulled.values())

    def written(self) -> None:
        """The result of `pull` has been written."""
        self._account.hold(-self._writing)
        self._writing = 0

    def _pull_frame(self, stream: Stream, buffers: list[Buffer]) -> int:
        size = min(FRAME_BYTES, stream.queued, stream.send_limit - stream.sent)
        if size:
            buffers.append(encode_header(stream.number, size))
            move(stream.outgoing, size, buffers)
            stream.queued -= size
            while len(stream.whole) > len(stream.outgoing):
                self._account.hold(-stream.whole.popleft())
            self._writing += size
            self._account.hold(size)
            stream.sent += size
            stream.tag = self._present + size / stream.weight
        if stream.finishing and not stream.finish_sent and not stream.queued:
            buffers.append(encode(Kind.FINISH, stream.number))
            stream.finish_sent = True
        return size
