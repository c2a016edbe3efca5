"""The frames of a connection, and the decoder that cuts received bytes into them (sans-IO).

A frame is a header of 13 bytes (kind u8, stream u64, length u32, big-endian) and `length` bytes:

    OPEN    the opener's first frame of a stream: an `Opening`
    DATA    bytes of the stream; counted against the credit the receiver gave
    CREDIT  u64: the sender of DATA may send up to this many bytes since the stream's opening
    FINISH  the sender sends no more on this stream
    RESET   the stream is over at once; has the reason, a `Failure`
    PING    asks for a PONG, on stream 0
    PONG    the answer
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct as Layout
from typing import Final, NamedTuple, TypeAlias

from medusa.overlay.errors import DecodeError

HEADER: Final = Layout("!BQI")
LIMIT: Final = Layout("!Q")

FRAME_BYTES: Final = 128 * 2**10
"""Bytes of DATA in one sent frame. A small call waits for at most one frame of each heavier
stream. With 64 KiB a streaming peer takes a tenth more CPU (measured through two peers); with
more than one write at a time small calls would wait longer."""

MAX_FRAME_BYTES: Final = 2**20
"""Bytes of DATA in one accepted frame: more than we send in one. DATA is handed on in pieces as it
arrives, so this bounds no memory, only how long one stream may hold the wire."""

MAX_CONTROL_BYTES: Final = 4 * 2**10
"""Bytes in any other frame: a method's name or a sentence of error. The decoder holds it until it
is complete."""

Fragment: TypeAlias = memoryview


class Kind(IntEnum):
    OPEN = 1
    DATA = 2
    CREDIT = 3
    FINISH = 4
    RESET = 5
    PING = 6
    PONG = 7


LENGTHS: Final[dict[int, tuple[int, int]]] = {
    Kind.OPEN: (1, MAX_CONTROL_BYTES),
    Kind.DATA: (1, MAX_FRAME_BYTES),
    Kind.CREDIT: (LIMIT.size, LIMIT.size),
    Kind.FINISH: (0, 0),
    Kind.RESET: (1, MAX_CONTROL_BYTES),
    Kind.PING: (0, 0),
    Kind.PONG: (0, 0),
}
"""Least and most payload bytes of each kind."""


class Frame(NamedTuple):
    """A whole frame, or a piece of a DATA frame. The payload is a view of the bytes fed."""

    kind: Kind
    stream: int
    payload: Fragment


def encode(kind: Kind, stream: int, payload: bytes = b"") -> bytes:
    """A whole frame of any kind but DATA, whose payload is not copied by `encode_header`."""
    return HEADER.pack(kind, stream, len(payload)) + payload


def encode_header(stream: int, length: int) -> bytes:
    """The header of a DATA frame."""
    return HEADER.pack(Kind.DATA, stream, length)


class FrameDecoder:
    """Cuts bytes into frames. It holds at most one header or one control frame, and the uncut rest
    of the last bytes.

    DATA payloads pass through as views, without waiting for their end and without a copy.
    """

    def __init__(self) -> None:
        self._held = bytearray()
        self._data_left = 0
        self._data_stream = 0
        self._uncut = memoryview(b"")

    @property
    def uncut(self) -> bool:
        """Remove the parts that killed writers of that file left; nobody may be writing the file.

        Raises:
            StorageError: the folder does not allow it."""
        return bool(self._uncut)

    def feed(self, data: bytes, most: int | None = None) -> Sequence[Frame]:
        """The frames that these bytes complete. All bytes fed before must be cut already.

        Args:
            most: number of frames to return; later calls without new bytes return the others.

        Raises:
            DecodeError: an unknown kind or a length over its limit. Nothing more can be decoded.
        """
        assert not (data and self._uncut)
        frames: list[Frame] = []
        view = memoryview(data) if data else self._uncut
        while view and (most is None or len(frames) < most):
            if self._data_left:
                payload, view = view[: self._data_left], view[self._data_left :]
                self._data_left -= len(payload)
                frames.append(Frame(Kind.DATA, self._data_stream, payload))
            else:
                view = self._control(view, frames)
        self._uncut = view
        return frames

    def _control(self, view: memoryview, frames: list[Frame]) -> memoryview:
        """Take a header and, unless it is the header of DATA, the payload after it; returns the
        rest."""
        view = self._hold(view, HEADER.size)
        if len(self._held) < HEADER.size:
            return view
        kind, stream, length = _header(self._held)
        if kind is Kind.DATA:
            self._data_left, self._data_stream = length, stream
            self._held.clear()
            return view
        view = self._hold(view, HEADER.size + length)
        if len(self._held) == HEADER.size + length:
            frames.append(Frame(kind, stream, memoryview(bytes(self._held[HEADER.size :]))))
            self._held.clear()
        return view

    def _hold(self, view: memoryview, upto: int) -> memoryview:
        missing = max(0, upto - len(self._held))
        self._held += view[:missing]
        return view[missing:]


def _header(held: bytearray) -> tuple[Kind, int, int]:
    number, stream, length = HEADER.unpack_from(held)
    if number not in LENGTHS:
        raise DecodeError(f"unknown frame kind {number}")
    kind = Kind(number)
    least, most = LENGTHS[kind]
    if not least <= length <= most:
        raise DecodeError(f"{kind.name} frame claims {length} bytes; allowed are {least} to {most}")
    return kind, stream, length
