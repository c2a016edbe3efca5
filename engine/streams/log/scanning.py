"""Reads a folder of epoch files when a log is opened.

The files of a log are contiguous, and the newest gives its boundary. A file whose interval lies
within another's was replaced by it (compaction, or an empty epoch that extended it) and is dropped.
An interval without a file, or with a damaged one, is lost until it is fetched again. It stays a
part of the log, since the rows before and behind it keep their places. This module also has the
messages about lost files, and writes lost files anew.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import trio

from medusa.engine.objects.moments import boundary_in_words
from medusa.engine.objects.schema import BEGINNING, END, STIME
from medusa.engine.streams.log.epochs import (
    EpochDamagedError,
    EpochFile,
    EpochWriter,
    check_rows,
    content_of,
    lost_file,
    path_of,
    read_groups,
    reading,
)
from medusa.engine.streams.log.recent import Epoch
from medusa.engine.streams.ordering import between
from medusa.engine.streams.storage import WRITTEN_BACK_S, keep_aside, sweep
from medusa.overlay.errors import DamagedError, InternalError, NotRetainedError
from medusa.overlay.files import storing

MADE_EMPTY: Final = 0.0
"""The modification time of an empty file that marks a lost interval; so it is not taken for a torn
file."""

_NAME: Final = re.compile(r"(-?\d{1,19})_(-?\d{1,19})\.parquet")


def scan(
    folder: Path, schema: pa.Schema, *, durable: bool = True
) -> tuple[list[EpochFile], list[str]]:
    """The log in the folder, the oldest file first, and the losses by a loss of power, in words for
    people: unless files are `durable`, damaged ones at the end are put aside with all that follow
    them.

    Removes the leftovers of a crash: half-written files, and files that others replaced.

    Raises:
        DamagedError: two files overlap. StorageError: the folder cannot be read.
    """
    with storing(folder):
        sweep(folder)
        files = _found(folder, schema)
        unsynced = set() if durable else _unsynced([file.path for file in files])
        state, replaced = _contiguous(files)
        for file in replaced:
            file.path.unlink()
        return _without_torn(_without_gaps(state), unsynced)


def look(folder: Path, schema: pa.Schema) -> list[EpochFile]:
    """The log in the folder, oldest first; changes nothing. Blocking.

    Raises:
        DamagedError: two files overlap. StorageError: the folder cannot be read.
    """
    if not folder.is_dir():
        return []
    with storing(folder):
        return _without_gaps(_contiguous(_found(folder, schema))[0])


def _found(folder: Path, schema: pa.Schema) -> list[EpochFile]:
    """The epoch files there, by their start; of equal ones the longest first."""
    return [_described(path, after, upto, schema) for after, upto, path in intervals(folder)]


def intervals(folder: Path) -> list[tuple[int, int, Path]]:
    """The intervals in the names of the epoch files there, each with its file, by their start; of
    equal ones the longest first."""
    found = [
        (int(match[1]), int(match[2]), path)
        for path in folder.iterdir()
        if (match := _NAME.fullmatch(path.name))
    ]
    return sorted(found, key=lambda item: (item[0], -item[1]))


def _contiguous(files: Sequence[EpochFile]) -> tuple[list[EpochFile], list[EpochFile]]:
    """The files of the log, and the files that others replaced. Those within a damaged file's
    interval are neither: they stay where they are, for a person."""
    state: list[EpochFile] = []
    replaced: list[EpochFile] = []
    for file in files:
        if not state or file.after >= state[-1].upto:
            state.append(file)
        elif file.upto > state[-1].upto:
            raise DamagedError(f"{file.path} and {state[-1].path.name} overlap: move one away")
        elif not state[-1].lost:
            replaced.append(file)
    return state, replaced


def _without_gaps(files: Sequence[EpochFile]) -> list[EpochFile]:
    """The files, with lost files in place of the gaps."""
    whole: list[EpochFile] = []
    for file in files:
        if whole and file.after > whole[-1].upto:
            after, upto = whole[-1].upto, file.after
            whole.append(lost_file(path_of(file.path.parent, after, upto), after, upto))
        whole.append(file)
    return whole


def _without_torn(files: list[EpochFile], unsynced: set[Path]) -> tuple[list[EpochFile], list[str]]:
    for number, file in enumerate(files):
        if file.lost and file.path in unsynced:
            torn = [each.path for each in files[number:] if each.path.is_file()]
            return files[:number], [_put_aside(path) for path in torn]
    return files, []


def _put_aside(path: Path) -> str:
    aside = keep_aside(path)
    path.unlink()
    what = "a loss of power has torn it (engine.fsync = true would keep it); it is made anew"
    return f"{path} was put aside as {aside.name}: {what} from what is there still"


def _unsynced(paths: Sequence[Path]) -> set[Path]:
    """The files that a loss of power may have torn: the machine has restarted since they were
    written, and the kernel may not have synced them before the last one was written."""
    made = {path: path.stat().st_mtime for path in paths if path.is_file()}
    newest = max(made.values(), default=0.0)
    started = psutil.boot_time()
    return {
        path
        for path, at in made.items()
        if at != MADE_EMPTY and newest - WRITTEN_BACK_S <= at <= started
    }


def describe(path: Path, after: int, upto: int, schema: pa.Schema) -> EpochFile:
    """Describe a file by its footer, which must agree with its name and schema.

    Raises:
        EpochDamagedError: the footer does not agree. StorageError: the file cannot be read for now.
    """
    with reading(path) as parquet:
        ends = _ends(parquet.metadata, after, upto, schema)
        rows, content = parquet.metadata.num_rows, content_of(parquet.metadata)
    return EpochFile(path, after, upto, rows, path.stat().st_size, content, *ends)


def _described(path: Path, after: int, upto: int, schema: pa.Schema) -> EpochFile:
    try:
        return describe(path, after, upto, schema)
    except EpochDamagedError:
        return lost_file(path, after, upto)


def _ends(
    metadata: pq.FileMetaData, after: int, upto: int, schema: pa.Schema
) -> tuple[int | None, int | None]:
    """The least and the greatest stime in a file, checked against its name and schema.

    Raises:
        pa.ArrowInvalid: the file does not agree with its name or the schema. TypeError: the file
        has no statistics.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    if metadata.schema.names != schema.names or not metadata.schema.names[0] == STIME:
        raise pa.ArrowInvalid(f"it has the columns {metadata.schema.names}")
    if sum(group.num_rows for group in groups) != metadata.num_rows:
        raise pa.ArrowInvalid("its row groups do not have the rows that it has")
    if not groups:
        return None, None
    ends = [group.column(0).statistics for group in groups]
    times = [time for each in ends for time in (each.min, each.max)]
    if times != sorted(times) or times[0] <= after or times[-1] > upto:
        raise pa.ArrowInvalid(f"its rows are of {times[0]} to {times[-1]}")
    return times[0], times[-1]


