from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

import trio

from medusa.engine.objects.definitions import Idle
from medusa.engine.objects.schema import END
from medusa.engine.streams.config import EngineConfig
from medusa.engine.streams.load import Pacer
from medusa.engine.streams.messages import Posted
from medusa.engine.streams.source.leader import Leader
from medusa.engine.streams.source.post_request import PostRequest
from medusa.engine.streams.store.disk_quota import DiskQuota
from medusa.engine.streams.store.stream_state import LogKey, StreamState
from medusa.overlay.clock import MAX_AHEAD_S, MEND, Clock, shown
from medusa.overlay.concurrency import until_one_ends
from medusa.overlay.errors import BusyError, InternalError, InvalidInputError, StorageError
from medusa.overlay.events import Events
from medusa.overlay.log import bound
from medusa.overlay.troubles import Reason, Trouble

HURRY_SHARE: Final = 0.125
"""Share of the bytes that may wait for their boundary: beyond it an epoch is cut before its
time."""


REFUSED_S: Final = 60.0
"""Seconds for which the refusal of a post is a trouble, unless a later one was accepted: clients
try again sooner. Without posts it is not known whether the next one would be refused."""

STORE_MEND: Final = "mend the disk, and all goes on by itself"


class _Refusal(NamedTuple):
    """Why posts to a stream were refused, and when the last one was, on trio's clock."""

    reason: str
    at: float


LATE_NOTED_S: Final = 60.0
"""Seconds between two notes of one stream's late rows: late rows may come for days."""


