"""Epoch files: their names, writing and reading them.

`<after>_<upto>.parquet` holds the rows with after < stime <= upto (microseconds), ordered by stime.
A file is written as `.tmp-*` and renamed: the rename commits. `scanning.py` reads a folder of them.

Every page has a checksum, which every reader compares, Spark too; the footer has one of ours. The
footer must also agree with the file's name and schema when a log is opened, and with the rows of
each row group when that is read.

    pages | "MEDUSA1F" | crc32 u32 | footer | length of footer u32 | "PAR1"        (little endian)

The footer's checksum covers everything after it. Readers of Parquet find the footer from the end
and the pages by the footer, so they do not see it. It is compared before Arrow sees the file: some
footers with one wrong bit end the process (measured, Arrow 26).
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from medusa.engine.objects.schema import STIME
from medusa.engine.streams.ordering import between, bounds, is_ordered
from medusa.engine.streams.parquet import open_parquet, write_parquet
from medusa.engine.streams.storage import TEMPORARY, sync_file
from medusa.overlay.errors import DamagedError, InternalError, StorageError
from medusa.overlay.files import storing

GROUP_BYTES: Final = 4 * 2**20
"""Most Arrow bytes in one row group, unless a single row has more: a reader reads one group at a
time."""
JOB_BYTES: Final = 128 * 2**20
"""Most Arrow bytes of the input rows of one Spark job, unless one epoch has more: Spark and the
peer have its result in memory at once."""
_GROUP_ROWS: Final = 2**17
"""Most rows in one row group."""
_CONTENT: Final = "arrow_bytes"
"""The footer's key of `EpochFile.content`."""


@dataclass(slots=True, eq=False)
class EpochFile:
    """One file of the log.

    Attributes:
        after, upto: the interval, microseconds. rows: the number of its rows. bytes: the bytes of
            the file. content: Arrow bytes of its rows; a file of similar rows is much smaller.
        low, high: least and greatest stime in it; None without rows.
        pins: readers that still need the file under this path.
        replaced: whether it has left the log, and is deleted with its last pin. lost: whether it is
            damaged or missing: then only its interval is known.
    """

    path: Path
    after: int
    upto: int
    rows: int
    bytes: int
    content: int
    low: int | None
    high: int | None
    pins: int = field(default=0)
    replaced: bool = field(default=False)
    lost: bool = field(default=False)

    def holds(self, after: int, upto: int) -> bool:
        """Whether the file has, or may have, rows with after < stime <= upto, by its least and
        greatest stime."""
        if self.lost:
            return self.after < upto and self.upto > after
        if self.low is None or self.high is None:
            return False
        return self.low <= upto and self.high > after


@contextmanager
def pinned(files: Sequence[EpochFile]) -> Iterator[Sequence[EpochFile]]:
    """Keep the files under their paths during the block."""
    for file in files:
        file.pins += 1
    try:
        yield files
    finally:
        for file in files:
            file.pins -= 1
            if file.replaced and not file.pins:
                discard(file.path)


