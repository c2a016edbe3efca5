"""Every stream that this peer keeps: as its leader, as its producer, or as a follower."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final

import trio
from msgspec import Struct
from msgspec.structs import replace

from medusa.engine.objects.definitions import StreamEntry, base_of
from medusa.engine.objects.files import file_name
from medusa.engine.objects.schema import END
from medusa.engine.streams.config import EngineConfig, SourceConfig, Timing
from medusa.engine.streams.log.epochs import EpochFile
from medusa.engine.streams.log.recent import SHARED_BYTES, SharedMemory
from medusa.engine.streams.log.scanning import lost_in_words
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.messages import StreamStatus
from medusa.engine.streams.source.leader import open_leader
from medusa.engine.streams.source.sources import open_sources
from medusa.engine.streams.store.intake import Intake
from medusa.engine.streams.store.stream_state import (
    LogKey,
    Role,
    StoredStream,
    StreamState,
    entries_of,
)
from medusa.engine.streams.store.subscriptions import Lease, Subscriptions
from medusa.engine.streams.store.tending import Tending
from medusa.overlay.clock import Clock
from medusa.overlay.concurrency import Locks
from medusa.overlay.errors import BrokenError, NotFoundError, StorageError
from medusa.overlay.events import Events
from medusa.overlay.files import load_json, save_json, storing
from medusa.overlay.inventory import Inventory, forgotten, is_missing
from medusa.overlay.killpoints import KillPoint, kill_point
from medusa.overlay.listeners import Decision, Listeners
from medusa.overlay.memory import Budgets
from medusa.overlay.names import ObjectName
from medusa.overlay.troubles import Reason, Trouble

OUTPUT: Final = "out"
"""The variant of the output of a task that this peer runs for another."""

REPLICA: Final = "replica"
"""The variant of a query's outputs at its secondary, also once it took over."""

REPLICATED: Final = "home"
"""The variant of a source stream with replicas, and of its late tuples, at a voter: the settled
part. A query here reads it by a follower, as any other peer does, whichever peer is leader."""

ASIDE: Final = "aside"
"""The variant of the files of a stream that turned out to be another peer's."""

GONE: Final = "~"
"""The start of the folder's name of a dropped stream: no stream's name begins so."""

MAX_FILE_NAME: Final = 255
"""Bytes of a file's name, of every common file system."""

_FILE: Final = "stream.json"
"""Has the definition of the folder's stream."""
_ENDED: Final = "ended.json"
"""Has the readers that were given the end of the stream."""

MAX_END_READERS: Final = 64
"""Readers in that file: one is enough for a refusal, and people want to know which."""

_SET_ASIDE: Final = "stream.aside.json"

_MEND: Final = (
    "restore it from a copy, or move its folder away: what this peer keeps of that stream is in it"
)


def read_entry(folder: Path) -> StoredStream:
    """Read a stream's definition from its folder. Blocking.

    Raises:
        NotFoundError: there is none. DamagedError: the file is damaged.
    """
    return load_json(folder / _FILE, StoredStream, mend=_MEND)


class EndReaders(Struct, frozen=True):
    """The readers that were given the end of a source stream or of its revisions."""

    readers: tuple[str, ...]


