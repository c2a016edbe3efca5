"""Opens the logs of a peer, and the leaders of its source streams."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import trio
from msgspec.structs import replace

from medusa.engine.objects.definitions import StreamEntry
from medusa.engine.streams.config import EngineConfig, SourceConfig
from medusa.engine.streams.log.recent import SharedMemory
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.source.leader import open_leader
from medusa.engine.streams.source.sources import open_sources
from medusa.engine.streams.store.folders import StreamFolders
from medusa.engine.streams.store.stream_state import Role, StoredStream, StreamState, entries_of
from medusa.overlay.clock import Clock
from medusa.overlay.events import Events


class Opener:
    """Opens streams from their folders.

    Args:
        shared: bounds the recent epochs of all logs.
    """

    def __init__(
        self,
        folders: StreamFolders,
        config: EngineConfig,
        shared: SharedMemory,
        clock: Clock,
        events: Events,
    ) -> None:
        self._folders = folders
        self._config = config
        self._shared = shared
        self._clock = clock
        self._events = events

    async def open(self, stored: StoredStream, journal: int) -> list[StreamState]:
        """Open a log, which is made if it is new. A source's late tuples and revisions come first.
        Args: journal: for a source with replicas, the number of its journal; see `open_leader`.
        """
        folder = self._folders.make(stored)
        if stored.role in {Role.SOURCE, Role.REPLICA}:
            return await self._open_source(stored, folder, journal)
        return [await self._open_log(stored, folder)]

    async def replace_journal(self, state: StreamState, journal: int) -> None:
        """Continue with another journal of a source, while its leader is `at_rest`.

        Raises:
            InternalError: it is damaged.
        """
        leader = state.leader
        assert leader is not None, "a source"
        opened = partial(
            open_sources,
            self._folders.of(state.key),
            state.name,
            state.entry.schema,
            self._source_config(state.entry),
            committed=(leader.logs.stream.boundary, leader.logs.late.boundary),
            revised=leader.logs.revised,
            journal=journal,
            now=self._clock(),
        )
        leader.sources.replace(*await trio.to_thread.run_sync(opened))

    async def _open_source(
        self, stored: StoredStream, folder: Path, journal: int
    ) -> list[StreamState]:
        entry, role, variant = stored.entry, stored.role, stored.variant
        stream, closing = entry.stream, AsyncExitStack()
        leader = await closing.enter_async_context(
            open_leader(
                folder,
                stream.name,
                entry.revised_schema,
                self._source_config(entry),
                history_us=stream.history_us,
                recent_bytes=self._config.recent_bytes,
                shared=self._shared,
                journal=journal,
                now=self._clock(),
            )
        )
        definition = leader.source.state.config.definition
        if role is Role.SOURCE and definition not in {None, stream}:
            # A crash may have come between the journal and the file. For streams with replicas see
            # `VoterDriver._take_definition`.
            entry = replace(entry, stream=definition)
            self._folders.save(StoredStream(entry, role, variant))
            for log in leader.logs.all:
                log.retention.history_us = entry.stream.history_us
        self._note_lost(entry, leader.lost)
        for text in leader.cut_off:
            self._events.note("warning", f"cut off a torn end of {stream.name}: {text}")
        opened = []
        for of, log in zip(entries_of(entry)[1:], leader.logs.beside, strict=True):
            role_beside = Role.at_leader(of.stream.name) if role is Role.SOURCE else role
            opened.append(StreamState(of, role_beside, log, variant=variant))
        log = leader.logs.stream
        return [*opened, StreamState(entry, role, log, leader, variant, closing=closing)]

    async def _open_log(self, stored: StoredStream, folder: Path) -> StreamState:
        entry, role = stored.entry, stored.role
        open_log = partial(
            StreamLog.open,
            folder / "log",
            entry.schema.derived if entry.stream.query else entry.schema.source,
            history_us=0 if role is Role.FOLLOWER else entry.stream.history_us,
            recent_bytes=self._config.recent_bytes,
            shared=self._shared,
            durable=self._config.fsync,
        )
        log = await trio.to_thread.run_sync(open_log)
        self._note_lost(entry, log.lost)
        state = StreamState(entry, role, log, variant=stored.variant)
        state.closing.callback(state.log.close)
        state.closing.callback(state.suffix.clear)
        return state

    def _source_config(self, entry: StreamEntry) -> SourceConfig:
        config = SourceConfig(durable=self._config.fsync, pending_bytes=self._config.pending_bytes)
        return config.of(entry.stream)

    def _note_lost(self, entry: StreamEntry, lost: Iterable[str]) -> None:
        for text in lost:
            self._events.note("error", f"misses rows of {entry.stream.name}: {text}")
