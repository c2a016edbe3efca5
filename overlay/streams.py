"""One multiplexed stream's state, its queues of bytes, and what is said about it (sans-IO)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from overlay.frames import Fragment

WINDOW_BYTES: Final = 2 * 2**20
"""Bytes of a stream sent and not yet read: 1 Gbit/s at a round trip of 16 ms; what a reader that
stopped holds of our memory."""

MAX_WEIGHT: Final = 256
"""Largest share of a stream relative to one of weight 1."""

_SMALL_BYTES: Final = 4 * 2**10
"""Fragments below this are copied together: a view costs some 200 bytes beside them."""

_KEPT_ALIVE: Final = 2
"""Times its own size that a fragment may keep alive. It is a view of all that was read with it,
also of what other streams have used up since: a smaller part of a read is copied out of it."""

Buffer: TypeAlias = bytes | bytearray | memoryview


class Opening(msgspec.Struct, frozen=True, array_like=True):
    """What an OPEN frame carries. weight: 1 to MAX_WEIGHT, for both directions. cause: the opener's
    id of what it calls for; a label, see `overlay.log`; peers of before it send none."""

    method: str
    weight: int
    cause: str = ""


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """What a RESET frame carries: the wire form of a MedusaError."""

    code: str
    message: str


@dataclass(eq=False, slots=True)
class Stream:
    """One stream's state. Read by others, changed by its `Multiplexer` alone.

    Attributes:
        ours: this side opened it.
        cause: what its opener calls for; empty where it says nothing that could be one.
        queued: bytes handed to `send` and not yet pulled. whole: sizes of the buffers that these
            are the rest of: each is alive until its last byte is pulled.
        unread: bytes received and not yet taken. in_hand: those of the message taken last.
        ended: the other side sends no more (finished or failed).
        failure: why it was reset, by either side.
        over: nothing more is sent or received; what is unread may still be taken.
        lacks_credit: its sender waits for some.
        unheard: nobody reads it any more: what comes is dropped, and no credit given.
    """

    number: int
    ours: bool
    method: str
    weight: int
    cause: str = ""
    queued: int = 0
    unread: int = 0
    in_hand: int = 0
    ended: bool = False
    failure: Failure | None = None
    over: bool = False
    lacks_credit: bool = False
    unheard: bool = False
    outgoing: deque[memoryview] = field(default_factory=deque)
    whole: deque[int] = field(default_factory=deque)
    inbox: deque[memoryview | bytearray] = field(default_factory=deque)
    sent: int = 0
    send_limit: int = WINDOW_BYTES
    received: int = 0
    receive_limit: int = WINDOW_BYTES
    wanted: int = 0
    finishing: bool = False
    finish_sent: bool = False
    scheduled: bool = False
    tag: float = 0.0

    @property
    def sendable(self) -> bool:
        if self.over:
            return False
        return (
            self.send_limit > self.sent if self.queued else self.finishing and not self.finish_sent
        )


@dataclass(frozen=True, slots=True)
class Opened:
    """The other side opened a stream."""

    stream: Stream


@dataclass(frozen=True, slots=True)
class Changed:
    """The stream has what its reader wants, or credit for its sender, or is ended or over."""

    stream: Stream


Event: TypeAlias = Opened | Changed


def move(
    source: deque[memoryview] | deque[memoryview | bytearray], size: int, parts: list[Buffer]
) -> None:
    """Move exactly `size` bytes from the front of a queue of buffers, splitting the last."""
    while size:
        head = source[0]
        if len(head) <= size:
            parts.append(source.popleft())
            size -= len(head)
        elif isinstance(head, bytearray):
            parts.append(bytes(memoryview(head)[:size]))
            del head[:size]  # moves the array's start: no copy of the rest
            size = 0
        else:
            parts.append(head[:size])
            source[0] = head[size:]
            size = 0


def store(inbox: deque[memoryview | bytearray], fragment: Fragment) -> None:
    """Append, copied together where a view would cost much more memory than its bytes."""
    if len(fragment) >= max(_SMALL_BYTES, memoryview(fragment.obj).nbytes // _KEPT_ALIVE):
        inbox.append(fragment)
    elif inbox and isinstance(tail := inbox[-1], bytearray):
        tail.extend(fragment)
    else:
        inbox.append(bytearray(fragment))
