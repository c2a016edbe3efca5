"""Every stream that this peer keeps: as its home, as its producer, or as a mirror of it."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Awaitable, Iterable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final

import trio
from msgspec import Struct
from msgspec.structs import replace

from engine.objects.definitions import StreamEntry, base_of
from engine.objects.files import file_name
from engine.objects.schema import END
from engine.streams.config import EngineConfig, Timing
from engine.streams.epochs import EpochFile
from engine.streams.home import open_home
from engine.streams.intake import Intake
from engine.streams.kept import KeptEntry, KeptStream, LogKey, Role, entries_of
from engine.streams.leases import Lease
from engine.streams.log import StreamLog
from engine.streams.messages import StreamStatus
from engine.streams.recent import SHARED_BYTES, SharedMemory
from engine.streams.restoring import lost_in_words
from engine.streams.source_config import SourceConfig
from engine.streams.sources import open_sources
from engine.streams.subscriptions import Subscriptions
from engine.streams.tending import Tending
from overlay.clock import Clock
from overlay.concurrency import Locks
from overlay.errors import BrokenError, NotFoundError, StorageError
from overlay.events import Events
from overlay.files import load_json, save_json, storing
from overlay.killpoints import KillPoint, kill_point
from overlay.listeners import Decision, Listeners
from overlay.memory import Budgets

OUTPUT: Final = "out"
"""The variant under which the output of a task that this peer runs for another is kept."""

REPLICA: Final = "replica"
"""The variant under which a secondary keeps the outputs of a query, also once it took over."""

HOME: Final = "home"
"""The variant under which an elector keeps a source stream with replicas, and its late tuples: what
of it is settled. A query here reads it as any other peer does, by a mirror, whoever is home."""

ASIDE: Final = "aside"
"""The variant under which the files of a stream are kept that turned out to be another peer's."""

GONE: Final = "~"
"""What the name of a folder begins with whose stream was dropped: no stream's does."""

MAX_FILE_NAME: Final = 255
"""Bytes of a file's name, of every common file system."""

_FILE: Final = "stream.json"
"""Says what stream the folder is of."""
_ENDED: Final = "ended.json"
"""Says who was given the end of the stream."""

MAX_END_READERS: Final = 64
"""Named there: one is enough for a refusal, and people want to know which."""

_SET_ASIDE: Final = "stream.aside.json"

_MEND: Final = (
    "restore it from a copy, or move its folder away: what this peer keeps of that stream is in it"
)


def read_entry(folder: Path) -> KeptEntry:
    """What the folder of a stream says of it. Blocking.

    Raises:
        NotFoundError: it says nothing. DamagedError: the file is damaged.
    """
    return load_json(folder / _FILE, KeptEntry, mend=_MEND)


class EndReaders(Struct, frozen=True):
    """Who was given the end of a source stream or of its revisions."""

    readers: tuple[str, ...]


