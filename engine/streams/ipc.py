"""Arrow IPC bodies: encoding within a size, and decoding of bytes from outside.

A body is one Arrow IPC stream: a schema message and record batches, uncompressed. Decoding copies
nothing: the table's columns are slices of the body, which stays alive as long as they do. If they
are less than half of the body, they are copied. So a table takes at most twice the memory that it
counts (`nbytes`), and never more than came over the wire.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from medusa.engine.streams.messages import MAX_BATCH_BYTES
from medusa.engine.streams.ordering import copied, tidy
from medusa.overlay.errors import DecodeError, InvalidInputError

MAX_BATCH_ROWS: Final = 2**20
"""Most rows in one body. A leader adds 16 bytes to each row, so rows of a few bits must not
multiply a small body into a large table."""

MAX_BATCHES: Final = 4096
"""Record batches in one body: each costs some kilobytes in memory, however few its rows."""

MAX_PART_BYTES: Final = MAX_BATCH_BYTES + 64 * 2**10
"""Most bytes of a decoded body: a single row as large as a post may be, and the leader's additions
(stime, seq, and the IPC metadata of 258 columns)."""

_PART_TARGET: Final = MAX_BATCH_BYTES - 256 * 2**10
"""The size that parts are sliced towards, bytes: leaves room for metadata and uneven rows."""

_SLACK_BYTES: Final = 4 * 2**10
"""Bytes of a body, beside its rows, for which a copy is not worthwhile: the schema and metadata of
a small body."""

_IPC_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression=None)


def encode(table: pa.Table) -> memoryview:
    """The table as one IPC stream of any size."""
    table = tidy(table)
    measure = pa.MockOutputStream()
    _write(table, measure)
    # in Arrow's jemalloc, 5 MB take 2.3 ms instead of 0.1 if the sink has to grow
    body = pa.allocate_buffer(measure.size())
    _write(table, pa.FixedSizeBufferWriter(body))
    return memoryview(body).toreadonly()


def _write(table: pa.Table, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, table.schema, options=_IPC_OPTIONS) as writer:
        writer.write_table(table)


def encode_parts(table: pa.Table, limit: int = MAX_BATCH_BYTES) -> Iterator[tuple[int, memoryview]]:
    """The table in pieces of at most `limit` bytes and `MAX_BATCH_ROWS` rows: (rows, body).

    An empty table gives nothing. A single row may exceed the limit, up to `MAX_PART_BYTES`.

    Raises:
        InvalidInputError: a single row is larger than that.
    """
    target = max(1, min(_PART_TARGET, limit // 2))
    pieces = max(1, -(-table.nbytes // target), -(-table.num_rows // MAX_BATCH_ROWS))
    step = max(1, -(-table.num_rows // pieces))
    for start in range(0, table.num_rows, step):
        yield from _encode_within(table.slice(start, step), limit)


def _encode_within(table: pa.Table, limit: int) -> Iterator[tuple[int, memoryview]]:
    body = encode(table)
    if len(body) <= limit:
        yield table.num_rows, body
    elif table.num_rows > 1:
        half = table.num_rows // 2
        yield from _encode_within(table.slice(0, half), limit)
        yield from _encode_within(table.slice(half), limit)
    elif len(body) <= max(limit, MAX_PART_BYTES):
        yield 1, body
    else:
        raise InvalidInputError(
            f"a single tuple takes {len(body)} bytes; at most {MAX_PART_BYTES} can be sent"
        )


def decode(body: bytes | bytearray | memoryview, schema: pa.Schema) -> pa.Table:
    """The table in a body from outside, checked in full.

    Its columns are slices of `body`, or a copy where they are less than half of it.

    Raises:
        DecodeError: it is not an IPC stream, is compressed, is too long, has other fields, a null
            where the schema allows none, or buffers that overlap or are invalid.
    """
    if len(body) > MAX_PART_BYTES:
        raise DecodeError(f"a body of {len(body)} bytes: at most {MAX_PART_BYTES} are allowed")
    try:
        batches = _read_batches(body, schema)
        table = pa.Table.from_batches(batches, schema)
        table.validate(full=True)
    except DecodeError:
        raise
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        OverflowError,
        MemoryError,
        struct.error,
    ) as error:
        raise DecodeError(f"the body is not an Arrow IPC stream: {error}") from error
    _check_nulls(table, schema)
    return copied(table) if len(body) > 2 * table.nbytes + _SLACK_BYTES else table


def reopen(bodies: list[memoryview], schema: pa.Schema) -> pa.Table:
    """The table in bodies that we encoded ourselves, unchecked; its columns are slices of them."""
    batches = [batch for body in bodies for batch in pa.ipc.open_stream(pa.py_buffer(body))]
    return pa.Table.from_batches(batches, schema)


def _read_batches(body: bytes | bytearray | memoryview, schema: pa.Schema) -> list[pa.RecordBatch]:
    # Message by message, and not through a stream reader, so that compression is refused before
    # anything is inflated: eight megabytes of zstd can claim gigabytes.
    messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(body))
    try:
        first = messages.read_next_message()
    except StopIteration:
        raise DecodeError("the body is empty: an Arrow IPC stream begins with its schema") from None
    if first.type != "schema":
        raise DecodeError(f"the body begins with a {first.type} message, not with its schema")
    check_message(first)
    sent = pa.ipc.read_schema(first)
    _check_fields(sent, schema)
    batches: list[pa.RecordBatch] = []
    rows = 0
    for message in messages:
        if message.type != "record batch":
            raise DecodeError(f"a {message.type} message in the body: only record batches belong")
        if len(batches) == MAX_BATCHES:
            raise DecodeError(f"more than {MAX_BATCHES} record batches in one body: combine them")
        batch = _read_batch(message, sent)
        rows += batch.num_rows
        if rows > MAX_BATCH_ROWS:
            raise DecodeError(f"more than {MAX_BATCH_ROWS} tuples in one body: send several")
        batches.append(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
    return batches


def _read_batch(message: pa.Message, schema: pa.Schema) -> pa.RecordBatch:
    check_message(message)
    check_batch(message)
    batch = pa.ipc.read_record_batch(message, schema)
    # If Arrow can be made to allocate in another way, this check fails.
    if batch.get_total_buffer_size() > message.body.size:
        raise DecodeError("a record batch takes more bytes than its message has")
    return batch


def _check_fields(sent: pa.Schema, schema: pa.Schema) -> None:
    if sent.names != schema.names:
        raise DecodeError(
            f"the body's fields are {', '.join(sent.names)[:200] or 'none'}; "
            f"expected {', '.join(schema.names)[:200]}"
        )
    for is_, should in zip(sent, schema, strict=True):
        if is_.type != should.type:
            raise DecodeError(f"field {should.name} is {is_.type}; expected {should.type}")


def _check_nulls(table: pa.Table, schema: pa.Schema) -> None:
    for field, column in zip(schema, table.columns, strict=True):
        if not field.nullable and column.null_count:
            row = column.is_null().index(True).as_py()
            raise DecodeError(f"field {field.name} is null in row {row + 1}; it may not be")


# Numbers of fields in the tables `Message` and `RecordBatch` of Arrow's format/Message.fbs.
_HEADER_SLOT: Final = 2
_CUSTOM_METADATA_SLOT: Final = 4
_BUFFERS_SLOT: Final = 2
_COMPRESSION_SLOT: Final = 3

_BUFFER: Final = struct.Struct("<qq")
"""A buffer: its offset in the message's body, and its length, bytes."""

V5: Final = int(pa.ipc.MetadataVersion.V5)


def check_message(message: pa.Message) -> None:
    """Refuse a version or metadata that would change how Arrow reads the message.

    Arrow's format has had two ways to say that a record batch is compressed: since 1.0 by a table
    in the batch, in 0.17 by custom metadata beside a V4 message. Arrow C++ honours both.

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
    """The position to which the offset at this position leads."""
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
