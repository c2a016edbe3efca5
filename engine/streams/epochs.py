"""Epoch files: their names, writing and reading them.

`<after>_<upto>.parquet` holds the rows with after < stime <= upto (microseconds), ordered by stime.
A file is written as `.tmp-*` and renamed: the rename commits. `scanning.py` has what a folder of
them says.

Every page has a checksum, which is compared whenever it is read, by Spark as well, and so has the
footer (`footers.py`). Beyond that the footer must be as the file's name and schema say when a log
is opened, and as the rows of each row group when that is read. Files from before there were
checksums are read without.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from engine.objects.schema import STIME
from engine.streams import footers
from engine.streams.ordering import between, bounds, is_ordered
from engine.streams.storage import TEMPORARY, sync_file
from overlay.errors import DamagedError, InternalError, StorageError
from overlay.files import storing

GROUP_BYTES: Final = 4 * 2**20
"""Arrow bytes in one row group, at most unless a row has more: a reader is given one at a time."""
JOB_BYTES: Final = 128 * 2**20
"""Arrow bytes of the rows that one job of Spark takes of its inputs, unless one epoch has more: its
result is in the memory of Spark and of the peer at once."""
_GROUP_ROWS: Final = 2**17
"""Most rows in one row group."""
_CONTENT: Final = "arrow_bytes"
"""Key of what a footer says of a file's `EpochFile.content`."""


@dataclass(slots=True, eq=False)
class EpochFile:
    """One file of the log.

    Attributes:
        after, upto: the interval, microseconds. rows, bytes: in it, and of the file.
        content: Arrow bytes of its rows: a file of like rows is much smaller than they are.
        low, high: least and greatest stime in it; None without rows.
        pins: readers that still need the file under this path.
        replaced: it is no longer part of the log, and goes when the last pin does.
        lost: it is damaged or missing: of its rows nothing is known but the interval.
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
        """Whether it has rows with after < stime <= upto (or may have: its ends are around)."""
        if self.lost:
            return self.after < upto and self.upto > after
        if self.low is None or self.high is None:
            return False
        return self.low <= upto and self.high > after


@contextmanager
def pinned(files: Sequence[EpochFile]) -> Iterator[Sequence[EpochFile]]:
    """The files stay under their paths while the context lasts."""
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
    """Deletes a file that others replace. One that stays is dropped by the next start."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


class EpochDamagedError(DamagedError, code=None):
    """path: of the file."""

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(f"{path} is damaged ({reason}): it is fetched again where it can be")
        self.path = path


def path_of(folder: Path, after: int, upto: int) -> Path:
    return folder / f"{after}_{upto}.parquet"


class EpochWriter:
    """Writes one epoch file under a temporary name, piece by piece; `commit` gives it its own.

    Blocking; may run in any thread. Settings by measurement on (timestamp, 2 strings, 3 ints),
    100,000 rows, CPU time: no compression 4.6 ms and 4.5 MB; lz4 8.0 and 3.0; snappy 7.6 and 3.0;
    zstd 11.2 and 1.7; without dictionaries 3.6 and 7.3 MB. So recent epochs are not compressed, and
    compaction, which nobody waits for, uses zstd. Statistics of stime only: nothing else is pruned
    by. Checksums of pages cost 1.4 ms more here (12 %), and 1.3 ms when it is read again (20 %);
    under Spark they are not seen beside the 110 ms that reading takes it.
    """

    def __init__(self, folder: Path, schema: pa.Schema, *, compress: bool, durable: bool) -> None:
        self._temporary = folder / f"{TEMPORARY}{id(self):x}.parquet"
        self._durable = durable
        self.rows = self.content = 0
        strings = [f.name for f in schema if pa.types.is_string(f.type)]
        with storing(self._temporary):
            self._writer = pq.ParquetWriter(
                self._temporary,
                schema,
                compression="zstd" if compress else "none",
                compression_level=1 if compress else None,
                use_dictionary=strings or False,
                write_statistics=[STIME],
                write_page_checksum=True,
            )

    def write(self, table: pa.Table) -> None:
        """Raises: StorageError: call `abandon` then."""
        if not table.num_rows:
            return  # a row group without rows has no statistics
        with storing(self._temporary):
            for group in _groups(table):
                self._writer.write_table(group)
        self.rows += table.num_rows
        self.content += table.nbytes

    def finish(self) -> None:
        """Completes the file, still under its temporary name. Raises: StorageError."""
        with storing(self._temporary):
            self._writer.add_key_value_metadata({_CONTENT: str(self.content)})
            self._writer.close()
            footers.seal(self._temporary)
            if self._durable:
                sync_file(self._temporary)

    @property
    def bytes(self) -> int:
        """Of the finished file."""
        with storing(self._temporary):
            return self._temporary.stat().st_size

    def abandon(self) -> None:
        """Removes what was written."""
        # A full disk refuses the footer as well; the file goes anyway.
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._writer.is_open = False  # or it complains once more when it is collected
        discard(self._temporary)

    def commit(self, path: Path) -> None:
        """The rename that makes it part of the log. Raises: StorageError."""
        with storing(path):
            self._temporary.rename(path)


def _groups(table: pa.Table) -> Iterator[pa.Table]:
    """The rows of each row group: of about equal numbers, unless some rows are much larger."""
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
    """Arrow bytes of all rows of a file; of one from before that was written down, the bytes of its
    pages."""
    written = (metadata.metadata or {}).get(_CONTENT.encode())
    if written is not None:
        return int(written)
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    return sum(group.total_byte_size for group in groups)


def reach_of(files: Sequence[EpochFile], after: int, limit_rows: int, limit_bytes: int) -> int:
    """See `StreamLog.reach`."""
    rows, size, upto = 0, 0, after
    for file in files:
        if file.upto <= after:
            continue
        rows += file.rows
        size += file.content
        if upto > after and (rows > limit_rows or size > limit_bytes):
            break
        upto = file.upto
    return upto


def count_rows(file: EpochFile, after: int, upto: int) -> int:
    """How many rows have after < stime <= upto. Reads the stimes of row groups that are cut, and
    nothing where the whole file is inside or outside.

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


def tail_of(files: Sequence[EpochFile], rows: int, *, whole_files: bool = False) -> int | None:
    """The latest boundary that at least so many rows follow; None where there are fewer.

    Reads the stimes of one row group. What follows a lost file counts, and not what is before.

    Args:
        whole_files: none within a file is looked for, and nothing is read.

    Raises:
        As `read_groups`.
    """
    for file in reversed(files):
        if file.lost:
            return file.upto
        if file.rows >= rows:
            return file.after if whole_files else _tail_within(file, rows)
        rows -= file.rows
    return None


def _tail_within(file: EpochFile, rows: int) -> int:
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
        EpochDamagedError: it is damaged, missing, or the disk does not give it.
        StorageError: it cannot be opened for now, for want of memory or of open files.
    """
    try:
        footers.check(path)
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
"""What a damaged file makes Arrow raise; from `ValueError` on by what its footer says."""
_FOR_NOW: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR})


def read_group(
    parquet: pq.ParquetFile, group: int, columns: Sequence[str] | None = None
) -> pa.Table:
    """The rows of a row group, which are those that the footer tells of.

    Args:
        columns: stime, and others; None: all.

    Raises:
        pa.ArrowInvalid: they are not.
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
    """Our own invariant, checked before it can spoil a file.

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