class StreamStore:
    """
    Args:
        folder: one folder a stream.
        memory: bounds recent epochs, and posts that wait.
        nursery: runs what moves posts into the logs.

    Attributes:
        tending: looks after them over time. room: that they may take on the disk.
        intake: takes posts to the sources among them.
        mend: has a lost file of a log fetched again; see `StreamLog.mend`.
        defined: told of every stream here whose definition has changed, after that.
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
        self._streams: dict[LogKey, KeptStream] = {}
        self._opening = trio.Lock()
        self._telling_end = Locks()
        self.tending = Tending(self.all, subscriptions, config, events)
        self.room = self.tending.room
        self.intake = Intake(config, self.room, clock, events, nursery)
        self.mend: Decision[[KeptStream, EpochFile], Awaitable[None]] = Decision(_nobody_has_it)
        self.defined: Listeners[[KeptStream]] = Listeners()

    def get(self, stream: str, variant: str = "") -> KeptStream | None:
        """A log of that stream; see `LogKey`."""
        return self._streams.get(LogKey(stream, variant))

    def serving(self, name: str) -> KeptStream | None:
        """What this peer gives to subscribers of that stream: its own, what it took over, or what
        it runs for others.

        A mirror is not passed on, nor what a standby has: its producer is asked.
        """
        # who took a query over may still run a task of it for the owner that it succeeds
        variants = (REPLICA, HOME, "", OUTPUT)
        for key in (LogKey(name, variant) for variant in variants):
            kept = self._streams.get(key)
            if kept is not None and kept.role.is_served:
                return kept
        return None

    def leases(self, name: str) -> list[Lease]:
        """What named subscribers of a stream were promised by this peer."""
        return self._subscriptions.of(name)

    def adopt(self, lease: Lease) -> None:
        """Promise a subscriber what another peer has promised it: should we come to serve it.

        Raises:
            BusyError: too many named subscribers.
        """
        self._subscriptions.adopt(lease, self._streams.get(LogKey(lease.stream, REPLICA)))

    def beside(self, kept: KeptStream) -> list[KeptStream]:
        """The late tuples of a source, and its revisions if it takes any."""
        if kept.home is None:
            return []
        keys = [LogKey(entry.stream.name, kept.variant) for entry in entries_of(kept.entry)[1:]]
        return [self._streams[key] for key in keys if key in self._streams]

    async def change_role(self, kept: KeptStream, role: Role) -> None:
        """The same log, kept for another reason from now on; on disk on return."""
        stored = KeptEntry(kept.entry, role, kept.variant)
        path = self.folder_of(kept.key) / _FILE
        await trio.to_thread.run_sync(save_json, path, stored)
        kept.role = role

    @kill_point(KillPoint.STREAM_DEFINE)
    async def define(self, kept: KeptStream, entry: StreamEntry) -> None:
        """The stream is defined so from now on, and what is beside it. Whoever has to do with it
        hears so; see `defined`. On disk on return, or after the next time: it is written down
        elsewhere as well."""
        for each, of in zip((kept, *self.beside(kept)), entries_of(entry), strict=False):
            each.define(of)
            self.defined.tell(each)
        stored = KeptEntry(entry, kept.role, kept.variant)
        try:
            await trio.to_thread.run_sync(save_json, self.folder_of(kept.key) / _FILE, stored)
        except StorageError as error:
            self._events.note("warning", f"could not save the definition of {kept.name}: {error}")

    async def note_end_read(self, kept: KeptStream, reader: str) -> None:
        """Remember, for good, who is given the end of a source stream or of its revisions.

        Raises:
            BrokenError: it has none any more.
        """
        source = self._streams.get(LogKey(base_of(kept.name), kept.variant))
        if source is None or source.home is None:
            return
        async with self.telling_end(source):
            if kept.log.boundary < END:
                raise BrokenError(f"{kept.name} goes on although it had ended: ask again")
            path = self.folder_of(source.key) / _ENDED
            known = load_end_readers(path)
            if reader not in known and len(known) < MAX_END_READERS:
                await trio.to_thread.run_sync(save_json, path, EndReaders((*known, reader)))

    def telling_end(self, source: KeptStream) -> trio.Lock:
        """While it is held nobody more is told that the stream has ended."""
        return self._telling_end.of(str(source.key))

    def end_readers(self, kept: KeptStream) -> tuple[str, ...]:
        """Who was given the end of a source stream or of its revisions, for people."""
        return load_end_readers(self.folder_of(kept.key) / _ENDED)

    @kill_point(KillPoint.STREAM_FORGET_END)
    def forget_end(self, kept: KeptStream) -> None:
        """It has not ended after all. Blocking."""
        path = self.folder_of(kept.key) / _ENDED
        with storing(path):
            path.unlink(missing_ok=True)

    def all(self) -> tuple[KeptStream, ...]:
        return tuple(self._streams.values())

    @property
    def is_durable(self) -> bool:
        """Whether what is acknowledged survives a loss of power."""
        return self._config.fsync

    @property
    def timing(self) -> Timing:
        return self._config.timing

    @property
    def lease_s(self) -> float:
        """How long a named subscriber that went away is waited for, seconds."""
        return self._config.lease_s

    async def load(self) -> None:
        """Open every stream of the last run."""
        with storing(self._folder):
            folders = sorted(path for path in self._folder.iterdir() if path.is_dir())
        for folder in folders:
            if folder.name.startswith(GONE):
                await trio.to_thread.run_sync(_remove, folder)
                continue
            try:
                stored = read_entry(folder)
            except NotFoundError:
                self._tell_unknown(folder)
                continue
            if stored.variant != HOME:  # else its ballot says what is open: `Homes`
                await self.keep(stored.entry, stored.role, stored.variant)

    def _tell_unknown(self, folder: Path) -> None:
        if any(folder.glob("*/*")) and not (folder / _SET_ASIDE).exists():
            text = f"what it keeps is of no stream that this peer knows; {_MEND}"
            self._events.note("error", f"found {folder} without {_FILE}: {text}")

    async def keep(
        self, entry: StreamEntry, role: Role, variant: str = "", *, journal: int = 0
    ) -> KeptStream:
        """The stream, opened, or made if it is new here.

        Args:
            journal: of a source with replicas: which of its journals counts; see `open_home`.
        """
        async with self._opening:
            kept = self._streams.get(LogKey(entry.stream.name, variant))
            if kept is None:
                kept = await self._open(entry, role, variant, journal)
            return kept

    async def _open(self, entry: StreamEntry, role: Role, variant: str, journal: int) -> KeptStream:
        folder = self.folder_of(LogKey(entry.stream.name, variant))
        with storing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        save_json(folder / _FILE, KeptEntry(entry, role, variant))
        if role in {Role.SOURCE, Role.REPLICA}:
            kept = await self._open_source(entry, role, variant, folder, journal)
        else:
            kept = await self._open_log(entry, role, variant, folder)
        self._adopt(kept)
        return kept

    def _adopt(self, kept: KeptStream) -> None:
        def tell(text: str) -> None:
            self._events.note("error", f"misses rows of {kept.name}: {text}")

        kept.log.damaged.add(tell)
        kept.log.mend.made_by(partial(self.mend, kept))
        for lost in kept.log.lost_files:
            tell(lost_in_words(lost))
        kept.measure(trio.current_time())
        kept.memory = self._memory.streams.share(str(kept.key))
        self._streams[kept.key] = kept
        self._subscriptions.restore(kept)

    async def _open_source(
        self, entry: StreamEntry, role: Role, variant: str, folder: Path, journal: int
    ) -> KeptStream:
        stream, config = entry.stream, self._source_config(entry)
        closing = AsyncExitStack()
        home = await closing.enter_async_context(
            open_home(
                folder,
                stream.name,
                entry.schema,
                config,
                history_us=stream.history_us,
                recent_bytes=self._config.recent_bytes,
                shared=self._shared,
                journal=journal,
                now=self._clock(),
            )
        )
        if role is Role.SOURCE and home.definition not in {None, stream}:
            # A crash came between the journal and the file. Of replicas: `Keeper.take_definition`.
            entry = replace(entry, stream=home.definition)
            save_json(folder / _FILE, KeptEntry(entry, role, variant))
            for log in home.logs:
                log.retention.history_us = entry.stream.history_us
        self._tell_lost(entry, home.lost)
        for text in home.cut_off:
            self._events.note("warning", f"cut off a torn end of {stream.name}: {text}")
        kept = KeptStream(entry, role, home.log, home, variant, closing=closing)
        for of, log in zip(entries_of(entry)[1:], home.logs_beside, strict=True):
            role_beside = Role.at_home(of.stream.name) if role is Role.SOURCE else role
            self._adopt(KeptStream(of, role_beside, log, variant=variant))
        self.intake.start(kept, home)
        return kept

    def _source_config(self, entry: StreamEntry) -> SourceConfig:
        config = SourceConfig(durable=self._config.fsync, pending_bytes=self._config.pending_bytes)
        return config.of(entry.stream)

    async def replace_journal(self, kept: KeptStream, journal: int) -> None:
        """Go on with another journal of a source, while its home is `at_rest`.

        Raises:
            InternalError: it is damaged.
        """
        home = kept.home
        assert home is not None, "a source"
        opened = partial(
            open_sources,
            self.folder_of(kept.key),
            kept.name,
            kept.entry.schema,
            self._source_config(kept.entry),
            committed=(home.log.boundary, home.late_log.boundary),
            revised=home.revised,
            journal=journal,
            now=self._clock(),
        )
        home.replace(*await trio.to_thread.run_sync(opened))

    async def _open_log(
        self, entry: StreamEntry, role: Role, variant: str, folder: Path
    ) -> KeptStream:
        schema = entry.schema.derived if entry.stream.query else entry.schema.source

        def open_log() -> StreamLog:
            return StreamLog.open(
                folder / "log",
                schema,
                history_us=0 if role is Role.MIRROR else entry.stream.history_us,
                recent_bytes=self._config.recent_bytes,
                shared=self._shared,
                durable=self._config.fsync,
            )

        log = await trio.to_thread.run_sync(open_log)
        self._tell_lost(entry, log.lost)
        kept = KeptStream(entry, role, log, variant=variant)
        kept.closing.callback(kept.log.close)
        kept.closing.callback(kept.suffix.clear)
        return kept

    def _tell_lost(self, entry: StreamEntry, lost: Iterable[str]) -> None:
        for text in lost:
            self._events.note("error", f"misses rows of {entry.stream.name}: {text}")

    @kill_point(KillPoint.STREAM_DROP)
    async def drop(self, key: LogKey) -> None:
        """Close a log and delete what is in it."""
        if await self._let_go(key):
            await self._remove_folder(key)

    async def erase(self, key: LogKey) -> None:
        """`drop`, also of what is not open: a crash may have come to it."""
        await self._let_go(key)
        if self.folder_of(key).exists():
            await self._remove_folder(key)

    async def _remove_folder(self, key: LogKey) -> None:
        folder = self.folder_of(key)
        gone = folder.with_name(GONE + hashlib.sha256(str(key).encode()).hexdigest())
        try:
            with storing(folder), suppress(FileNotFoundError):
                folder.rename(gone)  # or a crash might leave a part of it
        except StorageError as error:
            self._events.note("error", f"dropped {key}, but its files stay: {error}")
            return
        await trio.to_thread.run_sync(_remove, gone)

    async def set_aside(self, kept: KeptStream) -> Path:
        """Close a source, and keep what is in it for a person: another peer has the stream. Gives
        the folder."""
        folder = self.folder_of(LogKey(kept.name, f"{ASIDE}-{int(self._clock())}"))
        with trio.CancelScope(shield=True):
            await self._let_go(kept.key)
            await trio.to_thread.run_sync(_put_aside, self.folder_of(kept.key), folder)
        return folder

    async def _let_go(self, key: LogKey) -> bool:
        """Close a log, and know nothing of it any more; whether there was one."""
        kept = self._streams.pop(key, None)
        if kept is None:
            return False
        kept.scope.cancel()
        self.intake.forget(key)
        if kept.home is not None:
            await kept.at_rest.wait()
        await kept.closing.aclose()
        for beside in self.beside(kept):
            del self._streams[beside.key]
            self._subscriptions.forget(beside.name)
        if kept.role is not Role.MIRROR and self.serving(kept.name) is None:
            self._subscriptions.forget(kept.name)
        return True

    def folder_of(self, key: LogKey) -> Path:
        """Where the files of a log are."""
        name = file_name(str(key))
        if len(name) > MAX_FILE_NAME:  # of a variant: what it is stands in the file within
            name = hashlib.sha256(str(key).encode()).hexdigest()
        return self._folder / name

    async def close(self) -> None:
        """Close all files, once nobody uses them; what is pending stays in the journals."""
        with trio.CancelScope(shield=True):
            for kept in self._streams.values():
                await kept.closing.aclose()
            await self._subscriptions.save()

    def status(self) -> tuple[StreamStatus, ...]:
        now = trio.current_time()
        return tuple(
            kept.status(now)
            for kept in sorted(self._streams.values(), key=lambda kept: kept.name)
            if kept.log.rows or not kept.is_beside_a_source
        )


def load_end_readers(path: Path) -> tuple[str, ...]:
    try:
        return load_json(path, EndReaders, mend="remove it if nobody has read the end").readers
    except NotFoundError:
        return ()


async def _nobody_has_it(_kept: KeptStream, _lost: EpochFile) -> None:
    await trio.lowlevel.checkpoint()


@kill_point(KillPoint.STREAM_REMOVE_FILES)
def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _put_aside(folder: Path, aside: Path) -> None:
    with storing(folder):
        folder.rename(aside)
        # a restart opens no such folder
        (aside / _FILE).rename(aside / _SET_ASIDE)
