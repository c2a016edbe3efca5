"""The files of one log, and the facts that follow from them: where the log begins, which files are
lost, how many rows and bytes it has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import overload

from medusa.engine.objects.schema import BEGINNING
from medusa.engine.streams.log.epochs import JOB_BYTES, EpochFile, tail_within
from medusa.engine.streams.log.scanning import not_here


class EpochFiles(Sequence[EpochFile]):
    """Contiguous files, the oldest first; the newest gives the log's boundary.

    Attributes:
        bytes: the bytes of all files together; a field, because every post reads it.
    """

    def __init__(self, files: Iterable[EpochFile]) -> None:
        self._files = list(files)
        self.bytes = sum(file.bytes for file in self._files)

    def __len__(self) -> int:
        return len(self._files)

    @overload
    def __getitem__(self, at: int) -> EpochFile: ...

    @overload
    def __getitem__(self, at: slice) -> list[EpochFile]: ...

    def __getitem__(self, at: int | slice) -> EpochFile | list[EpochFile]:
        return self._files[at]

    def put(self, start: int, stop: int, *files: EpochFile) -> None:
        """Replace the files from number `start` up to `stop` by these files."""
        self.bytes -= sum(file.bytes for file in self._files[start:stop])
        self.bytes += sum(file.bytes for file in files)
        self._files[start:stop] = files

    @property
    def start(self) -> int:
        """The boundary after which rows are kept: earlier ones were dropped, or never existed."""
        return self._files[0].after if self._files else BEGINNING

    @property
    def boundary(self) -> int:
        """The boundary of the log."""
        return self._files[-1].upto if self._files else BEGINNING

    @property
    def before_end(self) -> int:
        """The boundary that the log of an ended stream had before its end, if the files have it;
        else the last tuple's stime. Up to it the stream stays the same if it continues."""
        if not self._files:
            return BEGINNING
        last = self._files[-1]
        return last.after if last.high is None else max(last.after, last.high)

    @property
    def lost(self) -> tuple[EpochFile, ...]:
        """The files that are damaged or missing."""
        return tuple(file for file in self._files if file.lost)

    @property
    def whole_from(self) -> int:
        """The boundary after which no row is lost."""
        return max([self.start, *(file.upto for file in self._files if file.lost)])

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self._files)

    @property
    def first_stime(self) -> int | None:
        """The least stime; None without rows."""
        return next((file.low for file in self._files if file.low is not None), None)

    @property
    def last_stime(self) -> int | None:
        """The greatest stime; None without rows."""
        return next((file.high for file in reversed(self._files) if file.high is not None), None)

    def reach(self, after: int, limit_rows: int, limit_bytes: int = JOB_BYTES) -> int:
        """The latest boundary such that no more than about these rows and Arrow bytes follow
        `after`. At least one epoch file is included, however much it has.
        """
        rows, size, upto = 0, 0, after
        for file in self._files:
            if file.upto <= after:
                continue
            if file.high is not None and file.high > after:  # else no row of it follows
                rows += file.rows
                size += file.content
            if upto > after and (rows > limit_rows or size > limit_bytes):
                break
            upto = file.upto
        return upto

    def tail(self, rows: int, *, whole_files: bool = False) -> int:
        """The latest boundary with at least `rows` rows after it; `start` if there are fewer. The
        rows of one stime stay together. Rows before a lost file do not count. Blocking, and cheap:
        the stimes of one row group are read.

        Args:
            whole_files: return only a boundary between two files, which needs no file to be read.

        Raises:
            EpochDamagedError: the file with that boundary is damaged.
        """
        for file in reversed(self._files):
            if file.lost:
                return file.upto
            if file.rows >= rows:
                return file.after if whole_files else tail_within(file, rows)
            rows -= file.rows
        return self.start

    def following(self, after: int) -> list[EpochFile]:
        """The files after a boundary, up to the next lost one.

        Raises:
            NotRetainedError: the first of them is lost.
        """
        following = [file for file in self._files if file.upto > after]
        if following and following[0].lost:
            raise not_here(following[0])
        return list(takewhile(lambda file: not file.lost, following))

    def within(self, after: int, upto: int) -> list[EpochFile]:
        """The files with rows in (after, upto]. Raises: NotRetainedError: one of these files is
        lost."""
        files = [file for file in self._files if file.holds(after, upto)]
        for file in files:
            if file.lost:
                raise not_here(file)
        return files
