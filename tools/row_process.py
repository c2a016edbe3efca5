"""A stranger's file is read in a process of its own, of bounded memory.

A few kilobytes can claim gigabytes, in every format, and a file that breaks the library that reads
it ends the process. Here that process does nothing else: the user is told, in one line, and what
was posted before stays. The rows come back as an Arrow stream of the schema's payload.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import msgspec
import pyarrow as pa
from msgspec import Struct

from engine.schema import Schema
from overlay.errors import InvalidInputError, MedusaError, NotFoundError
from tools.rows import Format, format_of, read_rows

MEMORY_BYTES: Final = 2**30
"""Most that the process may allocate: a few times the memory of a batch of long rows."""

BUFFER_BYTES: Final = 2**20
"""Bytes read ahead; the first line of a CSV file is checked within them."""

_FAILED: Final = 3
"""The exit code when standard error has the one line that says why; Python's own faults exit with
1."""

_MAX_LINE: Final = 2000
"""Bytes of that line."""


class Asked(Struct, frozen=True):
    """How the file on standard input is to be read. name: for messages. memory: bytes."""

    name: str
    schema: Schema
    kind: Format
    ignore_extra: bool = False
    memory: int = MEMORY_BYTES


@dataclass
class Rows:
    """Rows being read.

    Attributes:
        total: bytes of the file, or None where it cannot be known (a pipe).
    """

    asked: Asked
    total: int | None
    _file: IO[bytes]
    _process: subprocess.Popen[bytes]
    _said: IO[bytes]

    @property
    def position(self) -> int:
        """Bytes read so far, of `total`: both processes share the file's offset."""
        if self.total is None:
            return 0
        return min(os.lseek(self._file.fileno(), 0, os.SEEK_CUR), self.total)

    def batches(self) -> Iterator[pa.Table]:
        """The rows as payload tables; see `RowFile.batches`.

        Raises:
            InvalidInputError: naming the file, and the row (from 1, after any header) and the field
                where there is one.
        """
        assert self._process.stdout is not None
        # a process that has ended early says why below
        with suppress(pa.ArrowInvalid, OSError):
            for batch in pa.ipc.open_stream(self._process.stdout):
                yield pa.Table.from_batches([batch])
        code = self._process.wait()
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
def open_rows(
    path: Path, schema: Schema, kind: Format | None = None, *, ignore_extra: bool = False
) -> Iterator[Rows]:
    """A file's rows, to be posted to a stream of this schema.

    Raises:
        NotFoundError: no such file. InvalidInputError: it cannot be opened, or its name does not
            tell its format.
    """
    kind = kind or format_of(path)
    try:
        file = path.open("rb")
        size = path.stat().st_size if path.is_file() else None
    except FileNotFoundError:
        raise NotFoundError(f"no such file: {path}") from None
    except OSError as error:
        raise InvalidInputError(f"{path}: {error.strerror}") from None
    with file, read_apart(file, Asked(str(path), schema, kind, ignore_extra), size) as rows:
        yield rows


@contextmanager
def read_apart(file: IO[bytes], asked: Asked, total: int | None = None) -> Iterator[Rows]:
    """The rows of an open file of which nothing has been read; Parquet needs one that can seek."""
    question = msgspec.json.encode(asked).decode()
    command = [sys.executable, "-P", "-m", "tools.row_process", question]
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(command, stdin=file, stdout=subprocess.PIPE, stderr=said) as process,
    ):
        try:
            yield Rows(asked, total, file, process, said)
        finally:
            process.kill()


def main() -> int:
    """Write the rows of the file on standard input to standard output."""
    asked = msgspec.json.decode(sys.argv[1], type=Asked)
    resource.setrlimit(resource.RLIMIT_DATA, (asked.memory, asked.memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        # Not closed: a thread of Arrow's may be reading ahead in it, from a pipe that is silent.
        file = open(0, "rb", buffering=BUFFER_BYTES)  # noqa: SIM115
        rows = read_rows(
            file, asked.name, asked.schema, asked.kind, ignore_extra=asked.ignore_extra
        )
        with pa.ipc.new_stream(sys.stdout.buffer, asked.schema.payload) as sink:
            for table in rows.batches():
                sink.write_table(table)
                sys.stdout.flush()
        sys.stdout.flush()  # the end of the stream
    except MedusaError as error:
        sys.stderr.buffer.write(str(error).encode(errors="replace")[:_MAX_LINE])
        sys.stderr.flush()
        return _FAILED
    except (BrokenPipeError, KeyboardInterrupt):
        return 0  # nobody reads on
    return 0


if __name__ == "__main__":
    # At once: a thread of Arrow's that reads ahead would end the process with an abort.
    os._exit(main())
