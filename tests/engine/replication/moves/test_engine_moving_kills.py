"""A task with state moves under traffic, and a peer is killed at every step: no answer may be
missing, come twice, or differ from DuckDB's.

Three real peers of one participant: the source's leader, the owner of the query and the worker. The
traffic never stops. Each step arms one peer (see `crashing_peer`), starts a move, waits until that
peer has died, starts it again, and waits until the subscriber at the owner has received all answers
so far. At the end the test compares all received answers.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
import trio
from crashing_peer import Order, arm, is_armed
from deadline import DEADLINE_S
from engine_peers import begin, send_rows
from kill_sweeps import MOVES, At
from killed_peers import let_crash

from medusa.engine.objects.schema import BEGINNING
from medusa.overlay.errors import ConflictError, MedusaError
from medusa.overlay.failpoints import Failpoint
from medusa.testnet.bench.minutes import (
    MINUTE_US,
    Answer,
    Minutes,
    answers_in,
    answers_of,
    query,
    schema,
    stream,
)
from medusa.testnet.bench.moving import move_task
from medusa.testnet.kit.peers import Federation, Peer, open_federation
from medusa.tools.client.async_client import AsyncMedusaClient, open_medusa

PARTICIPANT = "mit.edu"
# Without a history the source's leader drops the rows that the owner has acknowledged. So a worker
# gets the rows of an open window from the owner.
SOURCE = msgspec.structs.replace(stream(PARTICIPANT), history_us=0)
QUERY = query(PARTICIPANT, SOURCE.name)
TASK = "medusa://mit.edu/talkers"

PART_S = 0.25
"""Seconds between two posts."""
LOOK_S = 0.05


@dataclass(frozen=True)
class Pace:
    """
    Attributes:
        rows: the number of rows in a minute of stime; a window holds half of them on average.
        parts: the number of posts in a minute of stime.
    """

    rows: int
    parts: int


SHORT = Pace(rows=4_800, parts=24)
"""A minute of stime passes in 6 s."""
LONG = Pace(rows=600_000, parts=96)
"""A minute of stime passes in 24 s; a copy of the task's state takes many messages."""


@dataclass
class Traffic:
    """Posts rows, one part after the other, until it is stopped."""

    minutes: Minutes
    parts: int
    posted: int = 0
    over: trio.Event = field(default_factory=trio.Event)

    @property
    def boundary(self) -> int:
        """The boundary just before the rows of the last post, in microseconds."""
        return (self.posted - 1) * (MINUTE_US // self.parts) - 1

    def answers(self) -> list[Answer]:
        """Return the expected answers to all posted rows, sorted."""
        whole, parts = divmod(self.posted, self.parts)
        found = [answer for minute in range(whole) for answer in self.minutes.answers(minute)]
        if parts:
            rest = [self.minutes.part(whole, self.parts, number) for number in range(parts)]
            found += answers_of(pa.concat_tables(rest))
        return found

    async def flow(self, client: AsyncMedusaClient) -> None:
        while not self.over.is_set():
            minute, number = divmod(self.posted, self.parts)
            await client.post_event(SOURCE.name, self.minutes.part(minute, self.parts, number))
            self.posted += 1
            with trio.move_on_after(PART_S):
                await self.over.wait()
        await send_rows(client, SOURCE.name, end=True)


@dataclass
class Consumer:
    """Subscribes at the owner, again after each death of the owner."""

    answers: list[Answer] = field(default_factory=list)
    boundary: int = BEGINNING
    grown: trio.Event = field(default_factory=trio.Event)

    async def receive(self, client: AsyncMedusaClient) -> None:
        async for epoch in client.subscribe(TASK):
            self.answers += answers_in(epoch.table)
            self.boundary = epoch.upto
            self.grown.set()
            self.grown = trio.Event()

    async def reach(self, boundary: int) -> None:
        while self.boundary < boundary:
            await self.grown.wait()


@dataclass
class Scene:
    federation: Federation
    owner: Peer
    worker: Peer
    traffic: Traffic
    consumer: Consumer

    async def settle(self) -> None:
        """Wait until all rows posted so far are answered."""
        with trio.fail_after(DEADLINE_S):
            await self.consumer.reach(self.traffic.boundary)

    async def place(self, where: At) -> None:
        """Try until the task runs at that peer."""
        with trio.fail_after(DEADLINE_S):
            while True:
                try:
                    await self.move(where)
                except MedusaError as error:
                    if isinstance(error, ConflictError) and "there already" in str(error):
                        return
                    # a killed peer has not returned yet, or the task is being moved
                    await trio.sleep(LOOK_S)
                else:
                    return

    async def move(self, where: At) -> None:
        running = self.worker.running
        assert running is not None
        await move_task(self.owner.home, TASK, running.peer if where == "worker" else "")

    async def kill_at(self, order: Order, victim: Peer, to: At) -> None:
        """Move the task, let the victim die at the ordered step, and start it again."""
        await self.place("owner" if to == "worker" else "worker")
        await self.settle()
        process = victim.process
        assert process is not None
        arm(victim.home.folder, order)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._try_to_move, to)
            with trio.fail_after(DEADLINE_S):
                await process.wait()
            assert process.returncode == -signal.SIGKILL, victim.tail()
            assert not is_armed(victim.home.folder), "it died of something else"
            await victim.kill_9()  # its JVM dies with it
            await victim.restart()
            nursery.cancel_scope.cancel()
        await self.settle()

    async def _try_to_move(self, where: At) -> None:
        """Try to move the task; the move may fail, since a peer dies, but the answers must be
        right."""
        try:
            await self.move(where)
        except MedusaError as error:
            print(f"the move to the {where} ended: {error}", flush=True)

    async def report(self) -> None:
        """Print the peers' reports for a person who looks into a failure."""
        with trio.CancelScope(shield=True):
            for peer in self.federation.peers:
                print(f"--- {peer.home.folder.name}\n{peer.tail()}")
                with trio.move_on_after(DEADLINE_S), suppress(MedusaError):
                    async with open_medusa(peer.home.folder, patience_s=1.0) as client:
                        (status,) = (await client.status(federation=False)).peers
                        print("\n".join(map(str, (*status.tasks, *status.events))), flush=True)


