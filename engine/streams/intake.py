"""From posts to epochs: what every source that this peer is home of goes through."""

from __future__ import annotations

from functools import partial
from typing import Final

import trio

from engine.objects.definitions import Idle
from engine.objects.schema import END
from engine.streams.acceptance import Writer
from engine.streams.config import EngineConfig
from engine.streams.home import Home
from engine.streams.kept import KeptStream, LogKey
from engine.streams.messages import Post, Posted
from engine.streams.pacing import Pacer
from engine.streams.room import Room
from overlay.clock import MAX_AHEAD_S, MEND, Clock, shown
from overlay.concurrency import until_one_ends
from overlay.errors import BusyError, InternalError, StorageError
from overlay.events import Events
from overlay.log import bound

HURRY_SHARE: Final = 0.125
"""Of the bytes that may wait for their boundary: past it an epoch does not wait for its time."""


class Intake:
    """
    Args:
        nursery: runs what moves posts into the logs.
    """

    def __init__(
        self,
        config: EngineConfig,
        room: Room,
        clock: Clock,
        events: Events,
        nursery: trio.Nursery,
    ) -> None:
        self._config = config
        self._room = room
        self._clock = clock
        self._events = events
        self._nursery = nursery
        self._broken: dict[LogKey, str] = {}
        self._refusals: dict[LogKey, str] = {}

    def start(self, kept: KeptStream, home: Home) -> None:
        """Move what is posted to a source into its log, until its scope is cancelled."""
        self._check_clock(kept, home)
        self._nursery.start_soon(self._advance, kept, home)

    def _check_clock(self, kept: KeptStream, home: Home) -> None:
        """Say so where a boundary that came of the clock lies in its future: it was wrong then, or
        is wrong now. A boundary is a promise, and is not taken back."""
        by_clock = kept.entry.stream.idle is Idle.CLOCK or kept.entry.schema.time is None
        boundary, now = home.boundary / 1e6, self._clock()
        if by_clock and home.boundary < END and boundary > now + MAX_AHEAD_S:
            self._events.note(
                "error",
                f"finds {kept.name} at {shown(boundary)}, and this machine's clock says "
                f"{shown(now)}: {MEND}; if it was wrong before, what is posted here is late until "
                "then: post to a stream of another name",
            )

    def forget(self, key: LogKey) -> None:
        """That source is closed."""
        self._broken.pop(key, None)
        self._refusals.pop(key, None)

    async def post(self, kept: KeptStream, writer: Writer, post: Post, body: bytes) -> Posted:
        """Accept a post, waiting while too much waits for the log already.

        Raises:
            InternalError: the stream stands still.
            StorageFullError: the streams of this peer take all the room they may.
            MedusaError: see `Source.post`.
        """
        home = kept.home
        assert home is not None, "only a home takes posts"
        self._room.check(kept.name)
        while True:
            if kept.key in self._broken:
                raise InternalError(f"{kept.name} stands still here: {self._broken[kept.key]}")
            moved = home.log.boundary
            try:
                _check_memory(kept, home)
                take = home.post
                if post.revisions:
                    take = partial(home.revise, history_us=kept.entry.stream.history_us)
                posted = await take(
                    writer,
                    post.sequence,
                    body,
                    boundary=post.boundary,
                    end=post.end,
                    offsets=post.offsets,
                    now=self._clock(),
                )
            except StorageError as error:
                self._note_refusal(kept, str(error))
                raise
            except BusyError:
                kept.hurry.ring()
                # a stream that breaks tells nobody
                with trio.move_on_after(self._config.timing.store_again_s):
                    await home.log.wait_beyond(moved)
                continue
            kept.memory.set(home.pending_bytes)
            self._refusals.pop(kept.key, None)
            if home.pending_bytes > HURRY_SHARE * self._config.pending_bytes:
                kept.hurry.ring()
            return posted

    def _note_refusal(self, kept: KeptStream, reason: str) -> None:
        if self._refusals.get(kept.key) != reason:  # once, not for every post
            self._events.note("error", f"refuses posts to {kept.name}: {reason}")
        self._refusals[kept.key] = reason

    async def _advance(self, kept: KeptStream, home: Home) -> None:
        """Move what is ready into the log, epoch by epoch. A fault ends this, and nothing else."""
        try:
            with kept.scope, bound(stream=kept.name):
                await self._move_epochs(kept, home)
        except Exception as error:  # noqa: BLE001 - of one stream: the peer has others
            text = "its posts are refused until this peer is started again"
            cause = self._events.fault(f"stopped {kept.name}; {text}", error)
            self._broken[kept.key] = f"{type(error).__name__}: {error}; {self._events.why(cause)}"
            kept.send_away()
        finally:
            kept.at_rest.set()

    async def _move_epochs(self, kept: KeptStream, home: Home) -> None:
        pacer = Pacer(self._config.epoch_s)
        failing = False
        told = home.lost
        while True:
            altered = partial(kept.altered.changed_from, kept.altered.value)
            clocked = kept.entry.stream.idle is Idle.CLOCK
            with trio.move_on_after(self._config.epoch_s if clocked else float("inf")):
                await until_one_ends(home.wait_ready, altered)
            with trio.move_on_after(pacer.delay(trio.current_time())):
                await kept.hurry.wait()
            kept.hurry.clear()
            pacer.started(trio.current_time())
            try:
                await home.advance(self._clock(), may_leap=self._clock.is_confirmed)
                failing = False
                for text in home.lost:
                    if text not in told:  # a producer's next post says what is missing before it
                        self._events.note("error", f"misses rows of {kept.name}: {text}")
                told = home.lost
            except StorageError as error:
                if not failing:  # once, not at every try
                    text = f"stands still with {kept.name}, and its posts wait: {error}"
                    self._events.note("error", text)
                failing = True
                await trio.sleep(self._config.timing.store_again_s)
            finally:
                kept.memory.set(home.pending_bytes)
            pacer.finished(trio.current_time())


def _check_memory(kept: KeptStream, home: Home) -> None:
    """
    Raises:
        BusyError: what waits here takes more of this peer's memory than it may.
    """
    if home.pending_bytes and kept.memory.full:
        raise BusyError(f"{kept.name}: {home.pending_bytes} bytes wait for its log; try again")
