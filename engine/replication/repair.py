"""Repairs logs: fetches lost files again, from peers that have their rows.

A damaged or missing file of a log is made anew from, in this order:

* the file itself: a disk has come back, or a person has put a copy there,
* the other peers of the stream's participant: a replica, a standby, a follower, its producer,
* the stream's producer, if the log is a follower's; if it is a view's, the producer of the stream
  that it shows,
* the inputs of a query here, if the log is one of its outputs and the inputs are still kept.

No other peer is believed: a stream's participant alone decides its content.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import partial
from typing import Final

import trio
from msgspec import Struct

from medusa.engine.objects.schema import BEGINNING
from medusa.engine.replication.following.book import INPUT
from medusa.engine.replication.following.follower import epochs
from medusa.engine.replication.following.origin import FROM_PRODUCERS, Reach, Reading
from medusa.engine.replication.queries.host import QueryHost
from medusa.engine.streams.log.epochs import EpochFile
from medusa.engine.streams.log.recent import Epoch
from medusa.engine.streams.log.scanning import check_whole, rows_in_words, write_anew
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.messages import Subscribe, Tuples
from medusa.engine.streams.reading.feed import Cursor, Feed
from medusa.engine.streams.store.stream_state import LogKey, Role, StreamState
from medusa.overlay.concurrency import next_beat
from medusa.overlay.errors import MedusaError, NotAuthorisedError, NotFoundError
from medusa.overlay.names import ObjectName, PeerId
from medusa.overlay.node.node import Overlay
from medusa.overlay.rpc import Caller, Duplex, EndOfCall

LEND: Final = "log.lend"


SILENCE_S: Final = 10.0
"""The longest that an asked peer may take for the next part, seconds."""


class Lend(Struct, frozen=True):
    """Opens a call in which a peer sends the rows of a stream with after < stime <= upto to another
    peer of the stream's participant, as `Tuples`. Boundaries, microseconds."""

    stream: str
    after: int
    upto: int


