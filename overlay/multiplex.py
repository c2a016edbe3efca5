"""Many streams over one connection: credit per stream, weights, limits (sans-IO).

The side that dialled opens streams with odd numbers, the other with even ones, each counting up. A
stream is one call. Its opener may finish its own direction early; when the other side, which
answers, finishes, the stream is over for both. Either side may reset it.

Credit. A receiver announces how many bytes of a stream it takes in all: the bytes read so far, the
received part of the message that its reader waits for (`want`), and one window. So:

* a reader that stops reading stops its writer after one window;
* a message may be longer than a window;
* at most one window of a stream is under way ahead of another stream's small call.

Order. Control frames go first. DATA goes by start-time fair queueing: each frame advances its
stream's tag by length / weight, and the lowest tag is next. An idle stream starts at the present
tag, so a small call overtakes all heavy streams and gathers no debt or credit while idle.

Why not HTTP/2 (h2): docs/adr/0004-multiplexer.md.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from medusa.overlay.encoding import decode
from medusa.overlay.encoding import encode as pack
from medusa.overlay.errors import BrokenError, BusyError, ClosedError, DecodeError
from medusa.overlay.frames import (
    FRAME_BYTES,
    LIMIT,
    MAX_CONTROL_BYTES,
    Frame,
    FrameDecoder,
    Kind,
    encode,
    encode_header,
)
from medusa.overlay.log import checked_cause
from medusa.overlay.memory import Share
from medusa.overlay.pace import CALL_S, FRAME_S, MESSAGE_S, Pace
from medusa.overlay.streams import (
    MAX_WEIGHT,
    WINDOW_BYTES,
    Buffer,
    Changed,
    Event,
    Failure,
    Opened,
    Opening,
    Stream,
    move,
    store,
)

MAX_STREAMS: Final = 512
"""Streams that the other side may have open at once: a subscription each for a busy pair of peers,
and room for calls. One more is answered with BusyError."""

MAX_CONTROL_FRAMES: Final = 4096
"""Control frames waiting to be sent. They answer the other side's frames, so more means that it
sends without reading: the connection is closed."""

WRITE_BYTES: Final = 128 * 2**10
"""Bytes of DATA taken for one write: enough for TLS's best speed, few enough (1 ms at 1 Gbit/s)
that the next frame waits little."""

CONNECTION_BYTES: Final = 208 * 2**10
"""Bytes counted for a connection: its tasks and TLS (measured: 100 KiB), and the buffers of TLS
once much has gone both ways."""

STREAM_BYTES: Final = 16 * 2**10
"""Bytes counted for a stream that the other side opened: the task that answers it, and its
state."""

AHEAD_BYTES: Final = 256 * 2**10
"""Bytes a stream may have queued before its sender waits: the next write is always ready."""

_LAST_LIMIT: Final = 2**63 - 1
"""Largest credit believed: no call moves 8 EiB."""


class Multiplexer:
    """One side of a connection.

    Args:
        memory: the share of the remote's participant.

    Attributes:
        cost_s: estimated time that the other side's frames, calls and messages have taken, seconds.
    """

    def __init__(
        self, *, dialled: bool, max_streams: int = MAX_STREAMS, memory: Share | None = None
    ) -> None:
        self._decoder = FrameDecoder()
        self._streams: dict[int, Stream] = {}
        self._parity = 1 if dialled else 0
        self._last_ours = -1 if dialled else 0
        self._last_theirs = 0 if dialled else -1
        self._max_streams = max_streams
        self._theirs = 0
        self._memory = memory or Share()
        self._held = self._charged = 0
        self._writing = 0
        self._control: deque[bytes] = deque()
        self._credits: dict[int, Stream] = {}
        self._ready: list[tuple[float, int, Stream]] = []
        self._present = 0.0
        self._pong_due = False
        self.cost_s = 0.0
        self._handlers: dict[Kind, Callable[[Frame, list[Event]], None]] = {
            Kind.OPEN: self._on_open,
            Kind.DATA: self._on_data,
            Kind.CREDIT: self._on_credit,
            Kind.FINISH: self._on_finish,
            Kind.RESET: self._on_reset,
            Kind.PING: self._on_ping,
            Kind.PONG: lambda frame, events: None,
        }
        self._charge(CONNECTION_BYTES)

    @property
    def streams(self) -> Sequence[Stream]:
        """All streams that are not over."""
        return tuple(self._streams.values())

    @property
    def pace(self) -> Pace:
        """The account of time of the remote's participant."""
        return self._memory.pace

    # -- sending

    def open(self, method: str, weight: int, cause: str = "") -> Stream:
        """A new stream of ours. cause: see `Opening`.

        Raises:
            BusyError: as many of our streams are open as the other side would accept.
        """
        assert 1 <= weight <= MAX_WEIGHT
        if len(self._streams) - self._theirs >= self._max_streams:
            raise BusyError(f"{self._max_streams} calls to this peer are open")
        self._last_ours += 2
        stream = Stream(self._last_ours, ours=True, method=method, weight=weight, cause=cause)
        self._streams[stream.number] = stream
        opening = pack(Opening(method, weight, cause))
        assert len(opening) <= MAX_CONTROL_BYTES
        self._say(encode(Kind.OPEN, stream.number, opening))
        return stream

    def send(self, stream: Stream, *buffers: Buffer) -> None:
        """Queue bytes. They are not copied, so they must not change until pulled."""
        assert not stream.finishing
        if stream.over:
            return
        for buffer in buffers:
            view = memoryview(buffer)
            if view.nbytes:
                stream.outgoing.append(view.cast("B"))
                stream.whole.append(view.nbytes)
                stream.queued += view.nbytes
                self._hold(view.nbytes)
        if self._memory.full:
            self._refuse(stream)
        self._schedule(stream)

    def may_send(self, stream: Stream) -> bool:
        """Whether bytes sent now would begin to leave at once: little is queued, and the other side
        has given credit. If not, `Changed` follows, or `pull` returns the stream as drained."""
        has_credit = stream.send_limit > stream.sent + stream.queued
        stream.lacks_credit = not has_credit
        return has_credit and stream.queued <= AHEAD_BYTES

    def finish(self, stream: Stream) -> None:
        """Send no more after the queued bytes."""
        stream.finishing = True
        self._schedule(stream)

    def reset(self, stream: Stream, code: str, message: str) -> None:
        """End the stream at once for both sides; queued bytes are dropped."""
        if stream.over:
            return
        # 4 bytes per character at most, and both together within a control frame
        failure = Failure(code[:64], message[: MAX_CONTROL_BYTES // 4 - 128])
        self._say(encode(Kind.RESET, stream.number, pack(failure)))
        self._fail(stream, failure)

    def ping(self) -> None:
        self._say(encode(Kind.PING, 0))

    @property
    def pending(self) -> bool:
        """Whether `pull` would give anything."""
        return bool(self._control or self._credits or self._ready or self._pong_due)

    def pull(self, budget: int = WRITE_BYTES) -> tuple[list[Buffer], list[Stream]]:
        """The bytes to write next, and the streams that may queue more after them.

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
        drained: list[Stream] = []
        while self._ready and budget > 0:
            tag, _, stream = heapq.heappop(self._ready)
            stream.scheduled = False
            if stream.sendable:
                self._present = tag
                budget -= self._pull_frame(stream, buffers)
                if stream.queued <= AHEAD_BYTES:
                    drained.append(stream)
                self._schedule(stream)
        return buffers, drained

    def written(self) -> None:
        """The result of `pull` has been written."""
        self._hold(-self._writing)
        self._writing = 0

    def _pull_frame(self, stream: Stream, buffers: list[Buffer]) -> int:
        size = min(FRAME_BYTES, stream.queued, stream.send_limit - stream.sent)
        if size:
            buffers.append(encode_header(stream.number, size))
            move(stream.outgoing, size, buffers)
            stream.queued -= size
            while len(stream.whole) > len(stream.outgoing):
                self._hold(-stream.whole.popleft())
            self._writing += size
            self._hold(size)
            stream.sent += size
            stream.tag = self._present + size / stream.weight
        if stream.finishing and not stream.finish_sent and not stream.queued:
            buffers.append(encode(Kind.FINISH, stream.number))
            stream.finish_sent = True
            if not stream.ours:
                self._forget(stream)
        return size

    def _schedule(self, stream: Stream) -> None:
        if stream.sendable and not stream.scheduled:
            stream.scheduled = True
            stream.tag = max(stream.tag, self._present)
            heapq.heappush(self._ready, (stream.tag, stream.number, stream))

    # -- reading what was received

    def want(self, stream: Stream, size: int) -> bool:
        """Whether `size` bytes can be taken; if not, `Changed` follows once they can."""
        stream.wanted = 0 if stream.unread >= size else size
        self._grant(stream)
        return stream.unread >= size

    def take(self, stream: Stream, size: int) -> bytes:
        """The next `size` bytes; `want` said that they are there. The one copy on the way in."""
        parts = self.take_parts(stream, size)
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def take_parts(self, stream: Stream, size: int) -> list[Buffer]:
        """As `take`, as they arrived: views of what was read, not copied."""
        assert size <= stream.unread
        stream.unread -= size
        self._hold(-size)
        parts: list[Buffer] = []
        move(stream.inbox, size, parts)
        self._grant(stream)
        return parts

    def hand_over(self, stream: Stream, size: int) -> None:
        """The stream's reader holds a message of that many bytes, and no earlier one."""
        self._hold(size - stream.in_hand)
        stream.in_hand = size
        self.cost_s += MESSAGE_S

    def discard(self, stream: Stream) -> None:
        """Nobody reads this stream any more: drop unread and later bytes."""
        stream.unheard = True
        self._hold(-stream.unread - stream.in_hand)
        stream.in_hand = 0
        stream.unread = 0
        stream.inbox.clear()

    def _grant(self, stream: Stream) -> None:
        """Announce more credit once it is worth a frame."""
        if stream.over or stream.ended or stream.unheard:
            return
        read = stream.received - stream.unread + min(stream.unread, stream.wanted)
        limit = read + WINDOW_BYTES
        if limit - stream.receive_limit >= WINDOW_BYTES // 4:
            stream.receive_limit = limit
            self._credits[stream.number] = stream

    # -- receiving

    @property
    def receiving(self) -> bool:
        """Whether `receive` has left some received bytes unprocessed."""
        return self._decoder.uncut

    def receive(self, data: bytes = b"", most: int | None = None) -> list[Event]:
        """Process received bytes.

        Args:
            most: frames to process; later calls without new bytes process the others.

        Raises:
            DecodeError: the bytes break the protocol; the connection cannot go on.
        """
        events: list[Event] = []
        for frame in self._decoder.feed(data, most):
            self.cost_s += FRAME_S
            self._handlers[frame.kind](frame, events)
        if len(self._control) > MAX_CONTROL_FRAMES:
            raise DecodeError(f"over {MAX_CONTROL_FRAMES} control frames wait to be read")
        return events

    def _find(self, number: int) -> Stream | None:
        """The stream, or None if it is over already.

        Raises:
            DecodeError: it was never opened.
        """
        stream = self._streams.get(number)
        last = self._last_ours if number % 2 == self._parity else self._last_theirs
        if stream is None and not 0 < number <= last:
            raise DecodeError(f"a frame for stream {number}, which was never opened")
        return stream

    def _on_open(self, frame: Frame, events: list[Event]) -> None:
        if frame.stream % 2 == self._parity or frame.stream <= max(0, self._last_theirs):
            raise DecodeError(f"stream {frame.stream} opened out of turn")
        opening = decode(frame.payload, Opening, limit=MAX_CONTROL_BYTES, what="an OPEN frame")
        if not 1 <= opening.weight <= MAX_WEIGHT:
            raise DecodeError(f"weight {opening.weight} is not within 1 to {MAX_WEIGHT}")
        self._last_theirs = frame.stream
        stream = Stream(
            frame.stream,
            ours=False,
            method=opening.method,
            weight=opening.weight,
            cause=checked_cause(opening.cause),
        )
        self._streams[stream.number] = stream
        self._theirs += 1
        self.cost_s += CALL_S
        self._charge(STREAM_BYTES)
        if self._theirs > self._max_streams:
            text = f"{self._max_streams} calls are open over this connection, the most: end some"
            self.reset(stream, BusyError.code, text)
        elif self._memory.crowded:
            self._refuse(stream)
        else:
            events.append(Opened(stream))

    def _on_data(self, frame: Frame, events: list[Event]) -> None:
        stream = self._find(frame.stream)
        if stream is None:
            return
        size = len(frame.payload)
        if stream.ended:
            raise DecodeError(f"stream {stream.number} goes on after its end")
        stream.received += size
        if stream.received > stream.receive_limit:
            raise DecodeError(f"stream {stream.number} sends over its credit")
        if stream.unheard:
            return
        stream.unread += size
        self._hold(size)
        store(stream.inbox, frame.payload)
        if self._memory.full:
            self._refuse(stream)
            self.discard(stream)
            events.append(Changed(stream))
        elif stream.wanted:
            if stream.wanted <= stream.unread:
                stream.wanted = 0
                events.append(Changed(stream))
            else:
                self._grant(stream)

    def _on_credit(self, frame: Frame, events: list[Event]) -> None:
        stream = self._find(frame.stream)
        (limit,) = LIMIT.unpack(frame.payload)
        if limit > _LAST_LIMIT:
            raise DecodeError(f"a credit of {limit} bytes")
        if stream is not None:
            stream.send_limit = max(stream.send_limit, limit)
            self._schedule(stream)
            if stream.lacks_credit:
                events.append(Changed(stream))

    def _on_finish(self, frame: Frame, events: list[Event]) -> None:
        stream = self._find(frame.stream)
        if stream is not None:
            if stream.ended:
                raise DecodeError(f"stream {stream.number} finished twice")
            stream.ended = True
            if stream.ours:
                self._forget(stream)
            events.append(Changed(stream))

    def _on_reset(self, frame: Frame, events: list[Event]) -> None:
        stream = self._find(frame.stream)
        failure = decode(frame.payload, Failure, limit=MAX_CONTROL_BYTES, what="a RESET frame")
        if stream is not None:
            self._fail(stream, failure)
            events.append(Changed(stream))

    def _on_ping(self, frame: Frame, events: list[Event]) -> None:
        self._pong_due = True  # one answer for all pings of a read, so that no queue can fill

    # -- ending

    def break_all(self, message: str, *, closed_here: bool) -> list[Stream]:
        """The connection is gone: every stream fails. Returns the streams."""
        code = ClosedError.code if closed_here else BrokenError.code
        streams = list(self._streams.values())
        for stream in streams:
            self._fail(stream, Failure(code, message))
        # the readers of the remaining bytes are about to end
        self._memory.charge(-self._charged)
        self._memory.hold(self._charged - self._held)
        self._memory = Share()
        return streams

    # -- memory

    def _hold(self, size: int) -> None:
        self._held += size
        self._memory.hold(size)

    def _charge(self, size: int) -> None:
        self._held += size
        self._charged += size
        self._memory.charge(size)

    def _say(self, frame: bytes) -> None:
        """Queue a control frame."""
        self._control.append(frame)
        self._hold(len(frame))

    def _refuse(self, stream: Stream) -> None:
        """Reset a stream whose bytes exceed the memory share."""
        share = self._memory
        text = (
            f"{share.holder or 'the caller'} holds {share.held} bytes here already, all of its "
            f"share ({share.flat} of them for its connections and calls): read what waits, or end "
            "calls and connections, then try again"
        )
        self.reset(stream, BusyError.code, text)

    # -- the end of a stream

    def _fail(self, stream: Stream, failure: Failure) -> None:
        stream.failure = failure
        stream.ended = True
        self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        stream.over = True
        stream.outgoing.clear()
        self._hold(-sum(stream.whole))
        stream.whole.clear()
        stream.queued = 0
        self._credits.pop(stream.number, None)
        if self._streams.pop(stream.number, None) is not None and not stream.ours:
            self._theirs -= 1
            self._charge(-STREAM_BYTES)