class StreamStore:
    """The streams of one peer.

    Args:
        folder: has one folder per stream.
        memory: bounds recent epochs, and posts that wait.
        nursery: runs the tasks that move posts into the logs.

    Attributes:
        tending: the upkeep of the streams. quota: their disk quota.
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
        self._folder = folder
        self._clock = clock
        self._subscriptions = subscriptions
        self._config = config
        self._events = events
        self._memory = memory
        self._shared = SharedMemory(min(SHARED_BYTES, memory.recent_bytes))
        self._streams: dict[LogKey, StreamState] = {}
        self._unknown: list[Path] = []
        self._missing: list[str] = []
        self._inventory = Inventory(folder)
        self._opening = trio.Lock()
        self._telling_end = Locks()
        self.tending = Tending(folder, subscriptions, config, events)
        self.quota = self.tending.quota
        self.intake = Intake(config, self.quota, clock, events, nursery)
        self.mend: Decision[[StreamState, EpochFile], Awaitable[None]] = Decision(_nobody_has_it)
        self.defined: Listeners[[StreamState]] = Listeners()
        self.opened: Listeners[[StreamState]] = Listeners()

    def get(self, stream: str, variant: str = "") -> StreamState | None:
        """A log of that stream; see `LogKey`."""
        return self._streams.get(LogKey(stream, variant))

    def serving(self, name: str) -> StreamState | None:
        """The log from which this peer serves subscribers of a stream: its own, one that it took
        over, or one that it computes for others. A follower's or a standby's log is not served:
        subscribers ask the producer."""
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
        """Keep the same log in another role from now on; on disk on return."""
        stored = StoredStream(state.entry, role, state.variant)
        path = self.folder_of(state.key) / _FILE
        await trio.to_thread.run_sync(save_json, path, stored)
        state.role = role

    @kill_point(KillPoint.STREAM_DEFINE)
    async def define(self, state: StreamState, entry: StreamEntry) -> None:
        """Set the definition of a stream, and of the streams beside it, and call `defined`. On disk
        on return, or after the next change: the definition is stored elsewhere as well."""
        for each, of in zip((state, *self.beside(state)), entries_of(entry), strict=False):
            each.define(of)
            self.defined.tell(each)
        stored = StoredStream(entry, state.role, state.variant)
        try:
            await trio.to_thread.run_sync(save_json, self.folder_of(state.key) / _FILE, stored)
        except StorageError as error:
            self._events.note("warning", f"could not save the definition of {state.name}: {error}")

    async def note_end_read(self, state: StreamState, reader: str) -> None:
        """Record for good that a reader is given the end of a source stream or of its revisions.

        Raises:
            BrokenError: the stream was reopened.
        """
        source = self._streams.get(LogKey(base_of(state.name), state.variant))
        if source is None or source.leader is None:
            return
        async with self.telling_end(source):
            if state.log.boundary < END:
                raise BrokenError(f"{state.name} goes on although it had ended: ask again")
            path = self.folder_of(source.key) / _ENDED
            known = load_end_readers(path)
            if reader not in known and len(known) < MAX_END_READERS:
                await trio.to_thread.run_sync(save_json, path, EndReaders((*known, reader)))

    def telling_end(self, source: StreamState) -> trio.Lock:
        """While this lock is held, no further reader learns that the stream has ended."""
        return self._telling_end.of(str(source.key))

    def end_readers(self, state: StreamState) -> tuple[str, ...]:
        """The readers that were given a source stream's end, or its revisions', for people."""
        return load_end_readers(self.folder_of(state.key) / _ENDED)

    @kill_point(KillPoint.STREAM_FORGET_END)
    def forget_end(self, state: StreamState) -> None:
        """Delete the record of the end of a stream, which was reopened. Blocking."""
        path = self.folder_of(state.key) / _ENDED
        with storing(path):
            path.unlink(missing_ok=True)

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
        with storing(self._folder):
            folders = sorted(path for path in self._folder.iterdir() if path.is_dir())
        self._missing = self._inventory.missing(path.name for path in folders)
        for name in self._missing:
            text = is_missing(self._folder / name, self._inventory)
            self._events.note("error", f"misses a stream with all its rows: {text}")
        for folder in folders:
            if folder.name.startswith(GONE):
                await trio.to_thread.run_sync(_remove, folder)
                continue
            try:
                stored = read_entry(folder)
            except NotFoundError:
                self._tell_unknown(folder)
                continue
            if stored.variant != REPLICATED:  # else its ballot says which journal: `Leaders`
                await self.keep(stored.entry, stored.role, stored.variant)

    def _tell_unknown(self, folder: Path) -> None:
        if any(folder.glob("*/*")) and not (folder / _SET_ASIDE).exists():
            self._unknown.append(folder)
            text = f"what it keeps is of no stream that this peer knows; {_MEND}"
            self._events.note("error", f"found {folder} without {_FILE}: {text}")

    async def keep(
        self, entry: StreamEntry, role: Role, variant: str = "", *, journal: int = 0
    ) -> StreamState:
        """The stream, opened, or made if it is new here.

        Args:
            journal: of a source with replicas: the number of its journal; see `open_leader`.
        """
        async with self._opening:
            state = self._streams.get(LogKey(entry.stream.name, variant))
            if state is None:
                state = await self._open(entry, role, variant, journal)
            return state

    async def _open(
        self, entry: StreamEntry, role: Role, variant: str, journal: int
    ) -> StreamState:
        folder = self.folder_of(LogKey(entry.stream.name, variant))
        with storing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        save_json(folder / _FILE, StoredStream(entry, role, variant))
        self._inventory.add(folder.name)
        if role in {Role.SOURCE, Role.REPLICA}:
            state = await self._open_source(entry, role, variant, folder, journal)
        else:
            state = await self._open_log(entry, role, variant, folder)
        self._adopt(state)
        return state

    def _adopt(self, state: StreamState) -> None:
        def tell(text: str) -> None:
            self._events.note("error", f"misses rows of {state.name}: {text}")

        state.log.damage.found.add(tell)
        state.log.damage.mend.made_by(partial(self.mend, state))
        for lost in state.log.files.lost:
            tell(lost_in_words(lost))
        now = trio.current_time()
        state.rate.add(0.0, now)
        state.measure(now, now)
        state.memory = self._memory.streams.share(str(state.key))
        self._streams[state.key] = state
        self.tending.watch(state)
        self._subscriptions.restore(state)
        self.opened.tell(state)

    async def _open_source(
        self, entry: StreamEntry, role: Role, variant: str, folder: Path, journal: int
    ) -> StreamState:
        stream, config = entry.stream, self._source_config(entry)
        closing = AsyncExitStack()
        leader = await closing.enter_async_context(
            open_leader(
                folder,
                stream.name,
                entry.revised_schema,
                config,
                history_us=stream.history_us,
                recent_bytes=self._config.recent_bytes,
                shared=self._shared,
                journal=journal,
                now=self._clock(),
            )
        )
        if role is Role.SOURCE and leader.source.definition not in {None, stream}:
            # A crash came between the journal and the file. Of replicas: `Keeper._take_definition`.
            entry = replace(entry, stream=leader.source.definition)
            save_json(folder / _FILE, StoredStream(entry, role, variant))
            for log in leader.logs.all:
                log.retention.history_us = entry.stream.history_us
        self._tell_lost(entry, leader.lost)
        for text in leader.cut_off:
            self._events.note("warning", f"cut off a torn end of {stream.name}: {text}")
        state = StreamState(entry, role, leader.logs.stream, leader, variant, closing=closing)
        for of, log in zip(entries_of(entry)[1:], leader.logs.beside, strict=True):
            role_beside = Role.at_leader(of.stream.name) if role is Role.SOURCE else role
            self._adopt(StreamState(of, role_beside, log, variant=variant))
        self.intake.start(state, leader)
        return state

    def _source_config(self, entry: StreamEntry) -> SourceConfig:
        config = SourceConfig(durable=self._config.fsync, pending_bytes=self._config.pending_bytes)
        return config.of(entry.stream)

    async def replace_journal(self, state: StreamState, journal: int) -> None:
        """Go on with another journal of a source, while its leader is `at_rest`.

        Raises:
            InternalError: it is damaged.
        """
        leader = state.leader
        assert leader is not None, "a source"
        opened = partial(
            open_sources,
            self.folder_of(state.key),
            state.name,
            state.entry.schema,
            self._source_config(state.entry),
            committed=(leader.logs.stream.boundary, leader.logs.late.boundary),
            revised=leader.logs.revised,
            journal=journal,
            now=self._clock(),
        )
        leader.sources.replace(*await trio.to_thread.run_sync(opened))

    async def _open_log(
        self, entry: StreamEntry, role: Role, variant: str, folder: Path
    ) -> StreamState:
        schema = entry.schema.derived if entry.stream.query else entry.schema.source

        def open_log() -> StreamLog:
            return StreamLog.open(
                folder / "log",
                schema,
                history_us=0 if role is Role.FOLLOWER else entry.stream.history_us,
                recent_bytes=self._config.recent_bytes,
                shared=self._shared,
                durable=self._config.fsync,
            )

        log = await trio.to_thread.run_sync(open_log)
        self._tell_lost(entry, log.lost)
        state = StreamState(entry, role, log, variant=variant)
        state.closing.callback(state.log.close)
        state.closing.callback(state.suffix.clear)
        return state

    def _tell_lost(self, entry: StreamEntry, lost: Iterable[str]) -> None:
        for text in lost:
            self._events.note("error", f"misses rows of {entry.stream.name}: {text}")

    @kill_point(KillPoint.STREAM_DROP)
    async def drop(self, key: LogKey) -> None:
        """Close a log and delete its files."""
        if await self._let_go(key):
            await self._remove_folder(key)

    async def erase(self, key: LogKey) -> None:
        """As `drop`, also for a log that is not open, as after a crash."""
        await self._let_go(key)
        if self.folder_of(key).exists():
            await self._remove_folder(key)

    async def _remove_folder(self, key: LogKey) -> None:
        folder = self.folder_of(key)
        gone = folder.with_name(GONE + hashlib.sha256(str(key).encode()).hexdigest())
        try:
            self._inventory.remove(folder.name)
            with storing(folder), suppress(FileNotFoundError):
                folder.rename(gone)  # or a crash might leave a part of it
        except StorageError as error:
            self._events.note("error", f"dropped {key}, but its files stay: {error}")
            return
        await trio.to_thread.run_sync(_remove, gone)

    async def set_aside(self, state: StreamState) -> Path:
        """Close a source stream that is another peer's; gives the folder that keeps its files."""
        folder = self.folder_of(LogKey(state.name, f"{ASIDE}-{int(self._clock())}"))
        with trio.CancelScope(shield=True):
            await self._let_go(state.key)
            self._inventory.remove(self.folder_of(state.key).name)
            await trio.to_thread.run_sync(_put_aside, self.folder_of(state.key), folder)
        return folder

    async def _let_go(self, key: LogKey) -> bool:
        """Close a log and forget it; gives whether there was one."""
        state = self._streams.pop(key, None)
        if state is None:
            return False
        self.tending.forget(key)
        state.scope.cancel()
        self.intake.forget(key)
        if state.leader is not None:
            await state.at_rest.wait()
        await state.closing.aclose()
        for beside in self.beside(state):
            del self._streams[beside.key]
            self.tending.forget(beside.key)
            self._subscriptions.forget(beside.name)
        if state.role is not Role.FOLLOWER and self.serving(state.name) is None:
            self._subscriptions.forget(state.name)
        return True

    def folder_of(self, key: LogKey) -> Path:
        """The folder of a log's files."""
        name = file_name(str(key))
        if len(name) > MAX_FILE_NAME:  # of a variant: the file within has the whole name
            name = hashlib.sha256(str(key).encode()).hexdigest()
        return self._folder / name

    async def close(self) -> None:
        """Close all files, once they are not used; pending posts stay in the journals."""
        with trio.CancelScope(shield=True):
            for state in self._streams.values():
                await state.closing.aclose()
            await self._subscriptions.save()

    def troubles(self) -> Iterator[Trouble]:
        """The troubles of the disk, of posts and followers, and of stored rows that are gone."""
        yield from self.quota.troubles()
        yield from self.intake.troubles()
        for folder in self._unknown:
            yield Trouble(Reason.ROWS_LOST, str(folder), f"has no {_FILE}", _MEND)
        for name in self._missing:
            folder, mend = self._folder / name, forgotten(self._inventory)
            yield Trouble(Reason.ROWS_LOST, str(folder), "is missing, with all its rows", mend)
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


def load_end_readers(path: Path) -> tuple[str, ...]:
    try:
        return load_json(path, EndReaders, mend="remove it if nobody has read the end").readers
    except NotFoundError:
        return ()


def _loss(state: StreamState) -> Trouble | None:
    """The rows of a log that are lost, or None: damaged files until they are whole again, what a
    journal or a loss of power took for as long as the peer runs."""
    files = [lost_in_words(file) for file in state.log.files.lost]
    gone = state.log.lost if state.leader is None else state.leader.lost
    if not (told := [*files, *gone]):
        return None
    more = f", and {len(told) - 1} losses more (medusa-peer inspect)" if len(told) > 1 else ""
    mend = "" if files else "post them again; the next start of this peer ends this message"
    return Trouble(Reason.ROWS_LOST, state.name, f"misses rows: {told[0]}{more}", mend)


async def _nobody_has_it(_state: StreamState, _lost: EpochFile) -> None:
    await trio.lowlevel.checkpoint()


@kill_point(KillPoint.STREAM_REMOVE_FILES)
def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _put_aside(folder: Path, aside: Path) -> None:
    with storing(folder):
        folder.rename(aside)
        # a restart opens no such folder
        (aside / _FILE).rename(aside / _SET_ASIDE)
