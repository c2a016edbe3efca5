"""The panes of a folded window are made at their source, by real peers that are killed with -9.

Two peers of one participant: the source's leader, and the owner of the query. The traffic never
stops. The task of panes moves to the leader, and the owner stops reading rows. Then one of the two
is killed and started again, or the task returns in between. At the end the test compares the rows
of a subscriber at the owner with those of one batch run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
import trio
from crashing_peer import Order, arm
from deadline import DEADLINE_S
from engine_peers import begin
from kill_sweeps import FORGETTING
from killed_peers import let_crash

from medusa.engine.objects.query import Query
from medusa.engine.objects.schema import BEGINNING
from medusa.engine.operators.shared.panes import panes_name
from medusa.engine.streams.messages import StreamStatus
from medusa.overlay.errors import MedusaError
from medusa.testnet.bench.flows import (
    COUNT,
    SCHEMA,
    SECOND_US,
    SOURCES,
    STREAM,
    SUM,
    flows,
    output,
    windows,
)
from medusa.testnet.bench.moving import move_task
from medusa.testnet.kit.peers import Peer, open_federation, participant_name
from medusa.tools.client.async_client import AsyncMedusaClient, open_medusa

SIZE_S, ADVANCE_S = 4, 1
"""Four windows overlap, so they are folded from panes of a second."""
QUERY: Query = windows("w", SIZE_S, ADVANCE_S, (COUNT, SUM))
OUT, PANES = output("w"), panes_name(output("w"))

PART_S = 0.1
"""Wall time between two posts, seconds."""
PART_ROWS, PART_US = 200, SECOND_US // 4
"""Rows of a post, and their stime."""
RATE = PART_ROWS * SECOND_US / PART_US

Answer = tuple[int, str, int, int]
"""(stime, src, rows, bytes) of a window."""


def expected(posted: int, upto: int) -> list[Answer]:
    """Return the results that end within the rows of that many posts."""
    found: Counter[tuple[int, str]] = Counter()
    sums: Counter[tuple[int, str]] = Counter()
    rows = flows(0, posted * PART_ROWS, RATE)
    columns = (rows.column(name).to_pylist() for name in ("ts", "src", "bytes"))
    for ts, src, size in zip(*columns, strict=True):
        second = ts // SECOND_US
        for first in range(second - SIZE_S + 1, second + 1):
            end = (first + SIZE_S) * SECOND_US - 1
            found[end, src] += 1
            sums[end, src] += size
    return sorted((end, src, n, sums[end, src]) for (end, src), n in found.items() if end <= upto)


@dataclass
class Scene:
    owner: Peer
    leader: Peer
    posted: int = 0
    over: trio.Event = field(default_factory=trio.Event)
    answers: list[Answer] = field(default_factory=list)
    boundary: int = BEGINNING

    async def flow(self, client: AsyncMedusaClient) -> None:
        while not self.over.is_set():
            piece = flows(self.posted * PART_ROWS, PART_ROWS, RATE)
            await client.post_event(STREAM.name, piece)
            self.posted += 1
            with trio.move_on_after(PART_S):
                await self.over.wait()
        await client.flush()

    async def receive(self, client: AsyncMedusaClient) -> None:
        async for epoch in client.subscribe(OUT):
            self.answers += answers_in(epoch.table)
            self.boundary = epoch.upto

    async def settle(self) -> None:
        """Wait until all rows posted by now are answered."""
        goal = self.posted * PART_US - SECOND_US
        await self.until(lambda: self.boundary >= goal)

    async def until(self, holds: Callable[[], bool]) -> None:
        with trio.fail_after(DEADLINE_S):
            while not holds():  # noqa: ASYNC110 - of another process
                await trio.sleep(0.02)

    async def move(self, to: str) -> None:
        await move_task(self.owner.home, PANES, to)

    async def status(self) -> tuple[int, StreamStatus]:
        """Return the bytes that the owner has received, and its copy of the source."""
        async with open_medusa(self.owner.home.folder) as client:
            (status,) = (await client.status(federation=False)).peers
        copy = next(stream for stream in status.streams if stream.name == STREAM.name)
        return status.received_bytes, copy

    async def fall_asleep(self) -> None:
        """Wait until the owner has no row of the source."""
        with trio.fail_after(DEADLINE_S):
            while (await self.status())[1].boundary > BEGINNING:  # noqa: ASYNC110 - as `until`
                await trio.sleep(0.05)

    async def away(self) -> None:
        """Move the task to the leader, and wait until the owner stops reading its input."""
        assert self.leader.running is not None
        await self.move(self.leader.running.peer)
        await self.fall_asleep()

    async def received(self, parts: int) -> int:
        """Return the bytes that the owner receives during that many posts and their answers."""
        await self.settle()
        before, _ = await self.status()
        goal = self.posted + parts
        await self.until(lambda: self.posted >= goal)
        await self.settle()
        after, _ = await self.status()
        return after - before


def answers_in(table: pa.Table) -> list[Answer]:
    columns = (table.column(name).to_pylist() for name in ("stime", "src", "n", "total"))
    return list(zip(*columns, strict=True))


@asynccontextmanager
async def open_scene() -> AsyncIterator[Scene]:
    """Give a scene: traffic flows, and the query has answered a window."""
    async with open_federation() as federation:
        owner = await federation.found(participant_name(0))
        leader = await federation.admit_sibling(owner)
        await federation.together()
        scene = Scene(owner, leader)
        async with (
            open_medusa(leader.home.folder) as poster,
            open_medusa(owner.home.folder) as reader,
            trio.open_nursery() as nursery,
        ):
            await poster.create_schema(SCHEMA)
            await poster.create_stream(STREAM)
            await begin(reader, QUERY)
            nursery.start_soon(scene.flow, poster)
            nursery.start_soon(scene.receive, reader)
            await scene.until(lambda: scene.boundary >= SIZE_S * SECOND_US)
            yield scene
            scene.over.set()
            await scene.settle()
            nursery.cancel_scope.cancel()
    wanted = expected(scene.posted, scene.boundary)
    found = sorted(scene.answers)
    assert len(found) == len(wanted), "an answer is missing, or came twice"
    assert found == wanted
    assert len({src for _, src, _, _ in wanted}) == SOURCES


async def kill(peer: Peer) -> None:
    """Kill the peer with -9."""
    assert peer.process is not None
    peer.process.kill()
    await peer.process.wait()


async def revive(peer: Peer) -> None:
    await peer.start()
    await peer.ready()


@pytest.mark.process
async def test_only_partials_cross_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test counts bytes and rows at the owner, with the task at home, away, and home again."""
    let_crash(tmp_path, monkeypatch, interpreting=True)
    async with open_scene() as scene:
        at_home = await scene.received(40)
        await scene.away()
        away = await scene.received(40)
        _, copy = await scene.status()
        assert (copy.rows, copy.bytes, copy.boundary) == (0, 0, BEGINNING)
        await scene.move("")
        again = await scene.received(40)
        print(f"bytes at home {at_home}, away {away}, home again {again}")
        assert away < at_home / 2
        assert again > at_home / 2


