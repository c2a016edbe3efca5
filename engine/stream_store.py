"""Every stream that this peer keeps: as its home, as its producer, or as a mirror of it."""

from __future__ import annotations

import hashlib
import shutil
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import msgspec
import trio

from engine.config import EngineConfig
from engine.definitions import LATE, Idle, StreamEntry
from engine.kept import KeptEntry, KeptStream, Role, file_name, key_of, late_entry
from engine.messages import Post, Posted, StreamStatus
from engine.pacing import Pacer
from engine.streams.home import Home, open_home
from engine.streams.log import StreamLog
from engine.streams.recent import SharedMemory
from engine.streams.source import SourceConfig
from engine.subscriptions import Subscriptions
from overlay.errors import BusyError, InternalError, MedusaError, StorageFullError
from overlay.events import Events, wall_clock
from overlay.files import write_atomically

TEND_S: Final = 1.0
"""How often retention, leases and rates are looked after, seconds."""

COMPACT_S: Final = 10.0
"""How often small files are merged, seconds: sixty epochs in the meantime are no burden."""

OUTPUT: Final = "out"
"""The variant under which the output of a task that this peer runs for another is kept."""

MAX_FILE_NAME: Final = 255
"""Bytes of a file's name, of every common file system."""

HURRY_SHARE: Final = 0.125
"""Of the bytes that may wait for their boundary: past it an epoch does not wait for its time."""


