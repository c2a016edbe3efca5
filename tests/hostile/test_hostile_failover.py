"""Failover and moves while a member attacks every peer that has a part in them: answers stay
exact."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from engine_interpreted import interpret
from engine_peers import Cluster, begin, make_stream, open_cluster, rows, until
from few_connections import few_connections
from hostile_calls import Call, Generator, answer_of, drawn, methods_of
from hostile_member import HostileMember
from hostile_siege import admitted
from killed_peers import let_crash
from moving_tasks import Sums, expected, post, windows

from medusa.engine.objects.availability import Mode
from medusa.engine.objects.schema import END
from medusa.engine.replication.records.placements import Deal
from medusa.engine.streams.messages import Subscribe
from medusa.overlay.addresses import Address
from medusa.overlay.connection import Connection
from medusa.overlay.errors import MedusaError
from medusa.overlay.rpc import Service
from medusa.testnet.intrusion.board import Board
from medusa.testnet.intrusion.kills import Killer
from medusa.testnet.intrusion.run import Options, run_intrusion
from medusa.testnet.kit.peers import Federation
from medusa.tools.client.async_client import open_medusa

AT_ONCE = 4
AGAIN_S = 0.2
SUBSCRIPTIONS = 50


class RandomCalls:
    """Makes random calls without end, of every method of the service. made: the number of calls so
    far."""

    def __init__(self, service: Service, names: list[str], blobs: list[bytes], seed: int) -> None:
        self.made = 0
        self._rng = random.Random(seed)
        self._generator = Generator(self._rng, names, blobs)
        self._methods = methods_of(service)

    def next(self) -> Call:
        self.made += 1
        (call,) = drawn(self._rng, self._generator, self._methods, ["evil"], 1)
        return call


async def say(connection: Connection, calls: RandomCalls, pause_s: float = 0.0) -> None:
    """Make one call after the other, until the connection ends."""
    while not connection.closed.is_set():
        await answer_of(connection, calls.next())
        await trio.sleep(pause_s)


class Besieger:
    """Attacks every peer of a federation for as long as peers are killed.

    Attributes:
        killer: kills the peers.
        calls: the random calls; None before the first.
    """

    def __init__(self, killer: Killer, service: Service, mortal: int, pause_s: float) -> None:
        """
        Args:
            mortal: the number of peers, counted from the last, that may be killed; 0: all.
            pause_s: seconds after each call.
        """
        self.killer = killer
        self._pause_s = pause_s
        self.calls: RandomCalls | None = None
        self._service = service
        self._mortal = mortal

    async def __call__(self, federation: Federation, board: Board) -> None:
        async with open_medusa(federation.peers[0].home.folder) as client:
            found = await client.list_objects()
        streams = list(found.names["stream"])
        names = [name for kind in found.names.values() for name in kind]
        names += [peer.running.peer for peer in federation.peers if peer.running is not None]
        evil, _ = await admitted(federation, "evil.org")
        calls = self.calls = RandomCalls(self._service, names, [], 1)
        async with trio.open_nursery() as nursery:
            for peer in federation.peers:
                assert peer.running is not None
                address = peer.running.overlay  # the peer restarts at that address
                nursery.start_soon(self._annoy, evil, address, calls)
                nursery.start_soon(self._subscribe, evil, address, streams)
            mortal = federation.peers[-self._mortal :]
            await self.killer(replace(federation, peers=mortal), board)
            nursery.cancel_scope.cancel()

    async def _annoy(self, evil: HostileMember, address: Address, calls: RandomCalls) -> None:
        while True:
            with suppress(MedusaError, OSError, trio.BrokenResourceError):
                async with (
                    evil.peer().connection(address) as connection,
                    trio.open_nursery() as nursery,
                ):
                    for _ in range(AT_ONCE):
                        nursery.start_soon(say, connection, calls, self._pause_s)
            await trio.sleep(AGAIN_S)

    async def _subscribe(self, evil: HostileMember, address: Address, streams: list[str]) -> None:
        """Subscribe, and never read."""
        while True:
            with suppress(MedusaError, OSError, trio.BrokenResourceError):
                async with evil.peer().wire(address) as wire:
                    for number in range(SUBSCRIPTIONS):
                        await wire.call("subscribe", Subscribe(streams[number % len(streams)]))
                    while not wire.over:  # noqa: ASYNC110 - told by a reader of its own
                        await trio.sleep(AGAIN_S)
            await trio.sleep(AGAIN_S)


async def besieged_answers_are_exact(
    folder: Path,
    *,
    kills: int,
    seed: int,
    k_safety: int,
    pause_s: float = 0.0,
    traces: tuple[Path, ...] = (),
) -> None:
    (folder / "model").mkdir()
    async with open_cluster(folder / "model") as cluster:
        service = (await cluster.settle("mit.edu")).up.engine.overlay.service
    board, killer = Board(), Killer(kills, seed)
    besieger = Besieger(killer, service, mortal=0 if k_safety else 2, pause_s=pause_s)
    stretch_s = 10.0 + 12.0 * kills
    mode = Mode.ACTIVE_STANDBY
    options = Options(
        peers=2,
        out=folder,
        mode=mode,
        seed=seed,
        stretch_s=stretch_s,
        k_safety=k_safety,
        traces=traces,
    )
    result = await run_intrusion(options, board, besieger)
    assert besieger.calls is not None
    print(f"{besieger.calls.made} calls; {board.toll.kills} kills; {killer.log}")
    assert result.exact, (result.answers, killer.log)
    assert not killer.faults
    assert not board.history.faults()
    assert board.toll.kills == board.toll.restarts == kills
    assert besieger.calls.made > 100 * kills


@pytest.mark.process
async def test_primaries_and_standbys_are_killed_during_an_attack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few peers are killed here, without Spark; the campaign kills many, with Spark."""
    let_crash(tmp_path, monkeypatch, interpreting=True)
    traces = few_connections(tmp_path, 3, 1)
    await besieged_answers_are_exact(
        tmp_path, kills=2, seed=3, k_safety=0, pause_s=0.02, traces=traces
    )