def lost_in_words(file: EpochFile) -> str:
    """The loss, for people at this peer."""
    return (
        f"{file.path} is damaged or missing: {rows_in_words(file)} are lost until another peer "
        "gives them again, or a copy of the file is put in its place"
    )


def rows_in_words(file: EpochFile) -> str:
    """The interval of the file's rows, for people."""
    after, upto = boundary_in_words(file.after), boundary_in_words(file.upto)
    return f"the rows after boundary {after} up to {upto}"


def not_here(file: EpochFile) -> NotRetainedError:
    """The error for a reader of a lost file's rows."""
    return NotRetainedError(
        f"{rows_in_words(file)} are damaged at this peer, and no other peer has given them again "
        f"so far: read from {file.upto} on"
    )


def check_whole(path: Path, after: int, upto: int, schema: pa.Schema) -> EpochFile:
    """Read every page of a log's file, and describe it. Blocking.

    Raises:
        EpochDamagedError: it is damaged. StorageError: it cannot be read for now.
    """
    file = describe(path, after, upto, schema)
    read_all(path, schema)
    return file


def read_all(path: Path, schema: pa.Schema) -> None:
    """Read every page. Blocking. Raises: as `check_whole`."""
    for _ in read_groups(path, schema, BEGINNING, END):
        pass


async def write_anew(
    lost: EpochFile, epochs: AsyncIterator[Epoch], schema: pa.Schema, *, durable: bool
) -> tuple[EpochFile, EpochWriter]:
    """Write a lost file anew, finished but not committed; returns its description and its writer.
    Args: epochs: its content, in order; rows outside of its interval are left out. Raises:
    NotRetainedError: the epochs are not complete. InternalError: they differ from its content, as
    far as that is known. StorageError: the disk does not take them.
    """
    writer = EpochWriter(lost.path.parent, schema, compress=True, durable=durable)
    found = EpochFile(lost.path, lost.after, lost.upto, 0, 0, 0, None, None)
    reached = lost.after
    try:
        async for epoch in epochs:
            if epoch.after > reached:
                raise NotRetainedError(f"what follows boundary {reached} is not there either")
            upto = min(epoch.upto, lost.upto)
            rows = between(epoch.table, reached, upto)
            if rows.num_rows:
                check_rows(rows, schema, reached, upto)
                await trio.to_thread.run_sync(writer.write, rows)
                stime = rows.column(0)
                found.low = stime[0].as_py() if found.low is None else found.low
                found.high = stime[-1].as_py()
            reached = upto
            if reached == lost.upto:
                break
        if reached < lost.upto:
            raise NotRetainedError(f"what follows boundary {reached} is not there either")
        await trio.to_thread.run_sync(writer.finish)
        found.rows, found.bytes, found.content = writer.rows, writer.bytes, writer.content
        if lost.rows and (found.rows, found.low, found.high) != (lost.rows, lost.low, lost.high):
            raise InternalError(
                f"{found.rows} rows of {found.low} to {found.high} came for {lost.path.name}, "
                f"which had {lost.rows} of {lost.low} to {lost.high}"
            )
    except BaseException:
        writer.abandon()
        raise
    return found, writer