class StreamStore:
    """
    Args:
        folder: one folder a stream.
        nursery: runs what moves posts into the logs.
    """

    def __init__(
        self,
        folder: Path,
        subscriptions: Subscriptions,
        config: EngineConfig,
        events: Events,
        nursery: trio.Nursery,
    ) -> None:
        self._folder = folder
        self._subscriptions = subscriptions
        self._config = config
        self._events = events
        self._nursery = nursery
        self._shared = SharedMemory()
        self._streams: dict[str, KeptStream] = {}
        self._opening = trio.Lock()
        self._room = trio.Event()

    def get(self, key: str) -> KeptStream | None:
        """A log by its stream's name, or by its key if it is another variant (`key_of`)."""
        return self._streams.get(key)

    def serving(self, name: str) -> KeptStream | None:
        """What this peer gives to subscribers of that stream: its own, or what it runs for others.

        A mirror is not passed on: its producer is asked.
        """
        kept = self._streams.get(key_of(name, OUTPUT)) or self._streams.get(name)
        return None if kept is None or kept.role is Role.MIRROR else kept

    def all(self) -> tuple[KeptStream, ...]:
        return tuple(self._streams.values())

    @property
    def total_bytes(self) -> int:
        """Of all logs, on disk."""
        return sum(kept.log.bytes for kept in self._streams.values())

    async def load(self) -> None:
        """Open every stream of the last run."""
        for path in sorted(self._folder.glob("*/stream.json")):
            try:
                stored = msgspec.json.decode(path.read_bytes(), type=KeptEntry)
            except msgspec.DecodeError as error:
                raise InternalError(
                    f"{path} is damaged ({error}); restore it from a copy"
                ) from None
            await self.keep(stored.entry, stored.role, stored.variant)

    async def keep(self, entry: StreamEntry, role: Role, variant: str = "") -> KeptStream:
        """The stream, opened, or made if it is new here."""
        async with self._opening:
            kept = self._streams.get(key_of(entry.stream.name, variant))
            if kept is None:
                kept = await self._open(entry, role, variant)
            return kept

    async def _open(self, entry: StreamEntry, role: Role, variant: str) -> KeptStream:
        folder = self._folder_of(key_of(entry.stream.name, variant))
        folder.mkdir(parents=True, exist_ok=True)
        stored = msgspec.json.encode(KeptEntry(entry, role, variant))
        write_atomically(folder / "stream.json", stored)
        if role is Role.SOURCE:
            kept = await self._open_source(entry, folder)
        else:
            kept = await self._open_log(entry, role, variant, folder)
        self._adopt(kept)
        return kept

    def _adopt(self, kept: KeptStream) -> None:
        kept.measure(trio.current_time())
        self._streams[kept.key] = kept
        self._subscriptions.restore(kept)

    async def _open_source(self, entry: StreamEntry, folder: Path) -> KeptStream:
        stream = entry.stream
        config = SourceConfig(
            slack_us=stream.slack_us,
            idle=stream.idle,
            durable=self._config.fsync,
            pending_bytes=self._config.pending_bytes,
        )
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
                now=wall_clock(),
            )
        )
        kept = KeptStream(entry, Role.SOURCE, home.log, home, closing=closing)
        self._adopt(KeptStream(late_entry(entry), Role.LATE, home.late_log))
        self._nursery.start_soon(self._advance, kept, home)
        return kept

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
        kept = KeptStream(entry, role, log, variant=variant)
        kept.closing.callback(kept.log.close)
        return kept

    async def drop(self, key: str) -> None:
        """Close a log and delete what is in it. key: as of `get`."""
        kept = self._streams.pop(key, None)
        if kept is None:
            return
        kept.scope.cancel()
        if kept.home is not None:
            await kept.at_rest.wait()
        await kept.closing.aclose()
        late = self._streams.get(f"{kept.name}/{LATE}")
        if kept.role is Role.SOURCE and late is not None and late.role is Role.LATE:
            del self._streams[late.name]
            self._subscriptions.forget(late.name)
        if kept.role is not Role.MIRROR:
            self._subscriptions.forget(kept.name)
        await trio.to_thread.run_sync(_remove, self._folder_of(key))

    def _folder_of(self, key: str) -> Path:
        name = file_name(key)
        if len(name) > MAX_FILE_NAME:  # of a variant: what it is stands in the file within
            name = hashlib.sha256(key.encode()).hexdigest()
        return self._folder / name

    async def close(self) -> None:
        """Close all files, once nobody uses them; what is pending stays in the journals."""
        with trio.CancelScope(shield=True):
            for kept in self._streams.values():
                await kept.closing.aclose()
            await self._subscriptions.save()

    async def post(self, kept: KeptStream, producer: str, post: Post, body: bytes) -> Posted:
        """Accept a post, waiting while too much waits for the log already.

        Raises:
            StorageFullError: the streams of this peer take all the room they may.
            MedusaError: see `Source.post`.
        """
        home = kept.home
        assert home is not None, "only a home takes posts"
        self._check_room(kept)
        while True:
            moved = home.log.boundary
            try:
                posted = await home.post(
                    producer,
                    post.sequence,
                    body,
                    boundary=post.boundary,
                    end=post.end,
                    now=wall_clock(),
                )
            except StorageFullError:
                raise
            except BusyError:
                kept.hurry.set()
                await home.log.wait_beyond(moved)
                continue
            if home.pending_bytes > HURRY_SHARE * self._config.pending_bytes:
                kept.hurry.set()
            return posted

    def _check_room(self, kept: KeptStream) -> None:
        if self.total_bytes > self._config.disk_bytes:
            raise StorageFullError(
                f"{kept.name}: the streams of this peer hold {self.total_bytes} bytes, "
                f"{self._config.disk_bytes} are allowed (engine.disk_bytes): "
                "let subscribers catch up, declare less history, or allow more"
            )

    async def wait_for_room(self) -> None:
        """Return once the streams of this peer take less than they may."""
        while self.total_bytes > self._config.disk_bytes:
            await self._room.wait()

    async def _advance(self, kept: KeptStream, home: Home) -> None:
        """Move what is ready into the log, epoch by epoch."""
        pacer = Pacer(self._config.epoch_s)
        clocked = kept.entry.stream.idle is Idle.CLOCK
        full = False
        try:
            with kept.scope:
                while True:
                    with trio.move_on_after(self._config.epoch_s if clocked else float("inf")):
                        await home.wait_ready()
                    with trio.move_on_after(pacer.delay(trio.current_time())):
                        await kept.hurry.wait()
                    kept.hurry = trio.Event()
                    pacer.started(trio.current_time())
                    try:
                        await home.advance(wall_clock())
                        full = False
                    except StorageFullError as error:
                        if not full:
                            self._events.note("error", f"{kept.name} waits for room: {error}")
                        full = True
                        await trio.sleep(TEND_S)
                    pacer.finished(trio.current_time())
        finally:
            kept.at_rest.set()

    async def tend(self) -> None:
        """Retention, leases, rates and compaction, for ever."""
        compacted_at = trio.current_time()
        while True:
            await trio.sleep(TEND_S)
            now = wall_clock()
            for kept in list(self._streams.values()):
                kept.measure(trio.current_time())
                kept.log.retain(now)
            if self.total_bytes <= self._config.disk_bytes:
                self._room.set()
                self._room = trio.Event()
            await self._subscriptions.tend(now)
            if trio.current_time() - compacted_at >= COMPACT_S:
                await self._compact()
                compacted_at = trio.current_time()

    async def _compact(self) -> None:
        for kept in list(self._streams.values()):
            try:
                await kept.log.compact()
            except MedusaError as error:
                self._events.note("warning", f"{kept.name} was not compacted: {error}")

    def status(self) -> tuple[StreamStatus, ...]:
        now = trio.current_time()
        return tuple(
            kept.status(now)
            for kept in sorted(self._streams.values(), key=lambda kept: kept.name)
            if kept.role is not Role.LATE or kept.log.rows
        )


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
