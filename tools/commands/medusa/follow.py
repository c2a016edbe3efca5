"""Follows a growing file: over rotation by renaming or copying, truncation, and restarts.

A file is recognised by its content: the position that the stream has
(`medusa.tools.commands.medusa.file_position`) belongs to the file that begins with those rows,
under whatever name. So the command finds a rotated file beside its old place, and reads it to its
end first.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import trio

from medusa.overlay.errors import InvalidInputError, MedusaError, NotFoundError
from medusa.tools.client.link import open_background
from medusa.tools.commands.medusa.file_position import Position, Trail
from medusa.tools.rows.formats import Reading
from medusa.tools.rows.row_process import (
    ReadRequest,
    Rows,
    open_rows,
    open_to_read,
    read_apart,
    reading_of,
)

LOOK_S: Final = 0.2
"""Seconds between checks whether the file was replaced."""

PACKED: Final = {".gz", ".zst", ".zstd"}

DAY: Final = re.compile(r"\d{4}-?\d\d-?\d\d")
"""The name of a folder of logs of one day."""

DAYS: Final = 31
"""The most folders of days that are searched for the file that was posted last: each file in them
may be read."""

Post = Callable[[Rows, Position], Awaitable[Position]]
"""Posts a file's rows after a position; returns the position at its end."""


class Successors:
    """The files that come to a path, one after the other.

    Each file is held open from the moment when the command finds it. So it is read to its end even
    if it is renamed, moved to another folder, compressed or deleted meanwhile, and even if further
    files have come to its path.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: deque[IO[bytes]] = deque()
        self._failure: MedusaError | None = None
        self._newest: tuple[int, int] | None = None

    @property
    def ready(self) -> bool:
        """Whether `take` would return at once."""
        return bool(self._waiting or self._failure)

    def open(self) -> None:
        """Open the present file.

        Raises:
            NotFoundError: there is no file. InvalidInputError: the file cannot be opened.
        """
        file = open_to_read(self._path)
        here = os.fstat(file.fileno())
        self._newest = here.st_dev, here.st_ino
        self._waiting.append(file)

    def open_next(self) -> None:
        """Open the present file, if there is one; `take` raises if it cannot be opened."""
        try:
            self.open()
        except NotFoundError:
            pass  # the file may still appear
        except MedusaError as error:
            self._failure = error

    @property
    def newest_is_there(self) -> bool:
        """Whether the newest file still has the path."""
        with suppress(OSError):
            there = self._path.stat()
            return (there.st_dev, there.st_ino) == self._newest
        return False

    async def watch(self) -> None:
        """Open each new file. An empty one does not count yet, because its writer may still write
        to the file before."""
        while True:
            await trio.sleep(LOOK_S)
            with suppress(OSError):
                if not self.newest_is_there and self._path.stat().st_size > 0:
                    self.open_next()

    async def take(self) -> IO[bytes]:
        """The next file, once there is one.

        Raises:
            InvalidInputError: it cannot be opened.
        """
        while not self._waiting:
            if self._failure is not None:
                raise self._failure
            await trio.sleep(LOOK_S)
        return self._waiting.popleft()

    def close(self) -> None:
        """Close the files that nobody has taken."""
        while self._waiting:
            self._waiting.popleft().close()


@dataclass
class Growing:
    """A followed file that is being read."""

    rows: Rows
    successors: Successors
    _end: int

    async def watch(self) -> None:
        """Return when another file has this file's place; its reader then reads it to its end."""
        while not self.successors.ready:  # noqa: ASYNC110 - of the file system
            await trio.sleep(LOOK_S)
        self.close()

    def goes_on(self) -> bool:
        """Whether the file still has its path."""
        return not self.successors.ready and self.successors.newest_is_there

    def close(self) -> None:
        """Let the reader stop at the present end of the file."""
        if self._end >= 0:
            os.close(self._end)
            self._end = -1


@contextmanager
def open_growing(
    path: Path, file: IO[bytes], successors: Successors, reading: Reading
) -> Iterator[Growing]:
    """Read an open file, which is closed in the end. path: for messages."""
    until, end = os.pipe()
    growing: Growing | None = None
    try:
        with file:
            asked = ReadRequest(str(path), reading_of(path, reading), until=until)
            with read_apart(file, asked) as rows:
                growing = Growing(rows, successors, end)
                rows.goes_on = growing.goes_on
                yield growing
    finally:
        os.close(until)
        if growing is None:
            os.close(end)
        else:
            growing.close()


