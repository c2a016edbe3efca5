"""Reads connection traces from files: Parquet, CSV, and Zeek's conn.log as TSV or JSON, gzipped or
not.

The format is recognised by the content, not by the name. Rows count from 1, without headers and
comments. Every fault is an `InvalidInputError` that names the file, the row and the field.
"""

from __future__ import annotations

import gzip
import heapq
import io
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from medusa.overlay.errors import InvalidInputError
from medusa.testnet.connections.conn import ARROW, NAMES, BadCellError, choose, fit, pick
from medusa.tools.rows.row_input import RowInput, end_of_lines, whole_lines
from medusa.tools.rows.zeek_rows import zeek_tables

BLOCK_BYTES: Final = 4 * 2**20
"""Bytes of text parsed at a time: bounds memory, and makes the cost for each block negligible."""

MAX_LINE_BYTES: Final = 2**20
"""Bytes: a longer line is no log line."""


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
            # ts and other fields may be missing in some lines; the first line must have the names
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
        # some shippers nest Zeek's "id.orig_h"
        record.update({f"id.{name}": value for name, value in nested.items()})
    return record


def _column(field: str, records: list[dict[str, Any]], done: int) -> pa.Array:
    """One field of every record; a column of numbers and text becomes text."""
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


BATCH_ROWS: Final = 32_768
"""Rows in one batch: some 3 MB, below the 8 MiB that one post may carry."""

EMPTY_CELLS: Final = ("", "-", "(empty)", "NULL", "null", "None", "NaN", "nan")
"""Texts for a missing value in CSV."""

_READ_FAULTS: Final = (OSError, EOFError, zlib.error, pa.ArrowException, UnicodeDecodeError)
"""Exceptions that reading a broken file raises, by format."""


@dataclass(frozen=True)
class Trace:
    """A trace that has been read through once and is valid.

    Attributes:
        rows: number of connections. first, last: least and greatest ts, seconds (0 when empty).
        ascending: whether the file's own order is by ts.
    """

    path: Path
    rows: int
    first: float
    last: float
    ascending: bool

    def batches(self) -> Iterator[pa.Table]:
        """The connections by ascending ts, at most `BATCH_ROWS` at a time.

        A file in another order (Zeek writes a connection when it ends) is held in memory whole.
        """
        if self.ascending:
            yield from read_batches(self.path)
            return
        whole = pa.concat_tables(read_batches(self.path)).sort_by("ts")
        for start in range(0, whole.num_rows, BATCH_ROWS):
            yield whole.slice(start, BATCH_ROWS)


def open_trace(path: Path, progress: Callable[[int], None] = lambda rows: None) -> Trace:
    """Read a trace through, checking every row.

    Args:
        progress: called with the rows read so far.

    Raises:
        InvalidInputError: naming the file, and the row and field where there is one.
    """
    rows, first, last, ascending = 0, float("inf"), float("-inf"), True
    for batch in read_batches(path):
        ts = batch.column("ts")
        low, high = pc.min_max(ts).values()
        ascending = ascending and low.as_py() >= last and _is_ascending(ts.combine_chunks())
        first, last = min(first, low.as_py()), max(last, high.as_py())
        rows += batch.num_rows
        progress(rows)
    if not rows:
        return Trace(path, 0, 0.0, 0.0, ascending=True)
    return Trace(path, rows, first, last, ascending)


def read_batches(path: Path) -> Iterator[pa.Table]:
    """The connections of a file in its own order; no batch is empty.

    Raises:
        InvalidInputError: naming the file, and the row and field where there is one.
    """
    done = 0
    try:
        for columns, rows in _read(path):
            for start in range(0, rows, BATCH_ROWS):
                part = {name: _slice(column, start) for name, column in columns.items()}
                size = min(BATCH_ROWS, rows - start)
                yield fit(part, size)
                done += size
    except BadCellError as error:
        raise InvalidInputError(f"{path}: row {done + error.row + 1}: {error}") from None
    except BadLineError as error:
        raise InvalidInputError(f"{path}: row {error.row + 1}: {error}") from None
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from None
    except _READ_FAULTS as error:
        raise InvalidInputError(f"{path}: after row {done}: {_one_line(error)}") from None


