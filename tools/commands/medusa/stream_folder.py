"""`medusa subscribe --into FOLDER`: a stream's tuples as Parquet files of the reader's own.

A file is added with a rename, and never changed or removed. Each tuple is in exactly one file. So
programs may list the folder and read its files at any time, also those that look for new files
again and again, as Spark's readStream does.

`<after>_<upto>.parquet` has the tuples with after < stime <= upto (microseconds), as in a log. The
next run continues behind the last one. Files whose names begin with `.` or `_` have no rows: Spark
ignores them.
"""

from __future__ import annotations

import fcntl
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import trio
from msgspec import Struct

from medusa.engine.objects.schema import END
from medusa.engine.streams.log.epochs import EpochWriter, path_of
from medusa.engine.streams.log.scanning import intervals
from medusa.engine.streams.storage import sweep, sync_folder
from medusa.overlay.errors import ConflictError, NotFoundError
from medusa.overlay.files import load_json, save_json, storing
from medusa.tools.client.async_client import open_medusa
from medusa.tools.client.interrupt import run_interruptible
from medusa.tools.client.subscription import Subscription
from medusa.tools.commands.medusa.print_stream import upto

FILE_BYTES: Final = 64 * 2**20
"""Arrow bytes that wait for their file at most, about; then it is written before its time."""

ABOUT: Final = "_stream.json"
LOCK: Final = ".lock"


class About(Struct, frozen=True):
    """The description of a folder: its stream."""

    stream: str


@dataclass(frozen=True)
class Options:
    """The options of `medusa subscribe --into`; see the command's help.

    Attributes:
        after: where an empty folder begins. after, until: boundaries, microseconds.
        every_s: seconds for which a tuple waits for its file, at most.
        also: homes of other peers of ours.
    """

    after: int
    until: int
    every_s: float
    subscriber: str
    patience_s: float
    also: tuple[str, ...] = ()


class StreamFolder:
    """A folder of one stream's files, and the tuples that wait for the next file. Blocking.

    Attributes:
        boundary: the files have all tuples up to it, microseconds.
        waiting_bytes: Arrow bytes.
    """

    def __init__(self, folder: Path, boundary: int) -> None:
        self._folder = folder
        self.boundary = self._reached = boundary
        self._waiting: list[pa.Table] = []
        self.waiting_bytes = 0

    def add(self, table: pa.Table, reached: int) -> None:
        """Have the next tuples wait. reached: the boundary that they complete."""
        if table.num_rows:
            self._waiting.append(table)
            self.waiting_bytes += table.nbytes
        self._reached = reached

    def write(self) -> None:
        """Write the tuples that wait to a file, if there are any.

        Raises:
            StorageError: the disk does not take it; they still wait.
        """
        if self._waiting:
            schema = self._waiting[0].schema
            writer = EpochWriter(self._folder, schema, compress=True, durable=True)
            try:
                for table in self._waiting:
                    writer.write(table)
                writer.finish()
                writer.commit(path_of(self._folder, self.boundary, self._reached))
            except BaseException:
                writer.abandon()
                raise
            with storing(self._folder):
                sync_folder(self._folder)
        self._waiting, self.waiting_bytes = [], 0
        self.boundary = self._reached


@contextmanager
def open_folder(folder: Path, stream: str, after: int) -> Iterator[StreamFolder]:
    """Open a folder for a stream's files, which is made if it is missing; tuples that wait at the
    end of the block are written.

    Args:
        after: the boundary behind which an empty folder begins.

    Raises:
        ConflictError: it has another stream's files, or another process writes there.
    """
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("w")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConflictError(f"{folder}: another process writes there: stop it first") from None
        _check_stream(folder, stream)
        with storing(folder):
            sweep(folder)
            found = intervals(folder)
        opened = StreamFolder(folder, found[-1][1] if found else after)
        try:
            yield opened
        finally:
            opened.write()


def _check_stream(folder: Path, stream: str) -> None:
    try:
        known = load_json(folder / ABOUT, About, mend="take another folder").stream
    except NotFoundError:
        if intervals(folder):
            raise ConflictError(
                f"{folder}: has files that `medusa subscribe --into` did not write: take another "
                "folder"
            ) from None
        save_json(folder / ABOUT, About(stream))
        return
    if known != stream:
        raise ConflictError(f"{folder}: has the files of {known}: take another folder")


def write_stream(home: str | None, stream: str, folder: Path, options: Options) -> None:
    """Write the stream's files until it ends or passes `until`; tuples that wait are written at the
    end, even after Ctrl-C.

    Raises:
        As `open_folder`; StorageError: the disk does not take a file.
    """

    async def main() -> None:
        opening = open_medusa(home, patience_s=options.patience_s, also=options.also)
        with open_folder(folder, stream, options.after) as files:
            async with opening as client:
                subscription = client.subscribe(stream, files.boundary, options.subscriber)
                async with subscription:
                    await copy(subscription, files, options)

    run_interruptible(main)


async def copy(subscription: Subscription, files: StreamFolder, options: Options) -> None:
    """Write the epochs of a subscription to files, each `every_s` seconds or when it is large. An
    epoch is acknowledged once it is in a file."""
    subscription.stored = files.boundary
    write_at = math.inf
    while files.boundary < min(options.until, END):
        with trio.move_on_at(write_at):
            if not await subscription.fetch():
                return
            epoch = subscription.take()
            files.add(upto(epoch.table, options.until), min(epoch.upto, options.until))
            write_at = min(write_at, trio.current_time() + options.every_s)
        is_over = subscription.boundary >= min(options.until, END)
        if is_over or trio.current_time() >= write_at or files.waiting_bytes >= FILE_BYTES:
            await trio.to_thread.run_sync(files.write)
            subscription.stored = files.boundary
            write_at = math.inf
    if subscription.boundary == END:
        await subscription.fetch()  # the stream need not keep these tuples