@asynccontextmanager
async def open_scene(pace: Pace) -> AsyncIterator[Scene]:
    """Give a scene: traffic flows, and the query runs at the owner and has answered a whole
    window."""
    async with open_federation() as federation:
        home = await federation.found(PARTICIPANT)
        owner = await federation.admit_sibling(home)
        worker = await federation.admit_sibling(home)
        await federation.together()
        async with (
            open_medusa(home.home.folder) as poster,
            open_medusa(owner.home.folder) as subscriber,
            trio.open_nursery() as nursery,
        ):
            await poster.create_schema(schema(PARTICIPANT))
            await poster.create_stream(SOURCE)
            await begin(subscriber, QUERY)
            traffic, consumer = Traffic(Minutes.make(pace.rows), pace.parts), Consumer()
            nursery.start_soon(traffic.flow, poster)
            nursery.start_soon(consumer.receive, subscriber)
            scene = Scene(federation, owner, worker, traffic, consumer)
            with trio.fail_after(DEADLINE_S):
                await consumer.reach(MINUTE_US)
            try:
                yield scene
            except BaseException:
                await scene.report()
                raise
            traffic.over.set()


async def survives(pace: Pace, *kills: tuple[At, Order, At]) -> None:
    async with open_scene(pace) as scene:
        for victim, order, to in kills:
            began = trio.current_time()
            await scene.kill_at(order, scene.owner if victim == "owner" else scene.worker, to)
            took = trio.current_time() - began
            print(f"{victim}, {order}, to {to}: {took:.1f} s", flush=True)
    wanted = scene.traffic.answers()
    found = sorted(scene.consumer.answers)
    assert len(found) == len(wanted), "an answer is missing, or came twice"
    assert found == wanted


@pytest.mark.process
async def test_killed_where_it_is_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The peer dies around the decisive step, without Spark; the campaign has the other steps, and
    Spark."""
    let_crash(tmp_path, monkeypatch, interpreting=True)
    await survives(
        SHORT,
        ("owner", Order(Failpoint.QUERY_PLACE, "after"), "worker"),
        ("worker", Order(Failpoint.MOVE_ACTIVATE), "worker"),
    )


@pytest.mark.soak
@pytest.mark.process
@pytest.mark.spark
@pytest.mark.parametrize("to", ["worker", "owner"], ids=["out", "home"])
@pytest.mark.parametrize("victim", ["owner", "worker"])
async def test_killed_at_every_step_of_a_move(
    victim: At, to: At, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The campaign with real Spark."""
    let_crash(tmp_path, monkeypatch)
    await survives(LONG, *((victim, order, to) for order in MOVES[victim, to]))
