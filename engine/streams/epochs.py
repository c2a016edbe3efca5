"""Epoch files: their names, writing and reading them, and what a folder of them says after a crash.

`<after>_<upto>.parquet` holds the rows with after < stime <= upto (microseconds), ordered by stime.
A file is written as `.tmp-*` and renamed: the rename commits. A file whose interval lies within
another's was replaced by it (compaction, or an empty epoch that extended it) and is dropped. The
files of a log are contiguous, the newest gives its boundary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from engine.schema import STIME
from engine.streams.ordering import between, bounds, is_ordered, rows_upto, tidy
from engine.streams.recent import Epoch
from engine.streams.storage import TEMPORARY, WRITTEN_BACK_S, sweep, sync_file
from overlay.errors import InternalError
from overlay.files import storing

_NAME: Final = re.compile(r"(-?\d{1,19})_(-?\d{1,19})\.parquet")

GROUP_BYTES: Final = 8 * 2**20
"""Arrow bytes in one row group: what reading a large file holds at once."""
_GROUP_ROWS: Final = 2**17
"""Most rows in one row group."""


@dataclass(slots=True, eq=False)
class EpochFile:
    """One file of the log.

    Attributes:
        after, upto: the interval, microseconds. rows, bytes: in it, and of the file.
        low, high: least and greatest stime in it; None without rows.
        pins: readers that still need the file under this path.
        replaced: it is no longer part of the log, and goes when the last pin does.
    """

    path: Path
    after: int
    upto: int
    rows: int
    bytes: int
    low: int | None
    high: int | None
    pins: int = field(default=0)
    replaced: bool = field(default=False)

    def holds(self, after: int, upto: int) -> bool:
        """Whether it has rows with after < stime <= upto (or may have: its ends are around)."""
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
                file.path.unlink(missing_ok=True)


def path_of(folder: Path, after: int, upto: int) -> Path:
    return folder / f"{after}_{upto}.parquet"


def scan(folder: Path, *, durable: bool = True) -> tuple[list[EpochFile], list[str]]:
    """The log in the folder, oldest first: the newest file and what is contiguous before it. And,
    for people, what a loss of power has taken where files are not `durable`: damaged ones at the
    end, which are removed with all that follow them, as if they had never been committed.

    Removes what a crash left: half-written files, files that others replaced, and files before a
    gap (retention was deleting them).

    Raises:
        InternalError: a file is damaged otherwise, or two overlap.
    """
    sweep(folder)
    found = [
        (int(match[1]), int(match[2]), path)
        for path in folder.glob("*.parquet")
        if (match := _NAME.fullmatch(path.name))
    ]
    found.sort(key=lambda item: (item[0], -item[1]))
    kept: list[tuple[int, int, Path]] = []
    for after, upto, path in found:
        if kept and upto <= kept[-1][1]:
            path.unlink()
            continue
        if kept and after < kept[-1][1]:
            raise InternalError(f"{path} and {kept[-1][2].name} overlap: move one of them away")
        if kept and after > kept[-1][1]:
            for _, _, old in kept:
                old.unlink()
            kept.clear()
        kept.append((after, upto, path))
    unsynced = set() if durable else _unsynced([path for _, _, path in kept])
    described: list[EpochFile] = []
    for number, (after, upto, path) in enumerate(kept):
        try:
            described.append(_describe(path, after, upto))
        except InternalError:
            if path not in unsynced:
                raise
            return described, _remove([path for _, _, path in kept[number:]])
    return described, []


def _unsynced(paths: Sequence[Path]) -> set[Path]:
    """Those that the kernel may not have written when the last of them was made."""
    made = {path: path.stat().st_mtime for path in paths}
    newest = max(made.values(), default=0.0)
    return {path for path in paths if made[path] >= newest - WRITTEN_BACK_S}


def _remove(paths: Sequence[Path]) -> list[str]:
    for path in paths:
        path.unlink()
    what = "a loss of power has torn it (engine.fsync = true would keep it); it is made anew"
    return [f"{path} was removed: {what} from what is there still" for path in paths]


def _describe(path: Path, after: int, upto: int) -> EpochFile:
    try:
        metadata = pq.read_metadata(path)
        low, high = _ends(metadata)
    except (pa.ArrowException, OSError) as error:
        raise InternalError(f"{path} is damaged: restore it from a copy ({error})") from error
    return EpochFile(path, after, upto, metadata.num_rows, path.stat().st_size, low, high)


def _ends(metadata: pq.FileMetaData) -> tuple[int | None, int | None]:
    if not metadata.num_rows:
        return None, None
    first = metadata.row_group(0).column(0).statistics
    last = metadata.row_group(metadata.num_row_groups - 1).column(0).statistics
    return first.min, last.max


class EpochWriter:
    """Writes one epoch file under a temporary name, piece by piece; `commit` gives it its own.

    Blocking; may run in any thread. Settings by measurement on (timestamp, 2 strings, 3 ints),
    100,000 rows, CPU time: no compression 4.6 ms and 4.5 MB; lz4 8.0 and 3.0; snappy 7.6 and 3.0;
    zstd 11.2 and 1.7; without dictionaries 3.6 and 7.3 MB. So recent epochs are not compressed, and
    compaction, which nobody waits for, uses zstd. Statistics of stime only: nothing else is pruned
    by.
    """

    def __init__(self, folder: Path, schema: pa.Schema, *, compress: bool, durable: bool) -> None:
        self._temporary = folder / f"{TEMPORARY}{id(self):x}.parquet"
        self._durable = durable
        self.rows = 0
        strings = [f.name for f in schema if pa.types.is_string(f.type)]
        with storing(self._temporary):
            self._writer = pq.ParquetWriter(
                self._temporary,
                schema,
                compression="zstd" if compress else "none",
                compression_level=1 if compress else None,
                use_dictionary=strings or False,
                write_statistics=[STIME],
            )

    def write(self, table: pa.Table) -> None:
        """Raises: StorageFullError: call `abandon` then."""
        if not table.num_rows:
            return  # a row group without rows has no statistics
        rows = max(1, min(_GROUP_ROWS, table.num_rows * GROUP_BYTES // max(1, table.nbytes)))
        with storing(self._temporary):
            self._writer.write_table(table, row_group_size=rows)
        self.rows += table.num_rows

    def finish(self) -> None:
        """Completes the file, still under its temporary name. Raises: StorageFullError."""
        with storing(self._temporary):
            self._writer.close()
            if self._durable:
                sync_file(self._temporary)

    def abandon(self) -> None:
        """Removes what was written."""
        # A full disk refuses the footer as well; the file goes anyway.
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._temporary.unlink(missing_ok=True)

    def commit(self, path: Path) -> None:
        """The rename that makes it part of the log. Raises: StorageFullError."""
        with storing(path):
            self._temporary.rename(path)


def read_groups(file: EpochFile, schema: pa.Schema, after: int, upto: int) -> Iterator[pa.Table]:
    """The rows with after < stime <= upto, one row group at a time, in order.

    Raises:
        InternalError: the file is damaged.
    """
    with _reading(file) as parquet:
        for group in range(parquet.num_row_groups):
            ends = parquet.metadata.row_group(group).column(0).statistics
            if ends.max <= after or ends.min > upto:
                continue
            rows = parquet.read_row_group(group, use_threads=False)
            yield between(_with_schema(rows, schema), after, upto)


def read_from(files: Sequence[EpochFile], schema: pa.Schema, after: int, limit_rows: int) -> Epoch:
    """The rows after a boundary, from files that follow it; blocking, in any thread.

    Stops at a boundary once it has `limit_rows`; inside a file, before the stime it has last.
    """
    found = [schema.empty_table()]
    count, upto = 0, after
    for file in files:
        for rows in read_groups(file, schema, after, file.upto):
            if count >= limit_rows:
                # A boundary within the file: the rows of the last stime may go on in this group.
                table = pa.concat_tables(found)
                whole = table.column(STIME)[-1].as_py() - 1
                if keep := rows_upto(table, whole):
                    return Epoch(after, whole, tidy(table.slice(0, keep)))
            found.append(rows)
            count += rows.num_rows
        upto = file.upto
        if count >= limit_rows:
            break
    return Epoch(after, upto, tidy(pa.concat_tables(found)))


def reach_of(files: Sequence[EpochFile], after: int, limit_rows: int) -> int:
    """See `StreamLog.reach`."""
    rows, upto = 0, after
    for file in files:
        if file.upto <= after:
            continue
        rows += file.rows
        if upto > after and rows > limit_rows:
            break
        upto = file.upto
    return upto


def count_rows(file: EpochFile, after: int, upto: int) -> int:
    """How many rows have after < stime <= upto. Reads the stimes of row groups that are cut, and
    nothing where the whole file is inside or outside.

    Raises:
        InternalError: the file is damaged.
    """
    if file.low is None or file.high is None or not file.holds(after, upto):
        return 0
    if after < file.low and file.high <= upto:
        return file.rows
    count = 0
    with _reading(file) as parquet:
        for group in range(parquet.num_row_groups):
            metadata = parquet.metadata.row_group(group)
            ends = metadata.column(0).statistics
            if after < ends.min and ends.max <= upto:
                count += metadata.num_rows
            elif ends.max > after and ends.min <= upto:
                stime = parquet.read_row_group(group, columns=[STIME], use_threads=False)
                count += between(stime, after, upto).num_rows
    return count


def tail_of(files: Sequence[EpochFile], rows: int, *, whole_files: bool = False) -> int | None:
    """The latest boundary that at least so many rows follow; None where there are fewer.

    Reads the stimes of one row group.

    Args:
        whole_files: none within a file is looked for, and nothing is read.

    Raises:
        InternalError: a file is damaged.
    """
    for file in reversed(files):
        if file.rows >= rows:
            return file.after if whole_files else _tail_within(file, rows)
        rows -= file.rows
    return None


def _tail_within(file: EpochFile, rows: int) -> int:
    with _reading(file) as parquet:
        group = parquet.num_row_groups - 1
        while parquet.metadata.row_group(group).num_rows < rows:
            rows -= parquet.metadata.row_group(group).num_rows
            group -= 1
        stime = parquet.read_row_group(group, columns=[STIME], use_threads=False).column(STIME)
        return int(stime[-rows].as_py()) - 1


@contextmanager
def _reading(file: EpochFile) -> Iterator[pq.ParquetFile]:
    """Raises: InternalError: the file is damaged."""
    try:
        with pq.ParquetFile(file.path) as parquet:
            yield parquet
    except (pa.ArrowException, OSError) as error:
        raise InternalError(f"{file.path} is damaged: restore it from a copy ({error})") from error


def _with_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_arrays(rows.columns, schema=schema)


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
