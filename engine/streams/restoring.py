"""Lost files of a log: the texts about them, and how they are written anew."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow as pa
import trio

from engine.objects.schema import BEGINNING, END
from engine.streams.epochs import EpochFile, EpochWriter, check_rows, read_groups
from engine.streams.ordering import between
from engine.streams.recent import Epoch
from engine.streams.scanning import describe
from overlay.errors import InternalError, NotRetainedError


def lost_in_words(file: EpochFile) -> str:
    """The loss, for people at this peer."""
    return (
        f"{file.path} is damaged or missing: the rows after boundary {file.after} up to "
        f"{file.upto} are lost until another peer gives them again, or a copy of the file is put "
        "in its place"
    )


def not_here(file: EpochFile) -> NotRetainedError:
    """The error for a reader of the file's rows."""
    return NotRetainedError(
        f"the rows after boundary {file.after} up to {file.upto} are damaged at this peer, and no "
        f"other peer has given them again so far: read from {file.upto} on"
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
    """Write a lost file anew, finished but not committed; gives its description and its writer.

    Args:
        epochs: its content, in order; rows beyond it are left out.

    Raises:
        NotRetainedError: they are not complete.
        InternalError: they differ from its content, as far as that is known.
        StorageError: the disk does not take them.
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
