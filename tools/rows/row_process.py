"""Reads an untrusted file in a process of its own, with limited memory.

In every format a few kilobytes can claim gigabytes, and a file that crashes its library ends the
process. This process does nothing else: the user gets one line of error, and the rows posted before
stay. The rows come back as an Arrow stream of the schema's payload.
"""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

import msgspec
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from medusa.overlay.errors import InvalidInputError, MedusaError, NotFoundError
from medusa.tools.rows.format_names import format_of
from medusa.tools.rows.formats import Reading, RowFile, read_rows
from medusa.tools.rows.row_input import RowInput

MEMORY_BYTES: Final = 2**30
"""Bytes that the process may allocate: a few times the memory of a batch of long rows."""

_FAILED: Final = 3
"""The exit code when standard error has the one line with the reason; Python's own errors exit with
1."""

_ROWS: Final = b"rows"
"""Key of the schema's metadata: the number of rows."""

_FOUND: Final = b"found"
"""Key of a batch's metadata: `_Found` as JSON, in each batch in which it differs from that of the
batch before."""

_MAX_LINE: Final = 2000
"""Bytes of the line of error."""


class ReadRequest(Struct, frozen=True):
    """The request to read the file on standard input.

    Attributes:
        name: its name in messages. memory: bytes.
        until: the number of a pipe; see `RowInput`.
    """

    name: str
    reading: Reading
    memory: int = MEMORY_BYTES
    until: int | None = None


class _Found(Struct, frozen=True):
    """The facts about a file's columns so far; see `Rows`."""

    dropped: list[str] = []
    unfilled: list[str] = []


_CAUGHT_UP: Final = b"caught-up"
"""Key of the metadata of an empty batch of a followed file: see `Rows.caught_up`."""


_TORN: Final = b"torn"
"""Key of the metadata of the last, empty batch of a followed file: see `Rows.torn`."""


@dataclass
class Rows:
    """Rows being read.

    Attributes:
        total: bytes of the file, or None if not known (a pipe).
        rows: the number of the file's rows, if its format has it, once the first rows are read.
        dropped: columns that the schema does not have, found so far.
        unfilled: fields that no column has filled so far.
        caught_up: of a followed file whose last batch was empty: a time, in seconds since the
            epoch, at which it had no more rows than those read; else None.
        torn: whether the followed file was truncated: rows that it had may not have been read.
        goes_on: whether later rows will still be added to this file.
    """

    asked: ReadRequest
    total: int | None
    _file: IO[bytes]
    _process: subprocess.Popen[bytes]
    _said: IO[bytes]
    _position: int = 0
    rows: int | None = None
    dropped: list[str] = field(default_factory=list)
    unfilled: list[str] = field(default_factory=list)
    caught_up: float | None = None
    torn: bool = False
    goes_on: Callable[[], bool] = lambda: True

    @property
    def growing(self) -> bool:
        """Whether the file is followed."""
        return self.asked.until is not None

    @property
    def position(self) -> int:
        """The number of bytes read so far, of `total`: both processes share the file's offset."""
        if self.total is not None and not self._file.closed:
            self._position = min(os.lseek(self._file.fileno(), 0, os.SEEK_CUR), self.total)
        return self._position

    def batches(self) -> Iterator[pa.Table]:
        """The rows as payload tables; see `RowFile.batches`.

        Raises:
            InvalidInputError: names the file, and the row (from 1, after any header) and the field
                if there is one.
        """
        assert self._process.stdout is not None
        # the reason of a process that has ended early follows below
        with suppress(pa.ArrowInvalid, OSError, StopIteration):
            stream = pa.ipc.open_stream(self._process.stdout)
            if (rows := (stream.schema.metadata or {}).get(_ROWS)) is not None:
                self.rows = int(rows)
            payload = self.asked.reading.schema.payload
            while True:
                batch, news = stream.read_next_batch_with_custom_metadata()
                news = {} if news is None else dict(news)
                if _FOUND in news:
                    found = msgspec.json.decode(news[_FOUND], type=_Found)
                    self.dropped, self.unfilled = found.dropped, found.unfilled
                self.caught_up = float(news[_CAUGHT_UP]) if _CAUGHT_UP in news else None
                if _TORN in news:
                    self.torn = True
                    break
                yield pa.Table.from_arrays(batch.columns, schema=payload)
        code = self._process.wait()
        self._position = self.position  # callers ask for it after the file is closed
        if code == _FAILED:
            self._said.seek(0)
            raise InvalidInputError(self._said.read(_MAX_LINE).decode(errors="replace"))
        if code:
            raise InvalidInputError(
                f"{self.asked.name}: to read it takes more than {self.asked.memory >> 20} MiB of "
                "memory, or breaks what reads it: if it is what it should be, write it in smaller "
                "pieces"
            )


