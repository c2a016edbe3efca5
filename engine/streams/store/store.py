"""Every stream that this peer keeps: as its leader, as its producer, or as a follower."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Final

import trio

from medusa.engine.objects.definitions import StreamEntry
from medusa.engine.streams.config import EngineConfig, Timing
from medusa.engine.streams.log.epochs import EpochFile
from medusa.engine.streams.log.recent import SHARED_BYTES, SharedMemory
from medusa.engine.streams.log.scanning import lost_in_words
from medusa.engine.streams.messages import StreamStatus
from medusa.engine.streams.store.ends_read import EndsRead
from medusa.engine.streams.store.folders import StreamFolders
from medusa.engine.streams.store.intake import Intake
from medusa.engine.streams.store.maintenance import Maintenance
from medusa.engine.streams.store.opening import Opener
from medusa.engine.streams.store.stream_state import (
    LogKey,
    Role,
    StoredStream,
    StreamState,
    entries_of,
)
from medusa.engine.streams.store.subscriptions import Lease, Subscriptions
from medusa.overlay.clock import Clock
from medusa.overlay.errors import StorageError
from medusa.overlay.events import Events
from medusa.overlay.failpoints import Failpoint, failpoint
from medusa.overlay.listeners import Decision, Listeners
from medusa.overlay.memory import Budgets
from medusa.overlay.names import ObjectName
from medusa.overlay.troubles import Reason, Trouble

OUTPUT: Final = "out"
"""The variant of the output of a task that this peer runs for another."""

REPLICA: Final = "replica"
"""The variant of a query's outputs at its secondary, even after it took over."""

REPLICATED: Final = "home"
"""The variant of a source stream with replicas, and of its late tuples, at a voter: it has the
settled part. A query here reads the stream by a follower, as at any other peer, whichever peer is
leader."""

ASIDE: Final = "aside"
"""The variant for the files of a stream that belongs to another peer, as it turned out."""


