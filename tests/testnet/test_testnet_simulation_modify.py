"""A query is modified for both sides of a split, or for neither."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from medusa.engine.language.modification import BoxChange
from medusa.engine.objects.availability import Availability, Mode, Recovery
from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.query import Filter, Query
from medusa.engine.objects.schema import BEGINNING, STIME
from medusa.overlay.errors import UnavailableError
from medusa.testnet.simulation.federation import Federation
from medusa.testnet.simulation.history import Posted, schema_of, table_of
from medusa.testnet.simulation.simulate import run_simulation
from medusa.testnet.simulation.world import World

SOURCE, OUTPUT, QUERY = "medusa://utah.edu/s", "medusa://mit.edu/out", "medusa://mit.edu/q"
PRIMARY, SECONDARY, HOME = "mit.edu/0", "mit.edu/1", "utah.edu/0"
PARTICIPANTS = {"mit.edu": 2, "utah.edu": 1}
SETTINGS = {"dht": {"attempt_s": 0.25}, "engine": {"epoch_s": 0.1}}


async def define(world: World) -> None:
    async with world.client(HOME, patience_s=5.0) as client:
        await client.create_schema(schema_of(SOURCE))
        await client.create_stream(StreamDefinition(SOURCE, schema_of(SOURCE).name, readers=("*",)))
    standby = Availability(Mode.ACTIVE_STANDBY, Recovery.PRECISE, bound_s=2.0)
    sieve = Filter("sieve", SOURCE, (OUTPUT,), ("number >= 0",))
    async with world.client(PRIMARY, patience_s=5.0) as client:
        await client.create_query(Query(QUERY, (sieve,), availability=standby))
        await client.start_query(QUERY)
    await world.until(lambda: secondary_of(world, PRIMARY) == world.peers[SECONDARY].id)


def secondary_of(world: World, peer: str) -> str | None:
    """Return the peer's secondary of the query; None: the peer does not have the query."""
    running = world.peers[peer].peer
    assert running is not None
    for each in running.engine.queries.all():
        return each.stored.term.secondary.hex()
    return None


def cut(world: World, alone: str, others: Sequence[str]) -> None:
    for other in others:
        world.network.links.cut(world.peers[alone].host, world.peers[other].host)


class Flow:
    """The posts, and the output as a reader at the source's leader receives it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.posted: list[tuple[int, int]] = []
        self.read: list[tuple[int, int]] = []

    async def post(self, numbers: range, *, end: bool = False) -> None:
        async with self._world.client(HOME, patience_s=5.0) as client:
            for number in numbers:
                stime = int(self._world.now() * 1e6)
                self.posted.append((stime, number))
                row = Posted(stime, "p", number, 1, 1)
                last = end and number == numbers[-1]
                await client.post_event(SOURCE, table_of([row]), end=last)
                await trio.sleep(0.1)
            await client.flush()

    async def follow(self) -> None:
        async with (
            self._world.client(HOME, patience_s=60.0) as client,
            client.subscribe(OUTPUT) as feed,
        ):
            async for epoch in feed:
                columns = (epoch.table.column(name).to_pylist() for name in (STIME, "number"))
                self.read += zip(*columns, strict=True)

    def expected(self, *editions: tuple[int, int]) -> list[tuple[int, int]]:
        """Return the expected output. editions: (boundary from which on, divisor of the values that
        pass)."""
        return [
            (stime, number)
            for stime, number in self.posted
            if number % max(each for each in editions if each[0] < stime)[1] == 0
        ]


async def modify(world: World, peer: str, *, alone: bool = False, divisor: int = 2) -> int:
    change = BoxChange("sieve", (("expression.0", f"number % {divisor} = 0"),))
    async with world.client(peer, patience_s=1.0) as client:
        return (await client.modify_query(QUERY, [change], alone=alone)).since


def test_neither_side_of_a_split_modifies_a_query_of_both() -> None:
    """Both sides have the query: the primary, and the secondary, which has taken over. Afterwards
    the modification counts from a boundary beyond all results that either has emitted."""

    async def main(world: World) -> None:
        await world.start_all()
        await define(world)
        flow = Flow(world)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(flow.follow)
            await flow.post(range(20))
            cut(world, SECONDARY, (PRIMARY, HOME))
            await flow.post(range(20, 60))
            await world.until(lambda: secondary_of(world, SECONDARY) is not None)
            await trio.sleep(40)  # every peer for which the modification could wait has returned
            assert secondary_of(world, PRIMARY) == ""
            assert len(flow.read) > 50
            for side in (PRIMARY, SECONDARY):
                with pytest.raises(UnavailableError, match="had a part in it and cannot be"):
                    await modify(world, side)
            world.network.links.heal_all()
            await world.until(lambda: secondary_of(world, PRIMARY) is None)
            await world.until(lambda: secondary_of(world, SECONDARY) == world.peers[PRIMARY].id)
            since = await modify(world, SECONDARY)
            await flow.post(range(60, 90), end=True)
        assert flow.read == flow.expected((BEGINNING, 1), (since, 2))

    outcome = run_simulation(main, 1, Federation(PARTICIPANTS, SETTINGS))
    assert outcome.error is None


def test_a_user_says_once_that_the_other_peer_is_gone_for_good() -> None:
    async def main(world: World) -> None:
        await world.start_all()
        await define(world)
        flow = Flow(world)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(flow.follow)
            await flow.post(range(20))
            await world.crash(PRIMARY)
            await world.until(lambda: secondary_of(world, SECONDARY) is not None)
            await trio.sleep(40)
            with pytest.raises(UnavailableError, match="gone for good, with --alone"):
                await modify(world, SECONDARY)
            since = await modify(world, SECONDARY, alone=True)
            await flow.post(range(20, 40))
            later = await modify(world, SECONDARY, divisor=3)
            await flow.post(range(40, 60), end=True)
        assert flow.read == flow.expected((BEGINNING, 1), (since, 2), (later, 3))

    outcome = run_simulation(main, 1, Federation(PARTICIPANTS, SETTINGS))
    assert outcome.error is None
