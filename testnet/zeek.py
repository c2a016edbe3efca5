"""Zeek's conn.log: the TSV with `#` headers, and JSON with one object a line."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.csv

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


class _Header:
    """What the `#` lines say; a concatenated log may say it anew in the middle."""

    def __init__(self) -> None:
        self.separator = "\t"
        self.empty = "(empty)"
        self.unset = "-"
        self.fields: list[str] = []

    def take(self, line: str) -> None:
        name, _, value = line.partition(" " if line.startswith("#separator") else self.separator)
        if name == "#separator":
            try:
                self.separator = value.encode("ascii").decode("unicode_escape")
            except UnicodeError:
                self.separator = ""
            if len(self.separator) != 1 or not ("\t" <= self.separator <= "~"):
                raise InvalidInputError(f"#separator {value[:60]!r} is not one ASCII character")
        elif name == "#empty_field":
            self.empty = value
        elif name == "#unset_field":
            self.unset = value
        elif name == "#fields":
            self.fields = value.split(self.separator)
            choose(self.fields)


def read_tsv(text: io.BufferedIOBase) -> Iterator[tuple[dict[str, pa.Array], int]]:
    """The columns by field, as strings, block by block.

    Raises:
        InvalidInputError: no `#fields` header, or one without the columns needed.
        BadLineError: a line of another number of cells.
    """
    header, done = _Header(), 0
    for lines in _blocks(text):
        for block in _between_comments(lines, header):
            columns, rows = _parse_tsv(block, header, done)
            done += rows
            if rows:
                yield columns, rows


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


def _between_comments(block: bytes, header: _Header) -> Iterator[bytes]:
    """The runs of data lines in a block; the header takes the `#` lines between them."""
    if block[:1] != b"#" and b"\n#" not in block:
        yield block
        return
    run: list[bytes] = []
    for line in block.splitlines(keepends=True):
        if not line.startswith(b"#"):
            run.append(line)
            continue
        if run:
            yield b"".join(run)
            run = []
        header.take(line.decode("utf-8").rstrip("\r\n"))
    if run:
        yield b"".join(run)


def _parse_tsv(block: bytes, header: _Header, done: int) -> tuple[dict[str, pa.Array], int]:
    if not header.fields:
        raise InvalidInputError("a Zeek log without a #fields line")
    chosen = choose(header.fields)
    try:
        table = pa.csv.read_csv(
            io.BytesIO(block),
            read_options=pa.csv.ReadOptions(
                column_names=header.fields, use_threads=False, block_size=len(block) + 1
            ),
            parse_options=pa.csv.ParseOptions(
                delimiter=header.separator, quote_char=False, escape_char=False
            ),
            convert_options=pa.csv.ConvertOptions(
                null_values=["", header.unset, header.empty],
                strings_can_be_null=True,
                column_types=dict.fromkeys(header.fields, pa.string()),
                include_columns=list(chosen.values()),
            ),
        )
    except pa.ArrowInvalid:
        _find_bad_line(block, header, done)
        raise
    columns = {field: table.column(name).combine_chunks() for field, name in chosen.items()}
    return columns, table.num_rows


def _find_bad_line(block: bytes, header: _Header, done: int) -> None:
    """Raise for the first line of another number of cells, if there is one."""
    wanted = len(header.fields)
    lines = (line for line in block.splitlines() if line)
    for row, line in enumerate(lines, done):
        cells = line.count(header.separator.encode()) + 1
        if cells != wanted:
            raise BadLineError(row, f"{cells} cells where #fields has {wanted}") from None


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