class Repair:
    """Restores lost files of logs; `register` puts its call on the peer's service."""

    def __init__(self, overlay: Overlay, reach: Reach, queries: QueryHost) -> None:
        self._overlay = overlay
        self._reach = reach
        self._store = store = reach.store
        self._queries = queries
        self._durable = store.is_durable
        self._timing = store.timing
        self._repair: defaultdict[LogKey, trio.Lock] = defaultdict(trio.Lock)
        self._failed_at: dict[EpochFile, float] = {}
        self._damaged: dict[LogKey, StreamState] = {}
        store.mend.made_by(self.mend)
        store.opened.add(self._watch)

    def register(self) -> None:
        self._overlay.service.streaming(LEND, Lend, self.lend, sends=(Tuples,))

    async def maintain(self) -> None:
        """Restore lost files, for ever."""
        while True:
            await trio.sleep_until(next_beat(self._timing.mend_s))
            for key, state in tuple(self._damaged.items()):
                if self._store.get(*key) is not state or not state.log.files.lost:
                    del self._damaged[key]
                    continue
                for lost in state.log.files.lost:
                    await self.mend(state, lost)

    def _watch(self, state: StreamState) -> None:
        """Note the damaged files of a log, now and whenever one is found."""

        def note(_text: str = "") -> None:
            self._damaged[state.key] = state

        state.log.damage.found.add(note)
        if state.log.files.lost:
            note()

    async def mend(self, state: StreamState, lost: EpochFile) -> None:
        """Restore a lost file, if a peer has it; do nothing if a try failed a moment ago."""
        again_s = self._timing.mend_again_s
        async with self._repair[state.key]:
            since = trio.current_time() - self._failed_at.get(lost, float("-inf"))
            if lost not in state.log.files.lost or since < again_s:
                return
            if await self._is_whole_again(state, lost):
                return
            for offer in self._offers(state, lost):
                try:
                    async with aclosing(offer()) as epochs:
                        await self._write(state, lost, epochs)
                except (MedusaError, EndOfCall, trio.TooSlowError):
                    continue
                return
            self._failed_at = {
                file: at
                for file, at in self._failed_at.items()
                if trio.current_time() - at < again_s
            }
            self._failed_at[lost] = trio.current_time()

    async def _is_whole_again(self, state: StreamState, lost: EpochFile) -> bool:
        try:
            found = await trio.to_thread.run_sync(
                check_whole, lost.path, lost.after, lost.upto, state.log.schema
            )
        except MedusaError:
            return False
        state.log.damage.put_back(lost, found, None)
        self._overlay.events.note("info", f"found {_rows(state, lost)} again: {lost.path} is whole")
        return True

    async def _write(
        self, state: StreamState, lost: EpochFile, epochs: AsyncIterator[Epoch]
    ) -> None:
        schema = state.log.schema
        found, writer = await write_anew(lost, epochs, schema, durable=self._durable)
        state.log.damage.put_back(lost, found, writer)
        self._overlay.events.note("info", f"fetched {_rows(state, lost)} again")

    # -- peers that may have it ---------------------------------------------------------------

    def _offers(
        self, state: StreamState, lost: EpochFile
    ) -> Iterator[Callable[[], AsyncGenerator[Epoch, None]]]:
        if self._is_ours(state.name):
            request = Lend(state.name, lost.after, lost.upto)
            for peer in self._overlay.living_siblings():
                yield partial(_given, partial(self._borrow, peer, request), state.log, lost)
        if (copied := _copied(state)) is not None:
            follow = Subscribe(copied, lost.after)
            for place in FROM_PRODUCERS:
                yield partial(_given, partial(self._reach.open, place, follow), state.log, lost)
        for running in self._queries.all():
            if lost.after < running.stored.since.get(state.name, BEGINNING):
                continue  # the edition of the query that made these rows is no longer kept
            for task in running.tasks:
                if task.state is state:
                    yield partial(task.runner.recompute, lost.after, lost.upto)

    def _is_ours(self, stream: str) -> bool:
        return ObjectName.parse(stream).participant == self._overlay.identity.participant

    @asynccontextmanager
    async def _borrow(self, peer: PeerId, request: Lend) -> AsyncIterator[Reading]:
        with trio.fail_after(SILENCE_S):
            connection = await self._overlay.connect(peer)
        async with connection.open(LEND, request) as duplex:
            yield duplex

    # -- asked by another peer ----------------------------------------------------------------

    async def lend(self, caller: Caller, request: Lend, duplex: Duplex) -> None:
        """Send a peer of ours the rows of its lost file.

        Raises:
            NotAuthorisedError: the caller is no peer of our participant, or the stream is not ours.
            NotFoundError: this peer does not have all of these rows.
        """
        participant = self._overlay.identity.participant
        if caller.peer_id is None or caller.participant != participant:
            raise NotAuthorisedError(f"{request.stream}: only peers of {participant} lend it")
        if not self._is_ours(request.stream):
            raise NotAuthorisedError(f"{request.stream} is not a stream of {participant}")
        cursor = Cursor(self._whole(request), request.after)
        await Feed(cursor, request.upto).serve(duplex)

    def _whole(self, request: Lend) -> StreamLog:
        for state in self._store.all():
            log = state.log
            if (
                state.name == request.stream
                # the owner may have sent the copy to this peer only
                and not state.variant.startswith(INPUT)
                and log.start <= request.after < request.upto <= log.boundary
                and not any(file.holds(request.after, request.upto) for file in log.files.lost)
            ):
                return log
        raise NotFoundError(f"{request.stream}: those rows are not here")


def _rows(state: StreamState, lost: EpochFile) -> str:
    return f"{rows_in_words(lost)} of {state.name}"


def _copied(state: StreamState) -> str | None:
    """The stream of which this log is a copy, whole or in part; None: it is no copy."""
    view = state.entry.stream.view
    if state.role is Role.VIEW and view is not None:
        return view.stream
    return state.name if state.role is Role.FOLLOWER else None


async def _given(
    opening: Callable[[], AbstractAsyncContextManager[Reading]], log: StreamLog, lost: EpochFile
) -> AsyncGenerator[Epoch, None]:
    """The rows of a lost file from another peer, epoch by epoch.

    Raises:
        MedusaError: the other peer does not have these rows. trio.TooSlowError: the other peer's
            next message does not come in time.
    """
    async with opening() as feed:
        found = epochs(feed, log.schema, lost.after, lost.upto, silence_s=SILENCE_S)
        async with aclosing(found):
            async for epoch in found:
                yield epoch
