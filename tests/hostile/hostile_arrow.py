"""Arrow IPC bodies as a hostile sender makes them: bombs, overlaps, padding.

Messages are put together with the `flatbuffers` library, slot by slot as in Arrow's
format/Message.fbs, since Arrow itself writes none of these.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

import flatbuffers
import pyarrow as pa

V4, V5 = 3, 4
_RECORD_BATCH = 3
_END = struct.pack("<iI", -1, 0)

Span = tuple[int, int]
"""Offset and length of a buffer in the message's body."""


def schema_message(schema: pa.Schema) -> bytes:
    return bytes(schema.serialize())


def message(
    rows: int,
    nodes: Sequence[Span],
    buffers: Sequence[Span],
    body: bytes,
    *,
    version: int = V5,
    metadata: Mapping[str, str] | None = None,
    compression: int | None = None,
) -> bytes:
    """Return a record batch message whose metadata is as given, true or not. nodes: (length, null
    count) by column."""
    builder = flatbuffers.Builder(1024)
    pairs = _key_values(builder, metadata or {})
    codec = None
    if compression is not None:
        builder.StartObject(2)
        builder.PrependInt8Slot(0, compression, 0)
        codec = builder.EndObject()
    claimed = _spans(builder, buffers)
    columns = _spans(builder, nodes)
    builder.StartObject(4)
    builder.PrependInt64Slot(0, rows, 0)
    builder.PrependUOffsetTRelativeSlot(1, columns, 0)
    builder.PrependUOffsetTRelativeSlot(2, claimed, 0)
    if codec is not None:
        builder.PrependUOffsetTRelativeSlot(3, codec, 0)
    batch = builder.EndObject()
    builder.StartObject(5)
    builder.PrependInt16Slot(0, version, 0)
    builder.PrependUint8Slot(1, _RECORD_BATCH, 0)
    builder.PrependUOffsetTRelativeSlot(2, batch, 0)
    builder.PrependInt64Slot(3, len(body), 0)
    if pairs is not None:
        builder.PrependUOffsetTRelativeSlot(4, pairs, 0)
    builder.Finish(builder.EndObject())
    flat = bytes(builder.Output())
    flat += bytes(-len(flat) % 8)
    return struct.pack("<iI", -1, len(flat)) + flat + body


def stream(schema: pa.Schema, messages: Iterable[bytes]) -> bytes:
    return schema_message(schema) + b"".join(messages) + _END


def bomb(schema: pa.Schema, rows: int, codec: str = "zstd") -> bytes:
    """Return a body whose columns of zeros are compressed as in Arrow 0.17: a V4 message that names
    the codec in its custom metadata, with an empty slot `compression`. All fields have a fixed
    width and are not nullable."""
    body = bytearray()
    buffers: list[Span] = []
    for field in schema:
        buffers.append((0, 0))  # no validity
        size = rows * field.type.bit_width // 8
        squeezed = pa.compress(bytes(size), codec=codec, asbytes=True)
        buffers.append((len(body), 8 + len(squeezed)))
        body += struct.pack("<q", size) + squeezed
        body += bytes(-len(body) % 8)
    nodes = [(rows, 0)] * len(schema)
    name = {"zstd": "ZSTD", "lz4": "lz4"}[codec]
    legacy = {"ARROW:experimental_compression": name}
    return stream(schema, [message(rows, nodes, buffers, bytes(body), version=V4, metadata=legacy)])


def overlapping(schema: pa.Schema, rows: int) -> bytes:
    """Return a body in which all columns, of fixed width and not nullable, name one buffer."""
    size = max(field.type.bit_width for field in schema) * rows // 8
    buffers = [span for _ in schema for span in ((0, 0), (0, size))]
    return stream(schema, [message(rows, [(rows, 0)] * len(schema), buffers, bytes(size))])


def padded(table: pa.Table, size: int) -> bytes:
    """Return the table's one batch in a message body of at least `size` bytes, most of them without
    use."""
    (batch,) = table.combine_chunks().to_batches()
    body = bytearray()
    buffers: list[Span] = []
    for column in batch.columns:
        for buffer in column.buffers():
            data = b"" if buffer is None else bytes(buffer)
            buffers.append((len(body), len(data)))
            body += data + bytes(-len(data) % 8)
    body += bytes(max(0, size - len(body)))
    nodes = [(len(column), column.null_count) for column in batch.columns]
    return stream(table.schema, [message(batch.num_rows, nodes, buffers, bytes(body))])


def many_batches(schema: pa.Schema, count: int) -> bytes:
    """Return batches without rows, one after the other, each a message of some hundred bytes."""
    empty = message(0, [(0, 0)] * len(schema), [(0, 0)] * 2 * len(schema), b"")
    return stream(schema, [empty] * count)


def _key_values(builder: flatbuffers.Builder, metadata: Mapping[str, str]) -> int | None:
    if not metadata:
        return None
    tables = []
    for key, value in metadata.items():
        names = builder.CreateString(key), builder.CreateString(value)
        builder.StartObject(2)
        for slot, name in enumerate(names):
            builder.PrependUOffsetTRelativeSlot(slot, name, 0)
        tables.append(builder.EndObject())
    builder.StartVector(4, len(tables), 4)
    for table in reversed(tables):
        builder.PrependUOffsetTRelative(table)
    return int(builder.EndVector())


def _spans(builder: flatbuffers.Builder, spans: Sequence[Span]) -> int:
    builder.StartVector(16, len(spans), 8)
    for first, second in reversed(spans):
        builder.PrependInt64(second)
        builder.PrependInt64(first)
    return int(builder.EndVector())
