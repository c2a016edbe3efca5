from __future__ import annotations

import math
from pathlib import Path
from typing import Final

import trio

from medusa.engine.streams.config import EngineConfig
from medusa.engine.streams.memory import give_back
from medusa.engine.streams.store.disk_quota import DiskQuota, Held, to_release
from medusa.engine.streams.store.stream_state import LogKey, StreamState
from medusa.engine.streams.store.subscriptions import Subscriptions
from medusa.overlay.concurrency import next_beat
from medusa.overlay.errors import MedusaError, StorageError
from medusa.overlay.events import Events

TIDY_S: Final = 0.1
"""The least time, seconds, between rounds that posts start when the disk is full: each round visits
all streams."""

GIVE_BACK_S: Final = 2.0
"""How often free memory of the process is returned to the system, seconds."""

COMPACT_S: Final = 10.0
"""How often small files are merged, seconds: the sixty epochs until then cost little."""


class Maintenance:
    """Upkeep of a peer's streams: retention, compaction, and the return of memory. It visits a log
    after a change, and while time alone may change what the log keeps. Args: folder: has the
    streams. Attributes: quota: their disk quota.
    """

    def __init__(
        self,
        folder: Path,
        subscriptions: Subscriptions,
        config: EngineConfig,
        events: Events,
    ) -> None:
        self._streams: dict[LogKey, StreamState] = {}
        self._subscriptions = subscriptions
        self._events = events
        self._restless: dict[LogKey, StreamState] = {}
        self._resting_bytes: dict[LogKey, int] = {}
        self._all_resting_bytes = 0
        self._refusals: dict[LogKey, str] = {}
        self._tidied_at = -math.inf
        self.quota = DiskQuota(folder, config.disk_bytes, self._taken, events, self._make_room)
        self._foreign_hold_s = config.foreign_hold_s
        self._maintenance_s = config.timing.maintenance_s

    async def maintain(self) -> None:
        """Run retention, leases, rates, memory and compaction, for ever."""
        now = trio.current_time()
        give_back_at, compact_at = now + GIVE_BACK_S, now + COMPACT_S
        while True:
            await trio.sleep_until(next_beat(self._maintenance_s))
            before, now = now, trio.current_time()
            self._tidy(now)
            for state in tuple(self._restless.values()):
                state.measure(now, before)
                if state.suffix.tidy() and state.log.retention.is_at_rest:
                    self._let_rest(state)
            self.quota.look()
            await self._subscriptions.maintain()
            if now >= give_back_at:
                give_back_at = now + GIVE_BACK_S
                await trio.to_thread.run_sync(give_back)
            if now >= compact_at:
                compact_at = now + COMPACT_S
                await self._compact()

    def watch(self, state: StreamState) -> None:
        """Maintain an opened log until `forget`: now, and after each change of it."""

        def stirred() -> None:
            if self._streams.get(state.key) is state:
                self._wake(state)

        self._streams[state.key] = state
        state.log.retention.stirred.add(stirred)
        stirred()

    def forget(self, key: LogKey) -> None:
        """Stop maintaining that log."""
        self._streams.pop(key, None)
        self._refusals.pop(key, None)
        self._restless.pop(key, None)
        self._all_resting_bytes -= self._resting_bytes.pop(key, 0)

    def _let_rest(self, state: StreamState) -> None:
        del self._restless[state.key]
        self._resting_bytes[state.key] = state.log.files.bytes
        self._all_resting_bytes += state.log.files.bytes

    def _wake(self, state: StreamState) -> None:
        self._restless[state.key] = state
        self._all_resting_bytes -= self._resting_bytes.pop(state.key, 0)

    def be_patient(self, foreign_hold_s: float) -> None:
        """Set how long the streams wait for silent consumers of other participants, seconds."""
        self._foreign_hold_s = foreign_hold_s

    def _taken(self) -> int:
        awake = sum(state.log.files.bytes for state in self._restless.values())
        return self._all_resting_bytes + awake

    def _make_room(self) -> None:
        """Drop tuples before a post is refused: much may be posted between two rounds."""
        now = trio.current_time()
        if now - self._tidied_at >= TIDY_S:
            self._tidy(now)

    def _tidy(self, now: float) -> None:
        """Drop tuples that no consumer needs, and tuples of other participants' consumers that
        exceed their share."""
        self._tidied_at = now
        self._release_others(now)
        for state in self._restless.values():
            self._retain(state, now)

    def _release_others(self, now: float) -> None:
        """Release other participants' consumers that hold more than they may."""
        held = [
            Held(state.key, *each)
            for state in self._restless.values()
            for each in state.log.upkeep.held_by_others(now)
        ]
        if not held:
            return
        gone = to_release(
            held,
            disk_bytes=self.quota.limit_bytes,
            short_bytes=self.quota.short_bytes,
            hold_s=self._foreign_hold_s,
            now=now,
        )
        for each, why in gone.items():
            self._subscriptions.release(self._streams[each.key], each.consumer, each.holder, why)

    def _retain(self, state: StreamState, now: float) -> None:
        try:
            state.log.upkeep.retain(now)
            self._refusals.pop(state.key, None)
        except StorageError as error:
            if self._refusals.get(state.key) != str(error):  # noted once, not every second
                self._events.note(
                    "error", f"could not drop what {state.name} needs no more: {error}"
                )
            self._refusals[state.key] = str(error)

    async def _compact(self) -> None:
        for state in tuple(self._streams.values()):
            try:
                await state.log.upkeep.compact()
            except MedusaError as error:
                self._events.note("warning", f"could not compact {state.name}: {error}")
