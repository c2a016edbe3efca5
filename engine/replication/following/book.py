from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import trio

from medusa.engine.objects.definitions import StreamEntry
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.replication.directory.directory import Directory
from medusa.engine.replication.following.dormancy import Dormancy, Keep, Look, Read, Sleep
from medusa.engine.replication.following.follower import Course, Follower
from medusa.engine.replication.following.origin import (
    FOR_QUERIES,
    Origin,
    Place,
    Reach,
    short_digest,
)
from medusa.engine.streams.log.retention import Hold
from medusa.engine.streams.store.store import StreamStore
from medusa.engine.streams.store.stream_state import LogKey, Role, StreamState
from medusa.overlay.concurrency import Job
from medusa.overlay.errors import ConflictError, MedusaError
from medusa.overlay.events import Events
from medusa.overlay.failpoints import Failpoint, failpoint
from medusa.overlay.listeners import Listeners
from medusa.overlay.names import NO_PEER, PeerId

INPUT: Final = "in"
"""The variant of the copies that tasks of other peers read: one for each stream and owner, because
an owner may send this peer the history of a stream. A task for which that copy begins too late gets
another copy."""

PAST: Final = "past"
"""The variant of copies that begin earlier than the stream's log at this peer; each is for one of
our queries or views."""


def history_of(user: str) -> Hold:
    """The name of the hold for a user that reads a log's history."""
    return Hold("past", user)


