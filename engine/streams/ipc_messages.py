"""Checks the flatbuffer of an Arrow IPC message from outside, before Arrow acts on it.

Slots are the numbers of fields in the tables `Message` and `RecordBatch` of Arrow's
format/Message.fbs.
"""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa

from overlay.errors import DecodeError

_HEADER_SLOT: Final = 2
_CUSTOM_METADATA_SLOT: Final = 4
_BUFFERS_SLOT: Final = 2
_COMPRESSION_SLOT: Final = 3

_BUFFER: Final = struct.Struct("<qq")
"""A buffer: its offset in the message's body, and its length, bytes."""

V5: Final = int(pa.ipc.MetadataVersion.V5)


def check_message(message: pa.Message) -> None:
    """Refuse a version or metadata that would change how Arrow reads the message.

    Arrow's format has had two ways to say that a record batch is compressed: since 1.0 a table in
    the batch, in 0.17 a pair of custom metadata beside a V4 message. Arrow C++ honours both.

    Raises:
        DecodeError: it is not of metadata version V5, or carries custom metadata.
    """
    if message.metadata_version != V5:
        raise DecodeError("the body is of an old Arrow format: send metadata version V5 (1.0)")
    metadata = memoryview(message.metadata)
    if _slot(metadata, _root(metadata), _CUSTOM_METADATA_SLOT) is not None:
        raise DecodeError("a message of the body has custom metadata: send none")


def check_batch(message: pa.Message) -> None:
    """Refuse a record batch that would decode to more bytes than it has.

    Raises:
        DecodeError: it is compressed, or its buffers overlap or lie outside of its body.
    """
    metadata = memoryview(message.metadata)
    header = _slot(metadata, _root(metadata), _HEADER_SLOT)
    if header is None:
        raise DecodeError("a record batch message without its header")
    batch = _follow(metadata, header)
    if _slot(metadata, batch, _COMPRESSION_SLOT) is not None:
        raise DecodeError("the body is compressed: send record batches uncompressed")
    buffers = _slot(metadata, batch, _BUFFERS_SLOT)
    if buffers is not None:
        _check_buffers(metadata, _follow(metadata, buffers), message.body.size)


def _check_buffers(metadata: memoryview, vector: int, size: int) -> None:
    (count,) = struct.unpack_from("<I", metadata, vector)
    claimed = metadata[vector + 4 : vector + 4 + count * _BUFFER.size]
    if len(claimed) != count * _BUFFER.size:
        raise DecodeError("a record batch message ends within its buffers")
    end = 0
    for offset, length in sorted(pair for pair in _BUFFER.iter_unpack(claimed) if pair[1]):
        if length < 0 or offset < end:
            raise DecodeError("buffers of the body overlap: each must have bytes of its own")
        end = offset + length
    if end > size:
        raise DecodeError("a buffer of the body reaches beyond it")


def _root(metadata: memoryview) -> int:
    return _follow(metadata, 0)


def _follow(metadata: memoryview, position: int) -> int:
    """The position that the offset there leads to."""
    (offset,) = struct.unpack_from("<I", metadata, position)
    return position + int(offset)


def _slot(metadata: memoryview, table: int, slot: int) -> int | None:
    """The position of a flatbuffer table's field, or None if it is absent."""
    (back,) = struct.unpack_from("<i", metadata, table)
    vtable = table - back
    if vtable < 0:
        raise DecodeError("a message of the body has no table of its fields")
    (size,) = struct.unpack_from("<H", metadata, vtable)
    if size < 4 + 2 * (slot + 1):
        return None
    (offset,) = struct.unpack_from("<H", metadata, vtable + 4 + 2 * slot)
    return table + int(offset) if offset else None