@pytest.mark.process
@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("k_safety", [0, 1])
async def test_many_are_killed_during_an_attack(tmp_path: Path, k_safety: int) -> None:
    await besieged_answers_are_exact(tmp_path, kills=12, seed=11, k_safety=k_safety)


async def test_a_task_moves_there_and_back_during_an_attack(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task's owner and its worker receive random calls of every method."""
    interpret(monkeypatch)
    async with trio.open_nursery() as nursery:
        one, two = await cluster.siblings(2)
        evil = await cluster.settle("evil.org")
        await cluster.acquainted(one, two, evil)
        async with one.client() as client:
            source = await make_stream(client, one, "s")
            await begin(client, windows(one, source))
            names = [source, one.name("out"), one.name("q/out"), one.id, two.id, evil.id, "mit.edu"]
            blobs = [bytes.fromhex(place.id) for place in (one, two, evil)]
            calls = RandomCalls(one.up.engine.overlay.service, names, blobs, 2)
            for place in (one, two):
                connection = await evil.up.engine.overlay.connect(bytes.fromhex(place.id))
                for _ in range(AT_ONCE):
                    nursery.start_soon(say, connection, calls)
            sums = Sums(client, one.name("out"))
            mover = one.up.engine.mover
            for number in range(10):
                await post(client, source, range(250 * number, 250 * number + 250))
                await sums.take(250 * number + 249)
                if number % 2:
                    await mover.take_back(one.name("out"))
                    await until(
                        lambda: not two.up.engine.assignments.all(), "dropped by the worker"
                    )
                else:
                    await mover.move(one.name("out"), two.peer_id, Deal(giver=one.id))
            await client.post_event(source, rows((at, at) for at in range(2_500, 2_777)), end=True)
            await sums.take(END)
            assert sums.rows == expected(range(2_777))
        assert calls.made > 100
        nursery.cancel_scope.cancel()
