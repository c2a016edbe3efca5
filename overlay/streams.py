"""The state of one multiplexed stream, its queues of bytes, and its events (sans-IO)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from medusa.overlay.frames import Fragment

WINDOW_BYTES: Final = 2 * 2**20
"""Bytes of a stream sent and not yet read: 1 Gbit/s at a round trip of 16 ms; also the memory that
a stopped reader holds here."""

MAX_WEIGHT: Final = 256
"""Largest weight: a stream's share relative to one of weight 1."""

_SMALL_BYTES: Final = 4 * 2**10
"""Fragments below this are copied together: a view costs some 200 bytes in addition."""

_KEPT_ALIVE: Final = 2
"""A fragment is a view of all bytes that were read at once, other streams' bytes included, and
keeps them all in memory. If they are more than this many times the fragment's size, it is copied,
so that they can be freed."""

Buffer: TypeAlias = bytes | bytearray | memoryview


class Opening(msgspec.Struct, frozen=True, array_like=True):
    """The content of an OPEN frame. weight: 1 to MAX_WEIGHT, for both directions. cause: the
    opener's id of the reason for the call; a label, see `medusa.overlay.log`."""

    method: str
    weight: int
    cause: str


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """The content of a RESET frame: the wire form of a MedusaError."""

    code: str
    message: str


@dataclass(eq=False, slots=True)
class Stream:
    """One stream's state. Others read it; only its `Multiplexer` changes it.

    Attributes:
        ours: this side opened it.
        cause: the opener's id of the reason for the call; empty if it is missing or invalid.
        queued: bytes passed to `send` and not yet pulled.
        whole: sizes of the buffers with queued bytes: each is alive until its last byte is pulled.
        unread: bytes received and not yet taken.
        in_hand: bytes of the message taken last.
        ended: the other side sends no more (finished or failed).
        failure: why it was reset, by either side.
        over: nothing more is sent or received; unread bytes may still be taken.
        lacks_credit: its sender waits for credit.
        unheard: nobody reads it: arriving bytes are dropped, and no credit is given.
    """

    number: int
    ours: bool
    method: str
    weight: int
    cause: str
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
    """The stream has the bytes that its reader wants, or credit for its sender, or is ended or
    over."""

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
            del head[:size]  # moves the array's start, without a copy of the rest
            size = 0
        else:
            parts.append(head[:size])
            source[0] = head[size:]
            size = 0


def store(inbox: deque[memoryview | bytearray], fragment: Fragment) -> None:
    """Append a fragment; copy it where a view would hold much more memory than its bytes."""
    tail = inbox[-1] if inbox else None
    read = fragment.obj
    kept = isinstance(tail, memoryview) and tail.obj is read  # the view before keeps it alive
    worth = kept or len(fragment) >= memoryview(read).nbytes // _KEPT_ALIVE
    if worth and len(fragment) >= _SMALL_BYTES:
        inbox.append(fragment)
    elif isinstance(tail, bytearray):
        tail.extend(fragment)
    else:
        inbox.append(bytearray(fragment))