@pytest.mark.process
async def test_the_partner_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The partner is killed in the middle of its work; then again, with the task taken home before
    the partner is back; then the owner is killed."""
    let_crash(tmp_path, monkeypatch, interpreting=True)
    async with open_scene() as scene:
        await scene.away()
        await scene.received(10)
        await kill(scene.leader)
        await revive(scene.leader)
        await scene.settle()
        await scene.fall_asleep()

        await kill(scene.leader)
        with trio.fail_after(DEADLINE_S):
            await scene.move("")
        await revive(scene.leader)
        await scene.settle()

        await scene.away()
        await kill(scene.owner)
        goal = scene.posted + 10
        await scene.until(lambda: scene.posted >= goal)
        await revive(scene.owner)
        await scene.settle()
        await scene.fall_asleep()
        await scene.move("")
        await scene.settle()


@pytest.mark.process
async def test_the_owner_dies_while_it_drops_its_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_crash(tmp_path, monkeypatch, interpreting=True)
    async with open_scene() as scene:
        for order in FORGETTING:
            await survive(scene, order)


async def survive(scene: Scene, order: Order) -> None:
    """Let the owner die as `order` says, and start it again; the task returns to the owner."""
    process = scene.owner.process
    assert process is not None
    arm(scene.owner.home.folder, order)
    assert scene.leader.running is not None
    await scene.move(scene.leader.running.peer)
    with trio.fail_after(DEADLINE_S):
        await process.wait()
    await revive(scene.owner)
    with trio.fail_after(DEADLINE_S):
        while True:
            try:
                await scene.move("")
            except MedusaError as error:
                print(f"{order}: {error}")
                await trio.sleep(0.1)
            else:
                break
    await scene.settle()
