"""MessagePack and JSON: the one encoder, and the one decoder of outside bytes, with one error and a
size limit.

msgspec lets two errors escape beside its own: `UnicodeDecodeError` for a string that is not UTF-8
and `RecursionError` for deep nesting (both measured). Here they are `DecodeError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from medusa.overlay.errors import DecodeError

T = TypeVar("T")

MALFORMED: Final = (ValueError, RecursionError, OverflowError)
"""All exceptions that decoding raises."""


def encode(value: object) -> bytes:
    """The MessagePack bytes of a struct (or of anything msgspec takes)."""
    return msgspec.msgpack.encode(value)


def encode_json(value: object) -> bytes:
    """The JSON bytes of a struct (or of anything msgspec takes)."""
    return msgspec.json.encode(value)


def decode(data: bytes | bytearray | memoryview, kind: type[T], *, limit: int, what: str) -> T:
    """Decode MessagePack bytes into a `kind`.

    Args:
        limit: most bytes, checked before anything is read.
        what: names the thing in the error.

    Raises:
        DecodeError: too long, malformed, or of another type. No bytes raise another error.
    """
    return _decoded(msgspec.msgpack.decode, data, kind, limit, what)


def decode_json(data: bytes | bytearray | memoryview, kind: type[T], *, limit: int, what: str) -> T:
    """Decode JSON bytes into a `kind`; arguments and errors as of `decode`."""
    return _decoded(msgspec.json.decode, data, kind, limit, what)


def _decoded(
    decoder: Callable[..., T],
    data: bytes | bytearray | memoryview,
    kind: type[T],
    limit: int,
    what: str,
) -> T:
    size = memoryview(data).nbytes
    if size > limit:
        raise DecodeError(f"{what}: {size} bytes, at most {limit} are accepted")
    try:
        return decoder(data, type=kind)
    except MALFORMED as error:
        raise DecodeError(f"{what}: not well formed: {error}") from None