async def follow(path: Path, reading: Reading, producer: str, since: Position, post: Post) -> None:
    """Post a file's rows after a position, and all later rows; ends only with an error.

    Args:
        producer: the name of the producer.

    Raises:
        NotFoundError: no such file. InvalidInputError: a row does not fit; or no file beside it
            begins with the rows up to that position.
    """
    reading = reading_of(path, reading)  # a rotated file has another name
    start = Position()
    with closing(Successors(path)) as successors:
        behind = await trio.to_thread.run_sync(_begin, successors, path, reading, producer, since)
        async with open_background() as looking:
            looking.start_soon(successors.watch)
            for older, position in behind:
                if older == path:
                    start = position
                else:
                    with open_rows(older, reading) as rows:
                        await post(rows, position)
            while True:
                file = await successors.take()
                with open_growing(path, file, successors, reading) as growing:
                    async with open_background() as nursery:
                        nursery.start_soon(growing.watch)
                        reached = await post(growing.rows, start)
                if growing.rows.torn:
                    if not successors.ready:
                        successors.open_next()  # to read it from its beginning
                    copy = await trio.to_thread.run_sync(_copy, path, reading, reached)
                    if copy is not None:
                        with open_rows(copy, reading) as rows:
                            await post(rows, reached)
                start = Position()


def _begin(
    successors: Successors, path: Path, reading: Reading, producer: str, since: Position
) -> list[tuple[Path, Position]]:
    """Open the present file; returns the result of `_behind`, with this file as the present one."""
    while True:
        successors.open()
        found = _behind(path, reading, producer, since)
        if successors.newest_is_there:
            return found
        successors.close()  # the log was rotated meanwhile


def _behind(
    path: Path, reading: Reading, producer: str, since: Position
) -> list[tuple[Path, Position]]:
    """The older files to post first, each with the position at which to begin.

    Raises:
        InvalidInputError: no file begins with the rows up to the position.
    """
    if _begins_with(path, reading, since):
        return [(path, since)]
    newer: list[tuple[Path, Position]] = []
    rotations = _rotated(path)
    plain = [each for each in rotations if each.parent == path.parent and each.suffix not in PACKED]
    for rotated in rotations:
        if rotated.parent != path.parent and any(_copied(rotated, each, reading) for each in plain):
            continue
        if _begins_with(rotated, reading, since):
            return [(rotated, since), *reversed(newer)]
        newer.append((rotated, Position()))
    raise InvalidInputError(
        f"{path}: neither it nor a file rotated from it begins with the {since.rows:,} rows that "
        f"were posted last: if that one was moved, post it from there with --producer {producer}; "
        "--again posts this one from its beginning"
    )


def _copy(path: Path, reading: Reading, reached: Position) -> Path | None:
    """The file to which this one was copied before it was truncated."""
    copies = (each for each in _rotated(path) if _begins_with(each, reading, reached))
    return next(copies, None) if reached.rows else None


def _rotated(path: Path) -> list[Path]:
    """Files that may be this one under another name after a rotation, the latest first:
    `conn.log.1`, `conn.log-2018.gz`, `conn.2018-03-24.log`, `conn-2018-03-24.log`; in folders named
    after a day, as Zeek's `2018-03-24`, `conn.log` too."""
    name, stem, suffix = (re.escape(each) for each in (path.name, path.stem, path.suffix))
    like = rf"{name}[.-].+|{stem}(\.|-\d).+{suffix}(\.(gz|zst|zstd))?"
    found = [each for each in path.parent.iterdir() if re.fullmatch(like, each.name)]
    for folder in _of_days(path):
        found += (each for each in folder.iterdir() if re.fullmatch(rf"{like}|{name}", each.name))
    # a file that is being compressed exists twice for a while
    whole = [each for each in found if each.with_suffix("") not in found and each.is_file()]
    return sorted(whole, key=lambda each: each.stat().st_mtime, reverse=True)


def _of_days(path: Path) -> list[Path]:
    """The latest folders that are named after a day, in the file's folder or beside that."""
    folder = path.absolute().parent  # not resolved: Zeek's `current` is a link to elsewhere
    around = [each for parent in (folder, folder.parent) for each in parent.iterdir()]
    days = [each for each in around if DAY.fullmatch(each.name) and each.is_dir()]
    return sorted(days, key=lambda each: each.name, reverse=True)[:DAYS]


def _copied(copy: Path, file: Path, reading: Reading) -> bool:
    """Whether a file of another folder is a copy of this one, or will be once it is whole."""
    with open_rows(copy, reading) as copied, open_rows(file, reading) as rows:
        try:
            there, here = next(copied.batches(), None), next(rows.batches(), None)
        except InvalidInputError:
            return True  # the end is still missing
    if there is None or here is None:
        return there is here
    count = min(there.num_rows, here.num_rows)
    return bool(there.slice(0, count).equals(here.slice(0, count)))


def _begins_with(path: Path, reading: Reading, position: Position) -> bool:
    """Whether the file has the rows up to a position, and maybe more."""
    if not position.rows:
        return True
    trail = Trail(reading.schema.payload)
    with open_rows(path, reading) as rows:
        try:
            next(trail.rest(rows.batches(), position), None)
        except InvalidInputError:
            if not trail.differs:
                raise
    return not trail.differs