class Intake:
    """Takes posts, and moves their tuples into logs, for every source stream that this peer leads.

    Args:
        nursery: runs a task for each stream.
    """

    def __init__(
        self,
        config: EngineConfig,
        quota: DiskQuota,
        clock: Clock,
        events: Events,
        nursery: trio.Nursery,
    ) -> None:
        self._config = config
        self._quota = quota
        self._clock = clock
        self._events = events
        self._nursery = nursery
        self._broken: dict[LogKey, str] = {}
        self._stuck: dict[LogKey, str] = {}
        self._refusals: dict[LogKey, _Refusal] = {}
        self._late_noted: dict[LogKey, float] = {}

    def start(self, state: StreamState, leader: Leader) -> None:
        """Move a source's posts into its log, until its scope is cancelled."""
        self._check_clock(state, leader)
        self._nursery.start_soon(self._advance, state, leader)

    def _check_clock(self, state: StreamState, leader: Leader) -> None:
        """Report a boundary that follows the clock and lies in the future: the clock was wrong
        then, or is wrong now. A boundary is a promise, so it is never moved back."""
        by_clock = state.entry.stream.idle is Idle.CLOCK or state.entry.schema.time is None
        boundary, now = leader.boundary / 1e6, self._clock()
        if by_clock and leader.boundary < END and boundary > now + MAX_AHEAD_S:
            self._events.note(
                "error",
                f"finds {state.name} at {shown(boundary)}, and this machine's clock says "
                f"{shown(now)}: {MEND}; if it was wrong before, what is posted here is late until "
                "then: post to a stream of another name",
            )

    def forget(self, key: LogKey) -> None:
        """Note that a source is closed."""
        for noted in (self._broken, self._stuck, self._refusals, self._late_noted):
            noted.pop(key, None)

    def troubles(self) -> Iterator[Trouble]:
        """The troubles of streams here that stand still, or refused a post recently."""
        for key, reason in self._broken.items():
            what = f"stands still, and refuses posts: {reason}"
            yield Trouble(Reason.REFUSES_POSTS, key.stream, what, "start this peer again")
        for key, reason in self._stuck.items():
            yield Trouble(Reason.STANDS_STILL, key.stream, f"stands still: {reason}", STORE_MEND)
        now = trio.current_time()
        for key, refusal in self._refusals.items():
            if now - refusal.at <= REFUSED_S:
                what = f"refuses posts: {refusal.reason}"
                yield Trouble(Reason.REFUSES_POSTS, key.stream, what, STORE_MEND)

    async def post(self, state: StreamState, request: PostRequest) -> Posted:
        """Accept a post; wait while too many bytes wait for the log.

        Raises:
            InternalError: the stream stands still.
            StorageFullError: the streams of this peer have used up their disk quota.
            MedusaError: see `Source.post`.
        """
        leader = state.leader
        assert leader is not None, "only a leader takes posts"
        self._quota.check(state.name)
        while True:
            if state.key in self._broken:
                raise InternalError(f"{state.name} stands still here: {self._broken[state.key]}")
            moved = leader.logs.stream.boundary
            try:
                _check_memory(state, leader)
                if not request.post.revisions:
                    posted = await leader.post(request, now=self._clock())
                elif state.entry.stream.table:
                    raise InvalidInputError(
                        f"{state.name} is a table, without revisions: post a newer row of the key"
                    )
                else:
                    history_us = state.entry.stream.history_us
                    posted = await leader.revise(request, history_us=history_us, now=self._clock())
            except StorageError as error:
                self._note_refusal(state, str(error))
                raise
            except BusyError:
                state.hurry.ring()
                # otherwise a stream that breaks would not wake its waiters
                with trio.move_on_after(self._config.timing.store_again_s):
                    await leader.logs.stream.wait_beyond(moved)
                continue
            state.memory.set(leader.pending_bytes)
            self._refusals.pop(state.key, None)
            self._note_late(state, leader, posted)
            if leader.pending_bytes > HURRY_SHARE * self._config.pending_bytes:
                state.hurry.ring()
            return posted

    def _note_late(self, state: StreamState, leader: Leader, posted: Posted) -> None:
        """Note that rows were late, now and then."""
        now = trio.current_time()
        if posted.late and now - self._late_noted.get(state.key, -LATE_NOTED_S) >= LATE_NOTED_S:
            self._late_noted[state.key] = now
            rows = f"{leader.source.acceptance.late_rows:,} rows came late so far"
            late = f"{rows}: they are in {state.name}/late"
            self._events.note("warning", f"got late rows of {state.name}: {late}")

    def _note_refusal(self, state: StreamState, reason: str) -> None:
        before = self._refusals.get(state.key)
        if before is None or before.reason != reason:  # noted once, not for every post
            self._events.note("error", f"refuses posts to {state.name}: {reason}")
        self._refusals[state.key] = _Refusal(reason, trio.current_time())

    async def _advance(self, state: StreamState, leader: Leader) -> None:
        """Move ready tuples into the log, epoch by epoch. A fault ends this task, and no other."""
        try:
            with state.scope, bound(stream=state.name):
                await self._move_epochs(state, leader)
        except Exception as error:  # noqa: BLE001 - of one stream: the peer has others
            text = "its posts are refused until this peer is started again"
            cause = self._events.fault(f"stopped {state.name}; {text}", error)
            self._broken[state.key] = f"{type(error).__name__}: {error}; {self._events.why(cause)}"
            state.send_away()
        finally:
            state.at_rest.set()

    async def _move_epochs(self, state: StreamState, leader: Leader) -> None:
        pacer = Pacer(self._config.epoch_s)
        told = leader.lost
        while True:
            altered = partial(state.altered.changed_from, state.altered.value)
            clocked = state.entry.stream.idle is Idle.CLOCK or leader.sources.watch_clock
            with trio.move_on_after(self._config.epoch_s if clocked else float("inf")):
                waits = () if clocked else (leader.sources.wait_clock,)
                await until_one_ends(leader.wait_ready, altered, *waits)
            with trio.move_on_after(pacer.delay(trio.current_time())):
                await state.hurry.wait()
            state.hurry.clear()
            pacer.started(trio.current_time())
            try:
                await leader.advance(self._clock(), may_leap=self._clock.is_confirmed)
                self._stuck.pop(state.key, None)
                for text in leader.lost:
                    # a producer's next post may reveal that earlier ones are missing
                    if text not in told:
                        self._events.note("error", f"misses rows of {state.name}: {text}")
                told = leader.lost
            except StorageError as error:
                if state.key not in self._stuck:  # noted once, not at every try
                    text = f"stands still with {state.name}, and its posts wait: {error}"
                    self._events.note("error", text)
                self._stuck[state.key] = str(error)
                await trio.sleep(self._config.timing.store_again_s)
            finally:
                state.memory.set(leader.pending_bytes)
            pacer.finished(trio.current_time())


def _check_memory(state: StreamState, leader: Leader) -> None:
    """Refuse waiting tuples above their share of this peer's memory. Raises: BusyError."""
    if leader.pending_bytes and state.memory.full:
        raise BusyError(f"{state.name}: {leader.pending_bytes} bytes wait for its log; try again")
