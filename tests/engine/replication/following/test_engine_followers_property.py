"""Whatever breaks between a copy and its origin, and whoever produces the stream, the copy receives
all posted tuples, and the source drops none that the copy lacks."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

import trio
from deadline import DEADLINE_S
from engine_streams_data import SCHEMA, Row, all_rows, logged
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from medusa.engine.objects.definitions import StreamDefinition, StreamEntry
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.replication.following.follower import Course, Follower
from medusa.engine.replication.following.origin import FROM_PRODUCERS, Reach
from medusa.engine.streams.config import Timing
from medusa.engine.streams.log.retention import Hold, too_old
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.messages import Acknowledge, Subscribe
from medusa.engine.streams.reading.feed import cursor_for, parts_of
from medusa.engine.streams.store.stream_state import Role, StreamState
from medusa.overlay.errors import BrokenError, NotFoundError, UnavailableError
from medusa.overlay.rpc import EndOfCall

STREAM = "medusa://mit.edu/s"

COPY = Hold("subscriber", "the copy")


def opened(folder: Path, rng: random.Random, role: Role) -> StreamState:
    entry = StreamEntry(StreamDefinition(STREAM, SCHEMA.name, history_us=0), SCHEMA)
    recent = rng.choice([0, 200, 10_000])
    log = StreamLog.open(folder, SCHEMA.source, history_us=0, recent_bytes=recent)
    return StreamState(entry, role, log)


class Call:
    """A subscription that a fault may break at any message."""

    def __init__(self, world: World, state: StreamState, request: Subscribe) -> None:
        self._world = world
        self._state = state
        after = state.log.oldest if request.after == BEGINNING else request.after
        self.parts = parts_of(cursor_for(state, after, request.tentative))

    async def receive(self, _kind: type[Struct]) -> tuple[Struct, bytes]:
        self._world.may_break()
        try:
            message, part = await anext(self.parts)
        except StopAsyncIteration:
            raise EndOfCall from None
        self._world.may_break()
        return message, bytes(part.body())

    async def send(self, message: Struct, _body: bytes = b"") -> None:
        assert isinstance(message, Acknowledge)
        self._world.acknowledged(message.upto)
        self._world.may_break()
        await trio.lowlevel.checkpoint()


class World:
    """The posted rows, their renditions at producers, and the copy, which may be restarted.

    Attributes:
        posted, boundary: the rows of the stream, and its boundary.
        renditions: each begins anywhere and is cut anywhere; the first has all rows that the copy
            may still need.
        current: the producer of the stream.
        needed: the copy must keep all later rows.
    """

    def __init__(self, folder: Path, rng: random.Random, nursery: trio.Nursery) -> None:
        self._folder = folder
        self._rng = rng
        self._nursery = nursery
        self.posted: list[Row] = []
        self.boundary = 0
        self.renditions: list[StreamState] = []
        self.renditions.append(self._rendition(BEGINNING))
        self.current = 0
        self.needed = END
        self.told = BEGINNING
        self.calm = False
        directory = SimpleNamespace(
            connect=self._connect, number=lambda _: 0, reads_from=lambda *_: None
        )
        store = SimpleNamespace(
            serving=lambda _: None,
            quota=SimpleNamespace(wait=trio.lowlevel.checkpoint),
            timing=Timing(follow_again_s=(0.0005, 0.002), last_word_s=0.01),
        )
        self.reach = Reach(
            cast("Any", directory),
            cast("Any", store),
            cast("Any", SimpleNamespace(note=lambda *_: None)),
        )
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._begin()

    # -- the followed stream -----------------------------------------------------------------------

    def _rendition(self, start: int) -> StreamState:
        state = opened(self._folder / f"r{len(self.renditions)}", self._rng, Role.DERIVED)
        if start > BEGINNING:
            state.log.begin(start)
        return state

    async def _connect(self, _stream: str, *, oldest: bool, at: bytes) -> Any:
        assert not at
        self.may_break()
        state = self.renditions[0 if oldest else self.current]

        @asynccontextmanager
        async def open_call(method: str, request: Subscribe) -> AsyncIterator[Call]:
            assert method == "subscribe"
            log = self.copy.log
            assert request.after <= log.boundary
            assert request.keep is None or request.keep < request.after
            if request.after != BEGINNING and request.after < state.log.start:
                if self._rng.random() < 0.5:
                    raise NotFoundError("its owner has more")
                raise too_old(STREAM, state.log.start, request.after)
            call = Call(self, state, request)
            async with aclosing(call.parts):
                yield call

        return SimpleNamespace(open=open_call, remote=SimpleNamespace(peer_id=None))

    def may_break(self) -> None:
        if not self.calm and self._rng.random() < 0.2:
            raise self._rng.choice([BrokenError, UnavailableError])("the network")

    def acknowledged(self, upto: int) -> None:
        """The source drops all tuples before an acknowledgement that it receives."""
        assert upto <= self.copy.log.boundary, "it is not stored"
        assert upto <= self.needed, "it is needed elsewhere"
        assert upto > self.told or upto == self.told or not self.calm
        self.told = max(self.told, upto)

    def retain(self) -> None:
        for state in self.renditions:
            state.log.retention.hold(COPY, self.told)
            state.log.upkeep.retain(0.0)

    async def _produce(self, state: StreamState) -> None:
        """Extend a rendition, by its own epochs, up to the posted boundary or a lesser one."""
        while state.log.boundary < self.boundary and (self.calm or self._rng.random() < 0.8):
            after = max(state.log.boundary, 0)
            if self.boundary == END:
                upto = END
            else:
                upto = min(self.boundary, after + self._rng.randint(1, 8))
            rows = [
                (n, row) for n, row in enumerate(self.posted) if state.log.boundary < row[0] <= upto
            ]
            table = logged([row for _, row in rows], rows[0][0]) if rows else None
            await state.log.commit(upto, table)

    # -- the copy ----------------------------------------------------------------------------------

    def _begin(self) -> None:
        self.copy = opened(self._folder / "copy", self._rng, Role.FOLLOWER)
        course = Course(tentative=True, committed=self._committed)
        self.follower = Follower(self.copy, FROM_PRODUCERS, self.reach, "copy", course)
        self.follower.need(self.needed)
        self._scope, self._ended = trio.CancelScope(), trio.Event()
        self._nursery.start_soon(self._run, self.follower, self._scope, self._ended)

    def _committed(self) -> None:
        assert self.copy.log.boundary <= self.boundary

    async def _run(self, run: Follower, scope: trio.CancelScope, ended: trio.Event) -> None:
        with scope:
            await run.run()
        ended.set()

    # -- steps -------------------------------------------------------------------------------------

    async def post(self) -> None:
        upto = self.boundary + self._rng.randint(1, 12)
        stimes = sorted(
            self._rng.randint(self.boundary + 1, upto)
            for _ in range(self._rng.choice([0, 1, 3, 9]))
        )
        self.posted += [(at, len(self.posted) + n) for n, at in enumerate(stimes)]
        self.boundary = upto
        for state in self.renditions:
            await self._produce(state)

    async def succeed(self) -> None:
        """Let another rendition take over, which may begin later; the follower learns of it at once
        or later."""
        start = self._rng.choice([BEGINNING, self._rng.randint(0, self.boundary)])
        if self.told > BEGINNING and start == BEGINNING:
            start = self.told
        self.renditions.append(self._rendition(start))
        self.current = len(self.renditions) - 1
        await self._produce(self.renditions[-1])
        if self._rng.random() < 0.5:
            self.follower.subscribe_anew()

    async def give_back(self) -> None:
        self.current = self._rng.randrange(len(self.renditions))
        self.follower.subscribe_anew()

    async def let_go(self) -> None:
        self.retain()

    async def need(self) -> None:
        self.needed = self._rng.choice([END, self._rng.randint(0, self.boundary)])
        self.needed = max(self.needed, self.told)
        self.follower.need(self.needed)

    async def restart(self) -> None:
        """Cancel the copy at any point and start it again from its files alone."""
        self._scope.cancel()
        await self._ended.wait()
        self.copy.log.close()
        self._begin()

    async def wait(self) -> None:
        await trio.sleep(0.001 * self._rng.random())

    async def settle(self) -> None:
        """End the faults and the stream."""
        self.calm, self.boundary, self.needed = True, END, END
        self.follower.need(END)
        for state in self.renditions:
            await self._produce(state)
        with trio.fail_after(DEADLINE_S):
            await self._ended.wait()
        assert self.copy.log.boundary == END
        assert all_rows(self.copy.log) == self.posted
        assert self.told == END
        self.copy.log.close()


STEPS = ("post", "post", "post", "wait", "succeed", "give_back", "let_go", "need", "restart")


@given(st.integers(0, 2**32), st.lists(st.sampled_from(STEPS), min_size=3, max_size=40))
def test_a_copy_comes_to_equal_its_origin(seed: int, steps: list[str]) -> None:
    async def run(folder: Path) -> None:
        async with trio.open_nursery() as nursery:
            world = World(folder, random.Random(seed), nursery)
            for step in steps:
                await getattr(world, step)()
            await world.settle()

    with TemporaryDirectory() as folder:
        trio.run(run, Path(folder))
