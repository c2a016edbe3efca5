"""Fills views: copies the shown part of a stream, and follows it, epoch by epoch.

The copy's boundary is the whole state: a restart goes on from it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import trio

from medusa.engine.objects.definitions import ANY, StreamDefinition, StreamEntry
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.objects.view import Last, Recent, View
from medusa.engine.replication.following.book import Followers, history_of
from medusa.engine.replication.following.follower import Course, Follower
from medusa.engine.replication.following.origin import Local, Place
from medusa.engine.replication.views.locating import before_last, recent
from medusa.engine.streams.config import Timing
from medusa.engine.streams.log.retention import Hold
from medusa.engine.streams.store.store import StreamStore
from medusa.engine.streams.store.stream_state import Role, StreamState
from medusa.overlay.concurrency import Job
from medusa.overlay.errors import ConflictError, MedusaError
from medusa.overlay.events import Events
from medusa.overlay.failpoints import Failpoint, failpoint
from medusa.overlay.troubles import Reason, Trouble

HOLD: Final = Hold("view")
"""The hold of a view on its own log."""


def view_of(state: StreamState) -> View:
    """The view that a log of the role VIEW shows."""
    view = state.entry.stream.view
    assert view is not None, "a view's stream says what it shows"
    return view


def source_of(entry: StreamEntry) -> StreamEntry:
    """The entry of the stream that a view shows, with the fields that a reader needs. entry: the
    entry of the view."""
    shown = entry.stream
    assert shown.view is not None, "a view's stream says what it shows"
    source = StreamDefinition(
        shown.view.stream, shown.schema, readers=(ANY,), query=shown.query, label=shown.label
    )
    return StreamEntry(source, entry.schema)


def set_up(state: StreamState) -> None:
    """Begin a view's log at its first boundary, keep the shown tuples, and hide the others.
    Blocking.

    Raises:
        StorageFullError: no room.
    """
    view, log = view_of(state), state.log
    if log.boundary == BEGINNING and view.after > BEGINNING:
        log.begin(view.after)
    shows = view.shows
    if not view.is_fixed and isinstance(shows, Last):
        log.shown_from.made_by(partial(log.reader.tail, shows.rows))
    elif not view.is_fixed and isinstance(shows, Recent):
        log.shown_from.made_by(partial(recent, log, shows))
    if log.boundary >= view.until and log.boundary < END:
        log.append(END, None)  # the view ends between two tuples
    trim(state)


def trim(state: StreamState) -> None:
    """Keep the tuples that a view shows now: whole files, so that no file is read for it."""
    view, log = view_of(state), state.log
    needed = BEGINNING
    if not view.is_fixed and isinstance(view.shows, Last):
        needed = log.reader.tail(view.shows.rows, whole_files=True)
    elif not view.is_fixed and isinstance(view.shows, Recent):
        needed = before_last(log, view.shows)  # the view shows these if the stream ends now
    log.retention.hold(HOLD, needed)


class Feeding:
    """Fills one view.

    Attributes:
        stream: the stream that it shows.
    """

    def __init__(
        self, state: StreamState, followers: Followers, events: Events, timing: Timing
    ) -> None:
        self.state = state
        self._view = view_of(state)
        self.stream = self._view.stream
        self._followers = followers
        self._events = events
        self._user = f"view {state.name}"
        self._source: StreamState | None = None
        self._reason = ""
        self._timing = timing
        self._job = Job()

    async def open(self) -> StreamState:
        """Open the stream that the view shows; its later tuples are kept for the view from now on.

        Raises:
            MedusaError: it cannot be opened.
        """
        after = max(self.state.log.boundary, self._view.after)
        source = await self._followers.follow_history(
            source_of(self.state.entry), self._user, after
        )
        source.log.retention.hold(history_of(self._user), max(after, source.log.start))
        self._source = source
        return source

    async def try_to_open(self) -> None:
        """`open`; a failure is noted, and filling tries it again."""
        try:
            await self.open()
        except MedusaError as error:
            self._note(error)

    def start(self, nursery: trio.Nursery) -> None:
        """Fill the view until it has ended; a failed copy is tried again."""
        self._job.start(nursery, self._fill)

    async def _fill(self) -> None:
        while self.state.log.boundary < END:
            try:
                await self._copy(self._source or await self.open())
            except MedusaError as error:
                self._note(error)
                await trio.sleep(self._timing.view_again_s)
                self._source = None
        await self._leave()

    @property
    def trouble(self) -> Trouble | None:
        """Why the view is not filled for now."""
        if not self._reason:
            return None
        return Trouble(Reason.STANDS_STILL, self.state.name, f"stands still: {self._reason}")

    async def stop(self) -> None:
        """Stop reading the stream; return once no reading is under way."""
        await self._job.stop()
        await self._leave()

    async def _leave(self) -> None:
        await self._followers.leave(self.stream, self._user)

    async def _copy(self, source: StreamState) -> None:
        place = Place(local=Local(source.key, history_of(self._user)))
        course = Course(self._view.after, self._view.until, committed=self._committed)
        await Follower(self.state, (place,), self._followers.reach, HOLD.kind, course).follow()

    def _committed(self) -> None:
        trim(self.state)
        self._reason = ""

    def _note(self, error: MedusaError) -> None:
        if self._reason != str(error):  # noted once, not at every try
            self._events.note("error", f"waits with view {self.state.name}: {error}")
        self._reason = str(error)


@dataclass(frozen=True)
class Feedings:
    """Fills the views of one peer."""

    store: StreamStore
    followers: Followers
    events: Events
    nursery: trio.Nursery
    _feedings: dict[str, Feeding] = field(init=False, default_factory=dict)

    def views(self) -> list[StreamState]:
        """The logs of the views."""
        return [state for state in self.store.all() if state.role is Role.VIEW]

    async def make_way(self, view: str) -> None:
        """Make way for a view of that name. Raises: ConflictError: something else has that name."""
        await self.followers.make_way(view)
        if (state := self.store.get(view)) is not None:
            raise ConflictError(f"{view} is kept here as a {state.role} stream already")

    async def keep(self, entry: StreamEntry) -> None:
        """Make the log of a view, and fill it."""
        await self.open(await self.store.keep(entry, Role.VIEW))

    async def open(self, state: StreamState) -> None:
        """Fill a view that has a log. Raises: MedusaError: its source cannot be read."""
        await self._open(state, lambda feeding: feeding.open())

    async def resume(self, state: StreamState) -> None:
        """Fill a view of the last run, as soon as its source can be read."""
        await self._open(state, lambda feeding: feeding.try_to_open())

    @failpoint(Failpoint.VIEW_OPEN)
    async def _open(
        self, state: StreamState, opening: Callable[[Feeding], Awaitable[object]]
    ) -> None:
        set_up(state)
        if state.log.boundary == END:
            return
        feeding = Feeding(state, self.followers, self.events, self.store.timing)
        await opening(feeding)
        self._feedings[state.name] = feeding
        feeding.start(self.nursery)

    async def drop(self, view: str) -> None:
        """Stop filling a view, and drop its log, if it has one."""
        feeding = self._feedings.pop(view, None)
        if feeding is not None:
            await feeding.stop()
        if (state := self.store.get(view)) is not None:
            await self.followers.part_with(state)

    def troubles(self) -> list[Trouble]:
        """The views that are not filled for now."""
        found = (feeding.trouble for feeding in self._feedings.values())
        return [trouble for trouble in found if trouble is not None]

    def readers(self, stream: str) -> list[str]:
        """The views of a stream that are still filled."""
        return [
            feeding.state.name
            for feeding in self._feedings.values()
            if feeding.stream == stream and feeding.state.log.boundary < END
        ]
