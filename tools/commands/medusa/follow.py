"""Follows a growing file: over rotation by renaming or copying, truncation, and restarts.

A file is recognised by its content: the position that the stream has
(`tools.commands.medusa.file_position`) belongs to the file that begins with those rows, under
whatever name. So a file that was rotated away is found beside its old place, and read to its end
first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import trio

from overlay.errors import InvalidInputError
from tools.client.link import open_background
from tools.commands.medusa.file_position import Position, Trail
from tools.rows.formats import Reading
from tools.rows.row_process import Asked, Rows, open_rows, open_to_read, read_apart, reading_of

LOOK_S: Final = 0.2
"""Seconds between checks whether the file was replaced."""

TAIL_BYTES: Final = 256
"""Bytes before the read position that must not change while the file grows; otherwise it was
rewritten."""

Post = Callable[[Rows, Position], Awaitable[Position]]
"""Posts a file's rows after a position; returns the position at its end."""


@dataclass
class Growing:
    """A followed file that is being read.

    Attributes:
        torn: it was truncated; its last line may be incomplete.
    """

    path: Path
    file: IO[bytes]
    rows: Rows
    _end: int
    torn: bool = False
    _seen: tuple[int, bytes] = (0, b"")

    async def until_replaced(self) -> None:
        """Return when another file has its place, or it was truncated; its reader then reads it to
        its end."""
        while True:
            await trio.sleep(LOOK_S)
            if self._truncated():
                self.torn = True
                os.write(self._end, b"t")
                break
            if self._replaced():
                break
        self.close()

    def close(self) -> None:
        """Let the reader stop at the present end of the file."""
        if self._end >= 0:
            os.close(self._end)
            self._end = -1

    def _replaced(self) -> bool:
        """Whether a writer has begun a new file of that name. While the new one is empty, the
        writer may still write to the old one."""
        try:
            there = self.path.stat()
        except OSError:
            return False  # the new file is yet to come
        here = os.fstat(self.file.fileno())
        return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino) and there.st_size > 0

    def _truncated(self) -> bool:
        """Whether the rows read are no longer in the file."""
        descriptor = self.file.fileno()
        read, tail = self._seen
        if os.pread(descriptor, len(tail), read - len(tail)) != tail:
            return True
        # the reader's position: it has the same descriptor offset
        at = os.lseek(descriptor, 0, os.SEEK_CUR)
        if os.fstat(descriptor).st_size < at:
            return True
        length = min(at, TAIL_BYTES)
        self._seen = at, os.pread(descriptor, length, at - length)
        return False


@contextmanager
def open_growing(path: Path, reading: Reading) -> Iterator[Growing]:
    """
    Raises:
        NotFoundError: no such file. InvalidInputError: it cannot be opened.
    """
    until, end = os.pipe()
    growing: Growing | None = None
    try:
        with open_to_read(path) as file:
            asked = Asked(str(path), reading_of(path, reading), until=until)
            with read_apart(file, asked) as rows:
                growing = Growing(path, file, rows, end)
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
        InvalidInputError: a row does not fit; or no file beside it begins with the rows up to that
            position.
    """
    reading = reading_of(path, reading)  # a rotated file has another name
    start = Position()
    for older, position in await trio.to_thread.run_sync(_behind, path, reading, producer, since):
        if older == path:
            start = position
        else:
            with open_rows(older, reading) as rows:
                await post(rows, position)
    while True:
        with open_growing(path, reading) as growing:
            async with open_background() as nursery:
                nursery.start_soon(growing.until_replaced)
                reached = await post(growing.rows, start)
            torn = growing.torn
        if torn:
            copy = await trio.to_thread.run_sync(_copy, path, reading, reached)
            if copy is not None:
                with open_rows(copy, reading) as rows:
                    await post(rows, reached)
        start = Position()
        while not path.exists():  # noqa: ASYNC110, ASYNC240 - nobody tells, and it takes no time
            await trio.sleep(LOOK_S)


def _behind(
    path: Path, reading: Reading, producer: str, since: Position
) -> list[tuple[Path, Position]]:
    """The older files to post first, each with the position from which on.

    Raises:
        InvalidInputError: none begins with the rows up to the position.
    """
    if _begins_with(path, reading, since):
        return [(path, since)]
    newer: list[tuple[Path, Position]] = []
    for rotated in _rotated(path):
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
    """Files that may have been rotated from it, the latest first: `conn.log.1`, `conn.log-2018.gz`,
    `conn.2018-03-24.log`."""
    name, stem, suffix = (re.escape(each) for each in (path.name, path.stem, path.suffix))
    like = re.compile(rf"{name}[.-].+|{stem}\..+{suffix}(\.(gz|zst|zstd))?")
    found = [each for each in path.parent.iterdir() if like.fullmatch(each.name)]
    # a file that is being compressed exists twice for a while
    whole = [each for each in found if each.with_suffix("") not in found and each.is_file()]
    return sorted(whole, key=lambda each: each.stat().st_mtime, reverse=True)


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
