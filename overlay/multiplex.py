"""Many streams over one connection: credit per stream, weights, limits (sans-IO).

The side that dialled opens streams with odd numbers, the other with even ones, each counting up. A
stream is one call. Its opener may finish its own direction early; when the other side, which
answers, finishes, the stream is over for both. Either side may reset it.

Credit: `inbox.py` decides how much of a stream may be under way. So:

* a reader that stops reading stops its writer after one window;
* a message may be longer than a window;
* at most one window of a stream is under way ahead of another stream's small call.

Order: `send_queue.py` decides which frame is next.

Why not HTTP/2 (h2): docs/adr/0004-multiplexer.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from medusa.overlay.encoding import decode
from medusa.overlay.encoding import encode as pack
from medusa.overlay.errors import BrokenError, BusyError, ClosedError, DecodeError
from medusa.overlay.frames import (
    LIMIT,
    MAX_CONTROL_BYTES,
    Frame,
    FrameDecoder,
    Kind,
    encode,
)
from medusa.overlay.inbox import Inbox
from medusa.overlay.log import checked_cause
from medusa.overlay.memory import Account, Share
from medusa.overlay.pace import CALL_S, FRAME_S, Pace
from medusa.overlay.send_queue import AHEAD_BYTES, WRITE_BYTES, SendQueue
from medusa.overlay.streams import (
    MAX_WEIGHT,
    Buffer,
    Changed,
    Event,
    Failure,
    Opened,
    Opening,
    Stream,
)

MAX_STREAMS: Final = 512
"""Streams that the other side may have open at once: a subscription each for a busy pair of peers,
and room for calls. One more is answered with BusyError."""

MAX_CONTROL_FRAMES: Final = 4096
"""Control frames waiting to be sent. They answer the other side's frames, so more means that it
sends without reading: the connection is closed."""

CONNECTION_BYTES: Final = 208 * 2**10
"""Bytes counted for a connection: its tasks and TLS (measured: 100 KiB), and the buffers of TLS
once much has gone both ways."""

STREAM_BYTES: Final = 16 * 2**10
"""Bytes counted for a stream that the other side opened: the task that answers it, and its
state."""

_LAST_LIMIT: Final = 2**63 - 1
"""Largest credit believed: no call moves 8 EiB."""


class Multiplexer:
    """One side of a connection.

    Args:
        memory: the share of the remote's participant.

    Attributes:
        inbox: what was received and is not read yet.
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
        self._account = Account(memory or Share())
        self._queue = SendQueue(self._account)
        self.inbox = Inbox(self._account, self._queue)
        self._handlers: dict[Kind, Callable[[Frame, list[Event]], None]] = {
            Kind.OPEN: self._on_open,
            Kind.DATA: self._on_data,
            Kind.CREDIT: self._on_credit,
            Kind.FINISH: self._on_finish,
            Kind.RESET: self._on_reset,
            Kind.PING: lambda frame, events: self._queue.pong(),
            Kind.PONG: lambda frame, events: None,
        }
        self._account.charge(CONNECTION_BYTES)

    @property
    def streams(self) -> Sequence[Stream]:
        """All streams that are not over."""
        return tuple(self._streams.values())

    @property
    def pace(self) -> Pace:
        """The account of time of the remote's participant."""
        return self._account.share.pace

    @property
    def cost_s(self) -> float:
        """Estimated time that the other side's frames, calls and messages have taken, seconds."""
        return self._account.cost_s

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
        self._queue.say(encode(Kind.OPEN, stream.number, opening))
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
                self._account.hold(view.nbytes)
        if self._account.share.full:
            self._refuse(stream)
        self._queue.schedule(stream)

    def may_send(self, stream: Stream) -> bool:
        """Whether bytes sent now would begin to leave at once: little is queued, and the other side
        has given credit. If not, `Changed` follows, or `pull` returns the stream as drained."""
        has_credit = stream.send_limit > stream.sent + stream.queued
        stream.lacks_credit = not has_credit
        return has_credit and stream.queued <= AHEAD_BYTES

    def finish(self, stream: Stream) -> None:
        """Send no more after the queued bytes."""
        stream.finishing = True
        self._queue.schedule(stream)

    def reset(self, stream: Stream, code: str, message: str) -> None:
        """End the stream at once for both sides; queued bytes are dropped."""
        if stream.over:
            return
        # 4 bytes per character at most, and both together within a control frame
        failure = Failure(code[:64], message[: MAX_CONTROL_BYTES // 4 - 128])
        self._queue.say(encode(Kind.RESET, stream.number, pack(failure)))
        self._fail(stream, failure)

    def ping(self) -> None:
        self._queue.say(encode(Kind.PING, 0))

    @property
    def pending(self) -> bool:
        """Whether `pull` would give anything."""
        return self._queue.pending

    def pull(self, budget: int = WRITE_BYTES) -> tuple[list[Buffer], list[Stream]]:
        """The bytes to write next, and the streams that may queue more after them.

        The caller has written the result of the last call.
        """
        buffers, pulled = self._queue.pull(budget)
        for stream in pulled:
            if stream.finish_sent and not stream.ours:
                self._forget(stream)
        return buffers, [stream for stream in pulled if stream.queued <= AHEAD_BYTES]

    def written(self) -> None:
        """The result of `pull` has been written."""
        self._queue.written()

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
            self._account.cost_s += FRAME_S
            self._handlers[frame.kind](frame, events)
        if self._queue.control_frames > MAX_CONTROL_FRAMES:
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
        self._account.cost_s += CALL_S
        self._account.charge(STREAM_BYTES)
        if self._theirs > self._max_streams:
            text = f"{self._max_streams} calls are open over this connection, the most: end some"
            self.reset(stream, BusyError.code, text)
        elif self._account.share.crowded:
            self._refuse(stream)
        else:
            events.append(Opened(stream))

    def _on_data(self, frame: Frame, events: list[Event]) -> None:
        stream = self._find(frame.stream)
        if stream is None:
            return
        self.inbox.arrive(stream, frame.payload)
        if self._account.share.full and not stream.unheard:
            self._refuse(stream)
            self.inbox.discard(stream)
            events.append(Changed(stream))
        elif self.inbox.is_served(stream):
            events.append(Changed(stream))

    def _on_credit(self, frame: Frame, events: list[Event]) -> None:
        stream = self._find(frame.stream)
        (limit,) = LIMIT.unpack(frame.payload)
        if limit > _LAST_LIMIT:
            raise DecodeError(f"a credit of {limit} bytes")
        if stream is not None:
            stream.send_limit = max(stream.send_limit, limit)
            self._queue.schedule(stream)
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

    # -- ending

    def break_all(self, message: str, *, closed_here: bool) -> list[Stream]:
        """The connection is gone: every stream fails. Returns the streams."""
        code = ClosedError.code if closed_here else BrokenError.code
        streams = list(self._streams.values())
        for stream in streams:
            self._fail(stream, Failure(code, message))
        # the readers of the remaining bytes are about to end
        self._account.close()
        return streams

    def _refuse(self, stream: Stream) -> None:
        """Reset a stream whose bytes exceed the memory share."""
        share = self._account.share
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
        self._queue.drop(stream)
        if self._streams.pop(stream.number, None) is not None and not stream.ours:
            self._theirs -= 1
            self._account.charge(-STREAM_BYTES)
