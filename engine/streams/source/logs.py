from __future__ import annotations

from dataclasses import dataclass

from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.streams.log.stream_log import StreamLog


@dataclass(frozen=True)
class SourceLogs:
    """The logs of a source stream: its own, and those of its late tuples and revisions.

    Attributes:
        late: its late tuples, in order of arrival. revisions: its revisions, where it takes any.
    """

    stream: StreamLog
    late: StreamLog
    revisions: StreamLog | None = None

    @property
    def all(self) -> tuple[StreamLog, ...]:
        """All the logs; the log of revisions, which is never behind, comes first."""
        return (*self.beside[1:], self.stream, self.late)

    @property
    def beside(self) -> tuple[StreamLog, ...]:
        """The logs of the source's late tuples, and of its revisions if the source takes any."""
        return (self.late,) if self.revisions is None else (self.late, self.revisions)

    @property
    def starts(self) -> tuple[int, int, int]:
        """The boundaries after which the stream, its late tuples and its revisions are kept
        here."""
        revisions = BEGINNING if self.revisions is None else self.revisions.start
        return self.stream.start, self.late.start, revisions

    @property
    def whole_from(self) -> tuple[int, int, int]:
        """The boundaries, as in `starts`, after which no rows are lost."""
        revisions = BEGINNING if self.revisions is None else self.revisions.files.whole_from
        return self.stream.files.whole_from, self.late.files.whole_from, revisions

    @property
    def revised(self) -> int:
        """The boundary of the log of its revisions, microseconds."""
        return BEGINNING if self.revisions is None else self.revisions.boundary

    @property
    def have_end(self) -> bool:
        """Whether the logs have the stream's end, so that readers see it."""
        return all(log.boundary == END for log in self._that_end)

    def shorten(self, boundary: int) -> None:
        """Remove the end: the stream continues from that boundary.

        Raises:
            UnavailableError: a reader is at the end. StorageError: the disk does not take it.
        """
        for log in self._that_end:
            if log.boundary == END:
                log.reopen(boundary)

    @property
    def _that_end(self) -> list[StreamLog]:
        return [log for log in (self.stream, self.revisions) if log is not None]

    @property
    def lost(self) -> tuple[str, ...]:
        """The known losses of rows, in words for people."""
        return tuple(text for log in self.all for text in log.lost)

    def close(self) -> None:
        for log in self.all:
            log.close()
