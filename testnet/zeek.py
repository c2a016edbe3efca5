"""Zeek's conn.log as JSON with one object a line; `tools.rows.zeek_rows` has the other form."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa

from overlay.errors import InvalidInputError
from testnet.conn import NAMES, choose, pick

BLOCK_BYTES: Final = 4 * 2**20
"""Text parsed at a time: bounds memory, and large enough that the cost per block is nothing."""

MAX_LINE_BYTES: Final = 2**20
"""A longer line is not a log's."""


class BadLineError(Exception):
    """A line that is not a record: the row counts from 0 over the file."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row


def read_json(text: io.BufferedIOBase) -> Iterator[tuple[dict[str, pa.Array], int]]:
    """The columns by field, as strings or numbers, block by block.

    Raises:
        InvalidInputError: the first line lacks a column needed.
        BadLineError: a line that is not an object, or whose cells are neither text nor number.
    """
    decoder = msgspec.json.Decoder(dict[str, Any])
    done = 0
    for block in _blocks(text):
        records: list[dict[str, Any]] = []
        for line in block.splitlines():
            if line.strip():
                records.append(_record(decoder, line, done + len(records)))
        if not done and records:
            # ts and the rest may be absent in some lines; in the first they show the names.
            choose(list(records[0]))
        columns = {field: _column(field, records, done) for field in NAMES}
        done += len(records)
        if records:
            yield columns, len(records)


def _blocks(text: io.BufferedIOBase) -> Iterator[bytes]:
    """The text in blocks of whole lines."""
    rest = b""
    while piece := text.read(BLOCK_BYTES):
        rest += piece
        end = rest.rfind(b"\n") + 1
        if end:
            yield rest[:end]
            rest = rest[end:]
        elif len(rest) > MAX_LINE_BYTES:
            raise InvalidInputError(f"a line longer than {MAX_LINE_BYTES} bytes")
    if rest:
        yield rest


def _record(decoder: msgspec.json.Decoder[dict[str, Any]], line: bytes, row: int) -> dict[str, Any]:
    try:
        record = decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadLineError(row, f"not a JSON object: {error}") from None
    except RecursionError:
        raise BadLineError(row, "nested too deeply") from None
    nested = record.pop("id", None)
    if isinstance(nested, Mapping):
        # Some shippers nest what Zeek writes as "id.orig_h".
        record.update({f"id.{name}": value for name, value in nested.items()})
    return record


def _column(field: str, records: list[dict[str, Any]], done: int) -> pa.Array:
    """One field of every record; numbers and text in one column become text."""
    values = []
    for row, record in enumerate(records):
        name = pick(field, record)
        value = record[name] if name is not None else None
        if isinstance(value, (dict, list, bool)):
            raise BadLineError(done + row, f"{field}: {value!r} is neither text nor a number")
        values.append(None if value in ("", "-", "(empty)") else value)
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if value is None else str(value) for value in values], pa.string())