def merge(traces: Sequence[Trace]) -> Iterator[pa.Table]:
    """Several traces as one by ascending ts, a batch of each in memory."""
    sources = [trace.batches() for trace in traces]
    heads: list[tuple[float, int, pa.Table]] = []

    def push(index: int, batch: pa.Table | None) -> None:
        if batch is not None:
            heapq.heappush(heads, (batch.column("ts")[-1].as_py(), index, batch))

    for index, source in enumerate(sources):
        push(index, next(source, None))
    while heads:
        # later batches have only rows after the least last ts, so all rows up to it are here
        upto, index, batch = heapq.heappop(heads)
        ready, rest = [batch], []
        for _, other, head in heads:
            cut = pc.sum(pc.less_equal(head.column("ts"), upto)).as_py()
            ready.append(head.slice(0, cut))
            rest.append((other, head.slice(cut)))
        heads = []
        for other, head in rest:
            push(other, head if head.num_rows else next(sources[other], None))
        push(index, next(sources[index], None))
        together = pa.concat_tables(ready)
        together = together if len(traces) == 1 else together.sort_by("ts")
        for start in range(0, together.num_rows, BATCH_ROWS):
            yield together.slice(start, BATCH_ROWS)


def write_trace(path: Path, tables: Sequence[pa.Table]) -> None:
    """Write connections as Parquet, creating the file."""
    with pq.ParquetWriter(path, ARROW) as writer:
        for table in tables:
            writer.write_table(table)


def _read(path: Path) -> Iterator[tuple[dict[str, pa.Array], int]]:
    """Raw columns by field, and the number of rows, in pieces."""
    with path.open("rb") as file:
        magic = file.read(4)
    if magic == b"PAR1":
        yield from _read_parquet(path)
        return
    packed = magic[:2] == b"\x1f\x8b"
    with gzip.open(path, "rb") if packed else path.open("rb") as text:
        start = text.peek(1)[:1]
        if start == b"#":
            yield from _read_zeek(path)
        elif start == b"{":
            yield from read_json(text)
        elif start:
            yield from _read_csv(text)
        else:
            raise InvalidInputError("is empty")


def _read_zeek(path: Path) -> Iterator[tuple[dict[str, pa.Array], int]]:
    with path.open("rb", buffering=0) as file:
        source = RowInput(file)
        lines = whole_lines(iter(source.unpacked(), b""), end_of_lines, source)
        for table in zeek_tables(lines, lambda fields: list(choose(list(fields)).values())):
            if table.num_rows:
                chosen = choose(table.column_names)
                columns = {name: table.column(field) for name, field in chosen.items()}
                yield {name: each.combine_chunks() for name, each in columns.items()}, len(table)


def _read_parquet(path: Path) -> Iterator[tuple[dict[str, pa.Array], int]]:
    with pq.ParquetFile(path) as file:
        chosen = choose(file.schema_arrow.names)
        for batch in file.iter_batches(BATCH_ROWS, columns=list(chosen.values())):
            yield {field: batch.column(name) for field, name in chosen.items()}, batch.num_rows


def _read_csv(text: io.BufferedIOBase) -> Iterator[tuple[dict[str, pa.Array], int]]:
    strings = pa.csv.ConvertOptions(
        null_values=list(EMPTY_CELLS),
        strings_can_be_null=True,
        column_types={name: pa.string() for names in NAMES.values() for name in names},
    )
    reader = pa.csv.open_csv(
        text, read_options=pa.csv.ReadOptions(use_threads=False), convert_options=strings
    )
    chosen = choose(reader.schema.names)
    for batch in reader:
        yield {field: batch.column(name) for field, name in chosen.items()}, batch.num_rows


def _slice(column: pa.Array, start: int) -> pa.Array:
    return column.slice(start, BATCH_ROWS)


def _is_ascending(ts: pa.Array) -> bool:
    return bool(pc.all(pc.less_equal(ts[:-1], ts[1:])).as_py()) if len(ts) > 1 else True


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()) or type(error).__name__