class Followers:
    """The followers of one peer: one for each remote stream, however many queries read it, unless
    they need it from different boundaries on.

    Args:
        peer: this peer's id, hex.

    Attributes:
        reach: opens the places that followers read from. left: called when a stream is no longer
            read, before its log is dropped.
    """

    def __init__(
        self,
        store: StreamStore,
        directory: Directory,
        peer: str,
        events: Events,
        nursery: trio.Nursery,
    ) -> None:
        self._store = store
        self.reach = Reach(directory, store, events)
        self.left: Listeners[[StreamState]] = Listeners()
        self._peer = peer
        self._nursery = nursery
        self._users: dict[LogKey, set[str]] = {}
        self._needs: dict[LogKey, dict[str, int]] = {}
        self._running: dict[LogKey, _Run] = {}
        self._direct: dict[LogKey, set[str]] = {}
        self._changing = trio.Lock()

    def followed(self) -> tuple[StreamState, ...]:
        """The copies that our own queries and views read."""
        states = (self._store.get(*key) for key in self._running if not key.variant)
        return tuple(state for state in states if state is not None and state.role is Role.FOLLOWER)

    def read_anew(self, stream: str) -> None:
        """Subscribe to that stream anew: it may have another producer."""
        for key, run in self._running.items():
            if key.stream == stream:
                run.follower.subscribe_anew()

    async def follow(self, entry: StreamEntry, user: str, after: int = BEGINNING) -> StreamState:
        """The log of a stream, for a query: the stream's own log, or a follower's copy, which
        begins at the boundary `after` if it is new."""
        async with self._changing:
            state = self._store.get(entry.stream.name)
            if state is None:
                state = await self._store.keep(entry, Role.FOLLOWER)
            if state.role is Role.FOLLOWER:
                self._use(state, user, FOR_QUERIES, after)
            else:
                self._direct.setdefault(state.key, set()).add(user)
            return state

    async def follow_from(
        self, entry: StreamEntry, user: str, origin: Origin, after: int, owner: str
    ) -> StreamState:
        """The log of a stream from the boundary `after` on, for a task that we run for another
        peer, `owner` (hex): a log here that reaches back so far, or a follower's copy, which that
        owner's tasks share."""
        own = self._store.get(entry.stream.name)
        if own is not None and own.role is not Role.FOLLOWER and own.log.start <= after:
            self._direct.setdefault(own.key, set()).add(user)
            return own
        async with self._changing:
            variant = f"{INPUT}-{owner}"
            state = await self._store.keep(entry, Role.FOLLOWER, variant)
            if self._start_of(state, after) > after:
                state = await self._store.keep(
                    entry, Role.FOLLOWER, f"{variant}-{short_digest(user)}"
                )
            self._use(state, user, origin, after)
            return state

    @failpoint(Failpoint.FOLLOWER_FOLLOW_HISTORY)
    async def follow_history(self, entry: StreamEntry, user: str, after: int) -> StreamState:
        """The log of a stream from the boundary `after` on, for a query or a view of ours: a log
        here that reaches back so far, or a new follower's copy. For a while it is held as
        `history_of(user)`, until the user holds it."""
        async with self._changing:
            state = self._store.get(entry.stream.name)
            if state is None:
                state = await self._store.keep(entry, Role.FOLLOWER)
            if state.role is not Role.FOLLOWER and state.log.start <= after:
                self._direct.setdefault(state.key, set()).add(user)
            else:
                if state.role is not Role.FOLLOWER or self._start_of(state, after) > after:
                    variant = f"{PAST}-{short_digest(user)}"
                    state = await self._store.keep(entry, Role.FOLLOWER, variant)
                self._use(state, user, FOR_QUERIES, after)
            expires = trio.current_time() + self._store.timing.held_s
            state.log.retention.hold(history_of(user), max(after, state.log.start), expires)
            return state

    def need(self, stream: str, user: str, boundary: int) -> None:
        """Have the producer keep a stream after that boundary for `user`, although it is here; END:
        it need not."""
        own = self._store.get(stream)
        if own is not None and own.role.is_served:
            if boundary == END:
                own.log.retention.release(Hold("replica", user))
            else:
                own.log.retention.hold(Hold("replica", user), boundary)
        for key in self._keys_read(stream, user):
            needs = self._needs.setdefault(key, {})
            needs[user] = boundary
            self._running[key].follower.need(min(needs.values()))

    def spare(self, key: LogKey, user: str, source: PeerId, needed: int) -> None:
        """Stop reading a copy, if `source` has the stream and `user` needs only that `source` keeps
        the rows after `needed`; NO_PEER: read it again."""
        run, state = self._running.get(key), self._store.get(*key)
        if run is None or state is None:
            return  # the log is no copy
        if not run.dormancy.source and state.log.boundary == BEGINNING:
            return  # the copy has not begun
        alone = self._users.get(key) == {user}
        if not alone or any(hold.kind != "task" for hold in state.log.retention.consumers):
            source = NO_PEER
        run.look(Look(source, needed, run.follower.held))

    def readers(self, stream: str) -> set[str]:
        """The readers of a stream here: queries, views and tasks that we run for others."""
        logs = (state.key for state in self._store.all() if state.name == stream)
        users = (self._users.get(key, set()) | self._direct.get(key, set()) for key in logs)
        return set().union(*users)

    @failpoint(Failpoint.FOLLOWER_PART_WITH)
    async def part_with(self, state: StreamState) -> None:
        """Stop producing the stream. If it is read here, its log becomes a follower's copy; else it
        is dropped."""
        readers = self._direct.pop(state.key, set())
        if not readers:
            await self._store.drop(state.key)
            self.read_anew(state.name)
            return
        try:
            await self._store.change_role(state, Role.FOLLOWER)
        except MedusaError:  # the disk is full; a restart tries again: `Resuming.resume`
            state.role = Role.FOLLOWER
        for user in readers:
            state.log.retention.release(Hold("replica", user))
            self._use(state, user, FOR_QUERIES, BEGINNING)

    async def make_way(self, stream: str) -> None:
        """Drop a follower's log of a stream that this peer is to produce.

        Raises:
            ConflictError: it is read here.
        """
        async with self._changing:
            state = self._store.get(stream)
            if state is None or state.role is not Role.FOLLOWER:
                return
            if users := self._users.get(state.key):
                raise ConflictError(
                    f"{stream} is still read here, by {', '.join(sorted(users))}: delete that "
                    "first, or make it at another peer"
                )
            await self._store.drop(state.key)

    def take_from(self, user: str, origin: Origin) -> None:
        """Set the origin from which `user` reads; if several users read a log, the first one
        decides."""
        for key, users in self._users.items():
            if user in users:
                self._running[key].take_from(user, origin)

    def gone(self, key: LogKey) -> Place | None:
        """`Follower.gone` of the follower of that copy."""
        run = self._running.get(key)
        return None if run is None else run.follower.gone

    def _keys_read(self, stream: str, user: str) -> list[LogKey]:
        return [
            state.key
            for state in self._store.all()
            if state.name == stream and user in self._users.get(state.key, ())
        ]

    def _start_of(self, state: StreamState, after: int) -> int:
        """The boundary that a follower's log begins at; `after` for a new one."""
        if state.log.boundary > BEGINNING:
            return state.log.start
        run = self._running.get(state.key)
        return after if run is None else run.after

    def _use(self, state: StreamState, user: str, origin: Origin, after: int) -> None:
        self._users.setdefault(state.key, set()).add(user)
        if (running := self._running.get(state.key)) is not None:
            running.origins.setdefault(user, origin)
            if running.dormancy.source:  # the new user wants all rows that the stream still has
                running.look(Look(NO_PEER, after))
            return
        follower = Follower(
            state,
            origin,
            self.reach,
            f"{self._peer} {state.variant}".rstrip(),
            # posted tuples are never tentative
            Course(after, tentative=bool(state.entry.stream.query), listed=True),
        )
        self._running[state.key] = run = _Run(follower, after, {user: origin})
        run.job.start(self._nursery, follower.run)

    async def leave(self, name: str, user: str) -> None:
        """Stop reading the stream for `user`; the last one to leave takes the follower down."""
        for key, direct in list(self._direct.items()):
            state = self._store.get(*key)
            if state is not None and state.name == name and user in direct:
                direct.discard(user)
                state.log.retention.release(Hold("replica", user))
                state.log.retention.release(history_of(user))
            if state is None or not direct:
                del self._direct[key]
        for key in self._keys_read(name, user):
            users = self._users[key]
            users.discard(user)
            self._running[key].forget(user)
            if (state := self._store.get(*key)) is not None:
                state.log.retention.release(history_of(user))
            needs = self._needs.get(key, {})
            if needs.pop(user, END) < END and users:
                self._running[key].follower.need(min(needs.values(), default=END))
            if not users:
                del self._users[key]
                await self._take_down(key)

    async def _take_down(self, key: LogKey) -> None:
        run = self._running.pop(key)
        self._needs.pop(key, None)
        await run.job.stop()
        state = self._store.get(*key)
        if state is not None and not state.variant:
            self.left.notify(state)
        await run.follower.take_leave()
        await self._drop(key)

    async def drop_unused(self) -> None:
        """Drop followers' logs of earlier runs that have no users any more."""
        for state in self._store.all():
            if state.role is Role.FOLLOWER:
                await self._drop(state.key)

    async def _drop(self, key: LogKey) -> None:
        async with self._changing:
            if key not in self._running:  # no user has come meanwhile
                await self._store.drop(key)


@dataclass(frozen=True)
class _Run:
    """A follower at work.

    Attributes:
        after: the boundary that a new log begins at.
        origins: the origin that each user wants. The first user's is taken, and when that user
            leaves, the next one's: an origin may serve one user alone.
    """

    follower: Follower
    after: int
    origins: dict[str, Origin]
    dormancy: Dormancy = field(default_factory=Dormancy)
    job: Job = field(default_factory=Job)

    @property
    def origin(self) -> Origin:
        """Return the origin of the stream."""
        return next(iter(self.origins.values()))

    def look(self, look: Look) -> None:
        """Take the step of `Dormancy`."""
        match self.dormancy.handle(look):
            case Keep(source):
                self.follower.keep_at(source)
            case Sleep(needed):
                self.follower.sleep(needed)
            case Read(after):
                self.follower.wake(after, self.origin)
            case None:
                pass

    def take_from(self, user: str, origin: Origin) -> None:
        """Set where a user wants the stream from."""
        self.origins[user] = origin
        self.follower.read_from(self.origin)

    def forget(self, user: str) -> None:
        """Remove a user."""
        first = next(iter(self.origins), None)
        self.origins.pop(user, None)
        if first == user and self.origins:
            self.follower.read_from(self.origin)
