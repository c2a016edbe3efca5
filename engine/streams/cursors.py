"""A reader's place in a log, and in its tentative suffix."""

from __future__ import annotations

import msgspec

from engine.objects.schema import BEGINNING, END, STIME
from engine.streams.log import StreamLog
from engine.streams.messages import Tuples
from engine.streams.parts import Part
from engine.streams.stream_state import StreamState
from overlay.concurrency import until_one_ends


class Cursor:
    """A reader's place in a log: finds the next part, and moves past it.

    It keeps nothing of the log between two parts, so a stopped reader costs no memory.

    Attributes:
        after: the boundary that the reader has, microseconds.
    """

    def __init__(
        self, log: StreamLog, after: int, *, whole: bool = True, encoded: bool = True
    ) -> None:
        """
        Args:
            after: BEGINNING: the oldest that is kept; an empty log does not know it yet.
            whole: begin where nothing later is lost, not only where something is kept.
            encoded: parts are to be sent.
        """
        self._log = log
        self._whole = whole
        self._encoded = encoded
        self._taken = 0
        self.after = after

    @property
    def is_over(self) -> bool:
        """Whether the reader has the stream to its end."""
        return self.after >= END

    async def wait(self) -> None:
        """Returns once there is something to read. Raises: ClosedError: the log was closed."""
        await self._log.wait_beyond(self.after)
        if self.after == BEGINNING:
            self.after = self._log.oldest if self._whole else self._log.oldest_kept
            await self._log.wait_beyond(self.after)

    async def read(self) -> tuple[Tuples, Part] | None:
        """The next part, if it is still there; `advance` notes that the reader has it.

        Raises:
            NotRetainedError: its rows are gone. ClosedError: the log was closed.
        """
        part = await self._log.part(self.after, self._taken, encoded=self._encoded)
        return message_of(part), part

    def advance(self, message: Tuples) -> None:
        if message.upto is None:
            self._taken += message.rows
        else:
            self.after, self._taken = message.upto, 0


def message_of(part: Part) -> Tuples:
    return Tuples(part.after, part.upto, part.rows)


def cursor_for(state: StreamState, after: int, seen: int | None, **how: bool) -> Cursor:
    """A subscriber's place in a stream; `how`: see `Cursor`. seen: see `BothCursor`; None: no
    tentative tuples."""
    if seen is None:
        return Cursor(state.log, after, **how)
    return BothCursor(state, after, seen, **how)


class BothCursor(Cursor):
    """A reader's place in both parts of a stream, in turns: results do not wait for corrections.

    Args:
        seen: the boundary of the reader's tentative tuples, microseconds.
    """

    def __init__(self, state: StreamState, after: int, seen: int, **how: bool) -> None:
        super().__init__(state.log, after, **how)
        self._suffix = state.suffix
        self._seen = seen
        self._seen_taken = 0
        self._last = seen
        self._run = 0
        self._stable_next = False

    async def wait(self) -> None:
        if self.after == BEGINNING:
            await super().wait()

        async def stable() -> None:
            await self._log.wait_beyond(self.after)

        async def tentative() -> None:
            await self._suffix.wait_beyond(max(self._seen, self.after))

        if not self._seen_taken:
            await until_one_ends(stable, tentative)

    async def read(self) -> tuple[Tuples, Part] | None:
        stable = self._log.boundary > self.after
        if not (stable and self._stable_next) and (part := await self._tentative()) is not None:
            return msgspec.structs.replace(message_of(part), tentative=True), part
        return await super().read() if stable else None

    def advance(self, message: Tuples) -> None:
        self._stable_next = message.tentative
        if not message.tentative:
            super().advance(message)
        elif message.upto is None:
            self._seen = message.after
            self._seen_taken += message.rows
        else:
            self._seen, self._seen_taken = message.upto, 0

    async def _tentative(self) -> Part | None:
        if self._seen_taken:
            return await self._rest()
        self._seen = max(self._seen, self.after)
        # a reader behind the suffix's beginning still reads history
        if self.after < self._suffix.began_at:
            return None
        self._run = self._suffix.runs
        part = await self._suffix.part(self._seen, 0)
        if part is not None and part.upto is None:
            self._last = part.table.column(STIME)[-1].as_py()
        return part

    async def _rest(self) -> Part:
        """The rest of a stime, after a part that ended within it; none if that suffix is gone."""
        if self._run == self._suffix.runs and self._seen >= self.after:
            part = await self._suffix.part(self._seen, self._seen_taken)
            if part is not None and part.after == self._seen:
                return part
        return Part(self._seen, self._last, self._log.schema.empty_table())
