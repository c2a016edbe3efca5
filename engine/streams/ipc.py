"""Arrow IPC bodies: encoding within a size, and decoding of bytes from outside.

A body is one Arrow IPC stream: a schema message and record batches, uncompressed. Decoding copies
nothing: the table's columns are slices of the body, which stays alive as long as they do.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from engine.messages import MAX_BATCH_BYTES
from overlay.errors import DecodeError, InvalidInputError

MAX_BATCH_ROWS: Final = 2**20
"""Most rows in one body. A home adds 16 bytes to each row, so rows of a few bits must not multiply
a small body into a large table."""

MAX_PART_BYTES: Final = MAX_BATCH_BYTES + 64 * 2**10
"""Most bytes of a decoded body: a single row as large as a post may be, with what a home adds to it
(stime, seq, and the IPC metadata of 258 columns)."""

_PART_TARGET: Final = MAX_BATCH_BYTES - 256 * 2**10
"""What parts are sliced towards, bytes: leaves room for metadata and uneven rows."""

_IPC_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression=None)

_HEADER_SLOT: Final = 2
"""The slot of `header` in the flatbuffer table Message (Arrow's format/Message.fbs)."""
_COMPRESSION_SLOT: Final = 3
"""The slot of `compression` in the flatbuffer table RecordBatch (Arrow's format/Message.fbs)."""


def encode(table: pa.Table) -> memoryview:
    """The table as one IPC stream, whatever its size."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_IPC_OPTIONS) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


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
    """The table that a body from outside holds, checked in full; its columns are slices of `body`.

    Raises:
        DecodeError: it is not an IPC stream, is compressed, is too long, has other fields, a null
            where the schema allows none, or buffers that do not hold what they claim.
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
    return table


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
    sent = pa.ipc.read_schema(first)
    _check_fields(sent, schema)
    batches: list[pa.RecordBatch] = []
    rows = 0
    for message in messages:
        if message.type != "record batch":
            raise DecodeError(f"a {message.type} message in the body: only record batches belong")
        if _is_compressed(memoryview(message.metadata)):
            raise DecodeError("the body is compressed: send record batches uncompressed")
        batch = pa.ipc.read_record_batch(message, sent)
        rows += batch.num_rows
        if rows > MAX_BATCH_ROWS:
            raise DecodeError(f"more than {MAX_BATCH_ROWS} tuples in one body: send several")
        batches.append(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
    return batches


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
            raise DecodeError(f"field {field.name} is null in row {row}; it may not be")


def _is_compressed(metadata: memoryview) -> bool:
    """Whether a record batch message's flatbuffer has a `compression` table."""
    (message,) = struct.unpack_from("<I", metadata, 0)
    header = _slot(metadata, message, _HEADER_SLOT)
    if header is None:
        return False
    (offset,) = struct.unpack_from("<I", metadata, header)
    return _slot(metadata, header + offset, _COMPRESSION_SLOT) is not None


def _slot(metadata: memoryview, table: int, slot: int) -> int | None:
    """The position of a flatbuffer table's field, or None if it is absent."""
    (back,) = struct.unpack_from("<i", metadata, table)
    vtable = table - back
    (size,) = struct.unpack_from("<H", metadata, vtable)
    if size < 4 + 2 * (slot + 1):
        return None
    (offset,) = struct.unpack_from("<H", metadata, vtable + 4 + 2 * slot)
    return table + offset if offset else None