def discard(path: Path) -> None:
    """Delete a file that others replace. If that fails, the next start drops it."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


class EpochDamagedError(DamagedError, code=None):
    """A damaged epoch file. path: the path of the file."""

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(f"{path} is damaged ({reason}): it is fetched again where it can be")
        self.path = path


def lost_file(path: Path, after: int, upto: int) -> EpochFile:
    """A lost file: it may have rows, from its beginning on, so it does not count as empty."""
    size = path.stat().st_size if path.is_file() else 0
    return EpochFile(path, after, upto, 0, size, 0, after + 1, after + 1, lost=True)


def path_of(folder: Path, after: int, upto: int) -> Path:
    return folder / f"{after}_{upto}.parquet"


class EpochWriter:
    """Writes one epoch file under a temporary name, piece by piece; `commit` gives it its final
    name.

    Blocking; may run in any thread.
    """

    def __init__(self, folder: Path, schema: pa.Schema, *, compress: bool, durable: bool) -> None:
        # The temporary name has no ending of Parquet files: some programs list even names with a
        # dot before them.
        self._temporary = folder / f"{TEMPORARY}{id(self):x}"
        self._durable = durable
        self.rows = self.content = 0
        with storing(self._temporary):
            self._writer = open_parquet(self._temporary, schema, compress=compress)

    def write(self, table: pa.Table) -> None:
        """Append rows to the file. Raises: StorageError: the disk does not take the rows; the
        caller must call `abandon` then."""
        if not table.num_rows:
            return  # a row group without rows has no statistics
        with storing(self._temporary):
            for group in _groups(table):
                self._writer.write_table(group)
        self.rows += table.num_rows
        self.content += table.nbytes

    def finish(self) -> None:
        """Complete the file, still under its temporary name. Raises: StorageError."""
        with storing(self._temporary):
            self._writer.add_key_value_metadata({_CONTENT: str(self.content)})
            self._writer.close()
            seal_footer(self._temporary)
            if self._durable:
                sync_file(self._temporary)

    @property
    def bytes(self) -> int:
        """The size of the finished file."""
        with storing(self._temporary):
            return self._temporary.stat().st_size

    def abandon(self) -> None:
        """Remove the temporary file."""
        # A full disk refuses the footer as well; the file is removed anyway.
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._writer.is_open = False  # otherwise it reports the error again when it is collected
        discard(self._temporary)

    def commit(self, path: Path) -> None:
        """Rename the file into the log. Raises: StorageError."""
        with storing(path):
            self._temporary.rename(path)


def _groups(table: pa.Table) -> Iterator[pa.Table]:
    """Cut rows into row groups of about equal numbers of rows, unless some rows are much larger."""
    pieces = max(-(-table.num_rows // _GROUP_ROWS), -(-table.nbytes // GROUP_BYTES))
    step = -(-table.num_rows // pieces)
    for start in range(0, table.num_rows, step):
        rows = table.slice(start, step)
        if rows.num_rows > 1 and rows.nbytes > 2 * GROUP_BYTES:
            yield from _groups(rows)
        else:
            yield rows


def read_groups(path: Path, schema: pa.Schema, after: int, upto: int) -> Iterator[pa.Table]:
    """The rows with after < stime <= upto, one row group at a time, in order.

    Raises:
        EpochDamagedError: the file is damaged. StorageError: it cannot be read for now.
    """
    with reading(path) as parquet:
        for group in range(parquet.num_row_groups):
            ends = parquet.metadata.row_group(group).column(0).statistics
            if ends.max <= after or ends.min > upto:
                continue
            yield between(rows_of(parquet, group, schema), after, upto)


def rows_of(parquet: pq.ParquetFile, group: int, schema: pa.Schema) -> pa.Table:
    """All rows of one row group; see `read_group`."""
    return pa.Table.from_arrays(read_group(parquet, group).columns, schema=schema)


def content_of(metadata: pq.FileMetaData) -> int:
    """Arrow bytes of all rows of a file; if the file does not have the number, the bytes of its
    pages."""
    written = (metadata.metadata or {}).get(_CONTENT.encode())
    if written is not None:
        return int(written)
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    return sum(group.total_byte_size for group in groups)


def count_rows(file: EpochFile, after: int, upto: int) -> int:
    """How many rows have after < stime <= upto. It reads only the stimes of row groups that an end
    of the interval cuts.

    Raises:
        As `read_groups`.
    """
    if file.low is None or file.high is None or not file.holds(after, upto):
        return 0
    if after < file.low and file.high <= upto:
        return file.rows
    count = 0
    with reading(file.path) as parquet:
        for group in range(parquet.num_row_groups):
            metadata = parquet.metadata.row_group(group)
            ends = metadata.column(0).statistics
            if after < ends.min and ends.max <= upto:
                count += metadata.num_rows
            elif ends.max > after and ends.min <= upto:
                stime = read_group(parquet, group, [STIME])
                count += between(stime, after, upto).num_rows
    return count


def tail_within(file: EpochFile, rows: int) -> int:
    """The latest boundary within a file that has at least `rows` rows after it."""
    with reading(file.path) as parquet:
        group = parquet.num_row_groups - 1
        while parquet.metadata.row_group(group).num_rows < rows:
            rows -= parquet.metadata.row_group(group).num_rows
            group -= 1
        stime = read_group(parquet, group, [STIME]).column(STIME)
        return int(stime[-rows].as_py()) - 1


@contextmanager
def reading(path: Path) -> Iterator[pq.ParquetFile]:
    """An epoch file, opened so that every page is compared with its checksum.

    Raises:
        EpochDamagedError: it is damaged, missing or unreadable.
        StorageError: it cannot be opened for now, because memory or open files have run out.
    """
    try:
        check_footer(path)
        with pq.ParquetFile(path, page_checksum_verification=True) as parquet:
            yield parquet
    except _UNREADABLE as error:
        if isinstance(error, OSError) and error.errno in _FOR_NOW:
            raise StorageError(f"{path}: {error.strerror}: try again") from error
        raise EpochDamagedError(path, error) from error


_UNREADABLE: Final = (
    pa.ArrowException,
    OSError,
    ValueError,
    ArithmeticError,
    TypeError,
    AttributeError,
)
"""Errors of Arrow over a damaged file; those from `ValueError` on are caused by the footer."""
_FOR_NOW: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR})


def read_group(
    parquet: pq.ParquetFile, group: int, columns: Sequence[str] | None = None
) -> pa.Table:
    """Read a row group, and check it against the footer.

    Args:
        columns: stime, and others; None: all.

    Raises:
        pa.ArrowInvalid: they differ.
    """
    rows = parquet.read_row_group(group, columns=columns, use_threads=False)
    told = parquet.metadata.row_group(group)
    stime = rows.column(STIME).combine_chunks()
    if len(stime) != told.num_rows or not is_ordered(stime):
        raise pa.ArrowInvalid(f"row group {group} has other rows than the footer says")
    ends = told.column(0).statistics
    if bounds(stime, ordered=True) != (ends.min, ends.max):
        raise pa.ArrowInvalid(f"row group {group} has other times than the footer says")
    return rows


def check_rows(table: pa.Table, schema: pa.Schema, after: int, upto: int) -> None:
    """Check the engine's own invariant before it can spoil a file.

    Raises:
        InternalError: the rows are not of this schema, not in order, or not in the interval.
    """
    if not table.schema.equals(schema):
        raise InternalError(f"rows of {table.schema.names}, expected {schema.names}")
    stime = table.column(STIME)
    if not is_ordered(stime.combine_chunks()):
        raise InternalError(f"the rows of epoch ({after}, {upto}] are not ordered by stime")
    low, high = bounds(stime, ordered=True)
    if low <= after or high > upto:
        raise InternalError(f"rows of {low}..{high} in epoch ({after}, {upto}]")


_MARK: Final = b"MEDUSA1F"
_TAIL: Final = struct.Struct("<I4s")
_CHECKSUM: Final = struct.Struct("<I")
_BEFORE: Final = len(_MARK) + _CHECKSUM.size


def write_rows(rows: pa.Table, path: Path) -> None:
    """Write a file outside of the logs that can be read like an epoch file, such as an executor's
    input."""
    write_parquet(rows, path)
    seal_footer(path)


def seal_footer(path: Path) -> None:
    """Add the checksum to a file that was just written. Raises: OSError."""
    with path.open("r+b", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        (length, _) = _TAIL.unpack(os.pread(file.fileno(), _TAIL.size, size - _TAIL.size))
        start = size - _TAIL.size - length
        tail = os.pread(file.fileno(), size - start, start)
        sealed = _MARK + _CHECKSUM.pack(zlib.crc32(tail)) + tail
        if os.pwrite(file.fileno(), sealed, start) < len(sealed):
            raise OSError(f"{path.name} was written in part")


def check_footer(path: Path) -> None:
    """Compare the checksum.

    Raises:
        ValueError: it is wrong. OSError: the file cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        end = os.pread(file.fileno(), _TAIL.size, max(0, size - _TAIL.size))
        if len(end) < _TAIL.size:
            raise ValueError(f"a file of {size} bytes")
        length, magic = _TAIL.unpack(end)
        start = size - _TAIL.size - length - _BEFORE
        sealed = b""
        if start >= 0 and magic == b"PAR1":
            sealed = os.pread(file.fileno(), size - start, start)
        if not sealed.startswith(_MARK):
            raise ValueError("its footer has no checksum where its length says")
        (told,) = _CHECKSUM.unpack_from(sealed, len(_MARK))
        if zlib.crc32(memoryview(sealed)[_BEFORE:]) != told:
            raise ValueError("the checksum of its footer is wrong")
