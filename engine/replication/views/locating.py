"""Locates a part of a stream: asks the peer that keeps the stream, before it reads history."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import trio

from medusa.engine.objects.query import Query
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.objects.view import Last, Range, Recent, Shows, check_shows
from medusa.engine.replication.directory.directory import Directory
from medusa.engine.replication.views.messages import Locate, Located
from medusa.engine.streams.log.retention import Hold, too_old
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.store.store import StreamStore
from medusa.engine.streams.store.stream_state import Role, StreamState
from medusa.overlay.errors import InvalidInputError

HOLDERS: Final = 64
"""Holds that one participant may have on one stream by locating parts of it: a new one replaces the
oldest."""

FIRST_S: Final = 2.0
"""How long to wait for the first epoch of a stream that has none yet, seconds."""

LOCATE_S: Final = 10.0
"""The longest wait for the peer that keeps the stream, seconds."""


class Locator:
    """Finds parts of streams, of this peer and of others."""

    def __init__(self, store: StreamStore, directory: Directory, participant: str) -> None:
        self._store = store
        self._directory = directory
        self._participant = participant
        self._asked = 0

    async def locate(self, stream: str, shows: Shows, *, fixed: bool) -> Located:
        """Locate a part of a stream. The part is kept for a while, so that the caller can begin to
        read it. Raises: NotRetainedError: the beginning of the part is not kept any more; the
        message says where the rest begins. InvalidInputError: the stream has no tuples yet that a
        fixed part could show. MedusaError: the peer that keeps the stream cannot be reached, or
        refuses.
        """
        state = self._store.serving(stream)
        # otherwise the stream's owner has more
        if state is not None and state.role is not Role.ASSIGNED:
            return await self.locate_here(state, shows, self._participant, fixed=fixed)
        connection = await self._directory.connect(stream, oldest=True)
        request = Locate(stream, shows, fixed)
        return await connection.call("locate", request, Located, timeout_s=LOCATE_S)

    async def locate_here(
        self, state: StreamState, shows: Shows, holder: str, *, fixed: bool
    ) -> Located:
        """`locate` in a stream that this peer serves. holder: the participant that asks."""
        check_shows(shows)
        # wait for recent posts that are about to be committed
        if fixed and not isinstance(shows, Range):
            with trio.move_on_after(FIRST_S):
                await state.log.wait_beyond(BEGINNING)
        found = located(state.name, state.log, shows, fixed=fixed)
        self._asked += 1
        consumer = Hold("located", f"{holder} {self._asked % HOLDERS}")
        foreign = "" if holder == self._participant else holder
        expires = trio.current_time() + self._store.timing.held_s
        state.log.retention.hold(consumer, max(found.after, state.log.start), expires, foreign)
        if not isinstance(shows, Range) and fixed:
            await state.released(found.until)
        return found

    async def check_history_range(self, query: Query, inputs: Iterable[str]) -> None:
        """Check that the inputs still have the history that a query reads.

        Args:
            inputs: the streams that it reads and does not make, revisions included.

        Raises:
            NotRetainedError: the history of an input does not reach back to `query.after`.
            MedusaError: as `locate`.
        """
        if query.after == BEGINNING:
            return
        past = Range(query.after, query.after + 1)
        for stream in sorted(inputs):
            await self.locate(stream, past, fixed=True)


def located(stream: str, log: StreamLog, shows: Shows, *, fixed: bool) -> Located:
    """The place of that part of a stream in its log.

    Raises: as `Locator.locate`.
    """
    oldest, boundary = log.oldest, log.boundary
    if isinstance(shows, Range):
        after = oldest if shows.after == BEGINNING else shows.after
        if after < oldest:
            raise too_old(stream, oldest, after)
        return Located(after, shows.until)
    if fixed and boundary == BEGINNING:
        raise InvalidInputError(f"{stream} has nothing yet: what is frozen now would stay empty")
    match shows:
        case Last(rows=rows):
            after = max(oldest, log.reader.tail(rows))
        case Recent():
            after = recent(log, shows)
            if fixed and after < oldest:
                raise too_old(stream, oldest, after)
            after = max(oldest, after)
    return Located(after, boundary if fixed else END)


def recent(log: StreamLog, shows: Recent) -> int:
    """The boundary at which the last seconds of a log begin; they end at the boundary, or at the
    last tuple of a log that has ended."""
    if log.boundary == END:
        return before_last(log, shows)
    return max(BEGINNING, log.boundary - shows.span_us)


def before_last(log: StreamLog, shows: Recent) -> int:
    """The boundary that is the view's span before the last tuple."""
    last = log.files.last_stime
    return BEGINNING if last is None else max(BEGINNING, last - shows.span_us)