@contextmanager
def open_rows(path: Path, reading: Reading) -> Iterator[Rows]:
    """Open a file's rows, to be posted to a stream.

    Raises:
        NotFoundError: no such file. InvalidInputError: it cannot be opened.
    """
    with open_to_read(path) as file:
        status = os.fstat(file.fileno())
        size = status.st_size if stat.S_ISREG(status.st_mode) else None
        with read_apart(file, ReadRequest(str(path), reading_of(path, reading)), size) as rows:
            yield rows


def open_to_read(path: Path) -> IO[bytes]:
    """Open a file without a buffer.

    Raises:
        NotFoundError: no such file. InvalidInputError: it cannot be opened.
    """
    try:
        return path.open("rb", buffering=0)
    except FileNotFoundError:
        raise NotFoundError(f"no such file: {path}") from None
    except IsADirectoryError:
        raise InvalidInputError(f"{path} is a directory: give one of the files in it") from None
    except OSError as error:
        raise InvalidInputError(f"{path}: {error.strerror}") from None


def reading_of(path: Path, reading: Reading) -> Reading:
    """The reading with the format of the file's name, unless another is requested."""
    return reading if reading.kind else replace(reading, kind=format_of(path))


@contextmanager
def read_apart(file: IO[bytes], asked: ReadRequest, total: int | None = None) -> Iterator[Rows]:
    """The rows of an unread open file; Parquet needs one that can seek."""
    question = msgspec.json.encode(asked).decode()
    command = [sys.executable, "-P", "-m", "medusa.tools.rows.row_process", question]
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(
            command,
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=said,
            pass_fds=() if asked.until is None else (asked.until,),
        ) as process,
    ):
        try:
            yield Rows(asked, total, file, process, said)
        finally:
            process.kill()


def main() -> int:
    """Write the rows of the file on standard input to standard output."""
    asked = msgspec.json.decode(sys.argv[1], type=ReadRequest)
    resource.setrlimit(resource.RLIMIT_DATA, (asked.memory, asked.memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        # Not closed: a thread of Arrow's may be reading ahead from a silent pipe.
        file = open(0, "rb", buffering=0)  # noqa: SIM115 - see above
        source = RowInput(file, asked.until)
        rows = read_rows(source, asked.name, asked.reading)
        _write(rows, asked.reading.schema.payload, source)
    except MedusaError as error:
        sys.stderr.buffer.write(str(error).encode(errors="replace")[:_MAX_LINE])
        sys.stderr.flush()
        return _FAILED
    except (BrokenPipeError, KeyboardInterrupt):
        return 0  # the reader has left
    return 0


def _write(rows: RowFile, payload: pa.Schema, source: RowInput) -> None:
    """Write the rows to standard output, with the file's metadata for the other side."""
    schema = payload if rows.rows is None else payload.with_metadata({_ROWS: str(rows.rows)})
    told = _Found()
    nothing = pa.RecordBatch.from_arrays(
        [pa.array([], each.type) for each in payload], schema=payload
    )
    with pa.ipc.new_stream(sys.stdout.buffer, schema) as sink:

        def report_caught_up(at: float) -> None:
            """Report that the file was read to its end, after all rows before."""
            sink.write_batch(nothing, custom_metadata={_CAUGHT_UP: str(at).encode()})
            sys.stdout.flush()

        source.on_caught_up = report_caught_up
        for table in rows.batches():
            for batch in table.to_batches():
                found = _Found(list(rows.columns.dropped), rows.columns.unfilled)
                news = {_FOUND: msgspec.json.encode(found)} if found != told else None
                sink.write_batch(batch, custom_metadata=news)
                told = found
            sys.stdout.flush()
        if source.torn:
            sink.write_batch(nothing, custom_metadata={_TORN: b""})
    sys.stdout.flush()  # the end of the stream


if __name__ == "__main__":
    # at once: otherwise a thread of Arrow's that reads ahead would abort the process
    os._exit(main())