class StreamStore:
    """The streams of one peer.

    Args:
        folder: has one folder per stream.
        memory: bounds recent epochs, and posts that wait.
        nursery: runs the tasks that move posts into the logs.

    Attributes:
        folders: of the streams' files. opener: opens them.
        ends_read: which readers got the end of a stream.
        maintenance: the upkeep of the streams. quota: their disk quota.
        intake: takes posts to the source streams here.
        mend: fetches a lost file of a log again; see `StreamLog.mend`.
        defined: called with every stream here after its definition has changed.
        opened: called with every log that was opened or made.
    """

    def __init__(
        self,
        folder: Path,
        *,
        subscriptions: Subscriptions,
        config: EngineConfig,
        clock: Clock,
        events: Events,
        memory: Budgets,
        nursery: trio.Nursery,
    ) -> None:
        self._clock = clock
        self._subscriptions = subscriptions
        self._config = config
        self._events = events
        self._memory = memory
        self._streams: dict[LogKey, StreamState] = {}
        self._opening = trio.Lock()
        self.folders = StreamFolders(folder, events)
        self.ends_read = EndsRead(self.folders, self.get)
        shared = SharedMemory(min(SHARED_BYTES, memory.recent_bytes))
        self.opener = Opener(self.folders, config, shared, clock, events)
        self.maintenance = Maintenance(folder, subscriptions, config, events)
        self.quota = self.maintenance.quota
        self.intake = Intake(config, self.quota, clock, events, nursery)
        self.mend: Decision[[StreamState, EpochFile], Awaitable[None]] = Decision(_nobody_has_it)
        self.defined: Listeners[[StreamState]] = Listeners()
        self.opened: Listeners[[StreamState]] = Listeners()

    def get(self, stream: str, variant: str = "") -> StreamState | None:
        """A log of that stream; see `LogKey`."""
        return self._streams.get(LogKey(stream, variant))

    def serving(self, name: str) -> StreamState | None:
        """The log from which this peer serves subscribers of a stream: the log of its own stream,
        of a stream that it took over, or of a stream that it computes for others. The log of a
        follower or a standby is not served: subscribers ask the producer."""
        # a secondary that took over may still run a task of that query for the former owner
        variants = (REPLICA, REPLICATED, "", OUTPUT)
        for key in (LogKey(name, variant) for variant in variants):
            state = self._streams.get(key)
            if state is not None and state.role.is_served:
                return state
        return None

    def leases(self, name: str) -> list[Lease]:
        """The leases that this peer granted on a stream."""
        return self._subscriptions.of(name)

    def adopt(self, lease: Lease) -> None:
        """Grant a lease that another peer has granted, in case this one comes to serve the stream.

        Raises:
            BusyError: too many named subscribers.
        """
        self._subscriptions.adopt(lease, self._streams.get(LogKey(lease.stream, REPLICA)))

    def beside(self, state: StreamState) -> list[StreamState]:
        """The late tuples of a source, and its revisions if it takes any."""
        if state.leader is None:
            return []
        keys = [LogKey(entry.stream.name, state.variant) for entry in entries_of(state.entry)[1:]]
        return [self._streams[key] for key in keys if key in self._streams]

    async def change_role(self, state: StreamState, role: Role) -> None:
        """Change the role of a log; the role is on disk on return."""
        stored = StoredStream(state.entry, role, state.variant)
        await trio.to_thread.run_sync(self.folders.save, stored)
        state.role = role

    @failpoint(Failpoint.STREAM_DEFINE)
    async def define(self, state: StreamState, entry: StreamEntry) -> None:
        """Set the definition of a stream, and of the streams beside it, and call `defined`. It is
        on disk on return, or after the next change at the latest: the definition is stored
        elsewhere as well."""
        for each, of in zip((state, *self.beside(state)), entries_of(entry), strict=False):
            each.define(of)
            self.defined.notify(each)
        stored = StoredStream(entry, state.role, state.variant)
        try:
            await trio.to_thread.run_sync(self.folders.save, stored)
        except StorageError as error:
            self._events.note("warning", f"could not save the definition of {state.name}: {error}")

    def all(self) -> tuple[StreamState, ...]:
        return tuple(self._streams.values())

    @property
    def is_durable(self) -> bool:
        """Whether acknowledged posts survive a loss of power."""
        return self._config.fsync

    @property
    def timing(self) -> Timing:
        return self._config.timing

    @property
    def lease_s(self) -> float:
        """How long the stream waits for a named subscriber that is away, seconds."""
        return self._config.lease_s

    async def load(self) -> None:
        """Open every stream of the last run."""
        async with aclosing(self.folders.stored()) as all_stored:
            async for stored in all_stored:
                # otherwise its ballot names the journal: see `Leaders`
                if stored.variant != REPLICATED:
                    await self.keep(stored.entry, stored.role, stored.variant)

    async def keep(
        self, entry: StreamEntry, role: Role, variant: str = "", *, journal: int = 0
    ) -> StreamState:
        """The stream, opened, or made if it is new here.

        Args: journal: for a source with replicas, the number of its journal; see `open_leader`.
        """
        async with self._opening:
            state = self._streams.get(LogKey(entry.stream.name, variant))
            if state is None:
                opened = await self.opener.open(StoredStream(entry, role, variant), journal)
                for state in opened:
                    if state.leader is not None:
                        self.intake.start(state, state.leader)
                    self._adopt(state)
                return opened[-1]
            return state

    def _adopt(self, state: StreamState) -> None:
        def report(text: str) -> None:
            self._events.note("error", f"misses rows of {state.name}: {text}")

        state.log.damage.found.add(report)
        state.log.damage.mend.made_by(partial(self.mend, state))
        for lost in state.log.files.lost:
            report(lost_in_words(lost))
        now = trio.current_time()
        state.rate.add(0.0, now)
        state.measure(now, now)
        state.memory = self._memory.streams.share(str(state.key))
        self._streams[state.key] = state
        self.maintenance.watch(state)
        self._subscriptions.restore(state)
        self.opened.notify(state)

    @failpoint(Failpoint.STREAM_DROP)
    async def drop(self, key: LogKey) -> None:
        """Close a log and delete its files."""
        if await self._forget(key):
            await self.folders.remove(key)

    async def erase(self, key: LogKey) -> None:
        """As `drop`, even if the log is not open, for example after a crash."""
        await self._forget(key)
        if self.folders.of(key).exists():
            await self.folders.remove(key)

    async def set_aside(self, state: StreamState) -> Path:
        """Close a source stream that belongs to another peer; returns the folder that keeps its
        files."""
        aside = LogKey(state.name, f"{ASIDE}-{int(self._clock())}")
        with trio.CancelScope(shield=True):
            await self._forget(state.key)
            folder = await self.folders.put_aside(state.key, aside)
        return folder

    async def _forget(self, key: LogKey) -> bool:
        """Close a log and forget it; returns whether there was one."""
        state = self._streams.pop(key, None)
        if state is None:
            return False
        self.maintenance.forget(key)
        state.scope.cancel()
        self.intake.forget(key)
        if state.leader is not None:
            await state.at_rest.wait()
        await state.closing.aclose()
        for beside in self.beside(state):
            del self._streams[beside.key]
            self.maintenance.forget(beside.key)
            self._subscriptions.forget(beside.name)
        if state.role is not Role.FOLLOWER and self.serving(state.name) is None:
            self._subscriptions.forget(state.name)
        return True

    async def close(self) -> None:
        """Close all files, once they are not used; pending posts stay in the journals."""
        with trio.CancelScope(shield=True):
            for state in self._streams.values():
                await state.closing.aclose()
            await self._subscriptions.save()

    def troubles(self) -> Iterator[Trouble]:
        """The troubles of the disk, of posts and followers, and of lost rows."""
        yield from self.quota.troubles()
        yield from self.intake.troubles()
        yield from self.folders.troubles()
        for state in self._streams.values():
            if (trouble := _loss(state)) is not None:
                yield trouble
            if state.refusal:
                owner = ObjectName.parse(state.name).participant
                what, mend = f"cannot be read: {state.refusal}", f"ask {owner} to let you read it"
                yield Trouble(Reason.CANNOT_READ, state.name, what, mend)

    def status(self) -> tuple[StreamStatus, ...]:
        now = trio.current_time()
        return tuple(
            state.status(now)
            for state in sorted(self._streams.values(), key=lambda state: state.name)
            if state.log.files.rows or not state.is_beside_a_source
        )


def _loss(state: StreamState) -> Trouble | None:
    """The trouble about lost rows of a log, or None. Damaged files count until they are repaired;
    rows lost by a journal or a loss of power count for as long as the peer runs."""
    files = [lost_in_words(file) for file in state.log.files.lost]
    gone = state.log.lost if state.leader is None else state.leader.lost
    if not (told := [*files, *gone]):
        return None
    more = f", and {len(told) - 1} losses more (medusa-peer inspect)" if len(told) > 1 else ""
    mend = "" if files else "post them again; the next start of this peer ends this message"
    return Trouble(Reason.ROWS_LOST, state.name, f"misses rows: {told[0]}{more}", mend)


async def _nobody_has_it(_state: StreamState, _lost: EpochFile) -> None:
    await trio.lowlevel.checkpoint()
