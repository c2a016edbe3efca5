"""MessagePack in and out: the one decoder of outside bytes, with one error and a size limit.

msgspec leaks two errors beside its own: `UnicodeDecodeError` for a string that is not UTF-8 and
`RecursionError` for deep nesting (both measured); here they are `DecodeError` like the rest.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from overlay.errors import DecodeError

T = TypeVar("T")


def encode(value: object) -> bytes:
    """The MessagePack bytes of a struct (or of anything msgspec takes)."""
    return msgspec.msgpack.encode(value)


def decode(data: bytes | bytearray | memoryview, kind: type[T], *, limit: int, what: str) -> T:
    """The `kind` that these bytes hold.

    Args:
        limit: most bytes, checked before anything is read.
        what: names the thing in the error.

    Raises:
        DecodeError: too long, malformed, or of another type; nothing else, whatever the bytes.
    """
    size = memoryview(data).nbytes
    if size > limit:
        raise DecodeError(f"{what}: {size} bytes, at most {limit} are accepted")
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (ValueError, RecursionError, OverflowError) as error:
        raise DecodeError(f"{what}: not well formed: {error}") from None
