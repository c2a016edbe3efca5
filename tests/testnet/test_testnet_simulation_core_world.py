"""Whole production peers under simulation keep their promises, and a seed replays."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from simulated_intrusion import (
    BAD_WEATHER,
    COUNTS,
    SOURCE,
    define,
    right_answer,
    send,
    simulate,
    table,
    work,
)

from medusa.overlay.errors import UnavailableError
from medusa.overlay.events import wall_clock
from medusa.testnet.simulation.federation import Federation
from medusa.testnet.simulation.simulate import StalledError, run_simulation
from medusa.testnet.simulation.world import PeerFailedError, World

HERE = Path(__file__).parent


def in_a_world(test: Callable[[World], Awaitable[None]]) -> Callable[[], None]:
    """Run the test in a world of its own, in its virtual time."""

    def simulated() -> None:
        simulate(test)

    return simulated


def test_a_query_over_a_bad_network_gives_the_exact_answer() -> None:
    async def main(world: World) -> None:
        world.network.links.default = BAD_WEATHER
        await world.start_all()
        await define(world)
        async with work(world, 50, by="c.edu/0") as found:
            pass
        assert found == right_answer(50)

    outcome = simulate(main)
    assert outcome.virtual_s > 10
    assert outcome.packets > 500


@pytest.mark.parametrize("power", [False, True])
def test_acknowledged_tuples_survive_a_crash(power: bool) -> None:
    async def main(world: World) -> None:
        await world.start_all()
        await define(world)
        async with world.client("a.edu/0") as client:
            for number in range(10):
                await client.post_event(SOURCE, table(number))
            await client.flush()
        await world.crash("a.edu/0", power=power)
        assert not world.peers["a.edu/0"].up
        await world.restart("a.edu/0")
        async with work(world, 0) as found:  # the client only ends the stream
            pass
        assert found == right_answer(10)

    simulate(main)


def test_with_fsync_a_disk_that_forgets_what_was_not_synced_loses_nothing() -> None:
    """Without fsync, a peer promises nothing for a loss of power."""

    async def main(world: World) -> None:
        await world.start_all()
        await define(world)
        async with work(world, 60) as found:
            for name in ("a.edu/0", "b.edu/0", "a.edu/0"):
                await trio.sleep(world.rng.uniform(1, 3))
                await world.crash_amid_writing(name, power=True)
                await world.restart(name)
        assert found == right_answer(60)

    federation = Federation({"a.edu": 1, "b.edu": 1, "c.edu": 1}, {"engine": {"fsync": True}})
    for seed in range(2):
        outcome = run_simulation(main, seed, federation)
        assert outcome.error is None, outcome.error


@in_a_world
async def test_a_killed_peer_leaves_nothing_in_order(world: World) -> None:
    """The `finally` of a dying task must not reach the peer's next life."""
    await world.start_all()
    peer = world.peers["b.edu/0"]
    assert peer.home.is_locked()
    before = peer.folder
    await world.crash("b.edu/0")
    await trio.sleep(5)
    assert not (before / "run.json").exists()  # the dying task tidied up, in its own folder
    assert (peer.home.folder / "run.json").exists()  # the file remains, as after kill -9
    assert not peer.home.is_locked()


@in_a_world
async def test_a_peer_may_be_killed_while_it_starts(world: World) -> None:
    await world.start("a.edu/0")
    for wait_s in (0.0, 1e-4, 1e-3, 5e-3):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_start_in_vain, world, "b.edu/0")
            await trio.sleep(wait_s)
            if world.peers["b.edu/0"].life is None:
                await trio.sleep(1e-9)
            await world.crash("b.edu/0")
    await world.start("b.edu/0")
    assert world.peers["b.edu/0"].up


async def _start_in_vain(world: World, name: str) -> None:
    with suppress(UnavailableError):
        await world.start(name)


@in_a_world
async def test_a_partition_stops_answers_and_its_end_continues_the_answers(world: World) -> None:
    await world.start_all()
    await define(world)
    source, query = (world.peers[name].host for name in ("a.edu/0", "b.edu/0"))
    async with work(world, 50) as found:
        await trio.sleep(3)
        world.network.links.cut(source, query)
        await trio.sleep(2)
        stood = _boundary(world)
        await trio.sleep(20)
        assert _boundary(world) == stood
        world.network.links.heal(source, query)
    assert found == right_answer(50)


def _boundary(world: World) -> int:
    peer = world.peers["b.edu/0"].peer
    assert peer is not None
    kept = peer.engine.store.get(COUNTS)
    assert kept is not None
    return kept.log.boundary


@in_a_world
async def test_each_peer_has_a_clock_of_its_own_and_the_answer_does_not_depend_on_it(
    world: World,
) -> None:
    await world.start_all()
    start = wall_clock()
    world.set_clock("a.edu/0", offset_s=2.0, drift=0.01)
    world.set_clock("b.edu/0", offset_s=-2.0, drift=-0.01)
    await define(world)
    async with work(world, 50) as found:
        pass
    assert found == right_answer(50)
    clocks = [world.network.machine(peer.host).clock for peer in world.peers.values()]
    ahead, behind = (clock.wall(world.now()) - wall_clock() for clock in clocks[:2])
    passed = wall_clock() - start
    assert ahead == pytest.approx(2.0 + 0.01 * passed, abs=0.1)
    assert behind == pytest.approx(-2.0 - 0.01 * passed, abs=0.1)


@pytest.mark.process
def test_an_eventful_run_is_the_same_in_every_process() -> None:
    """Two processes run it, whose objects lie at different addresses."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    found = {
        subprocess.run(
            [sys.executable, HERE / "simulated_intrusion.py", "7"],
            env={**environment, "PADDING": "x" * padding},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for padding in (1, 5000)
    }
    assert len(found) == 1
    assert len(next(iter(found)).split()[0]) == 64


def test_a_scenario_that_hangs_is_ended_after_its_virtual_time() -> None:
    async def main(world: World) -> None:
        await world.start("a.edu/0")
        await trio.sleep_forever()

    outcome = run_simulation(main, 0, Federation({"a.edu": 1}), limit_s=600.0)
    assert isinstance(outcome.error, trio.TooSlowError)
    assert outcome.virtual_s == pytest.approx(600, abs=1)


def test_a_run_that_goes_in_circles_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("medusa.testnet.virtual.clock.MOST_READINGS", 10_000)

    async def main(_world: World) -> None:
        while True:
            await trio.lowlevel.checkpoint()

    outcome = run_simulation(main, 0, Federation({"a.edu": 1}))
    assert isinstance(outcome.error, StalledError)


def test_a_peer_that_fails_by_itself_fails_the_run() -> None:
    async def main(world: World) -> None:
        await world.start_all()
        peer = world.peers["a.edu/0"].peer
        assert peer is not None

        async def fail() -> None:
            raise RuntimeError("a fault of ours")

        peer.engine._nursery.start_soon(fail)
        await trio.sleep(10)

    outcome = run_simulation(main, 0, Federation({"a.edu": 2}))
    assert isinstance(outcome.error, PeerFailedError)
    assert "a fault of ours" in str(outcome.error)
    assert any("failed" in line for line in outcome.trace)


@in_a_world
async def test_posts_of_a_client_whose_peer_dies_are_neither_lost_nor_doubled(world: World) -> None:
    world.network.links.default = BAD_WEATHER
    await world.start_all()
    await define(world)

    connected = trio.Event()

    async def post() -> None:
        async with world.client("c.edu/0", patience_s=300.0) as client:
            connected.set()
            await send(client, 40)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(post)
        await connected.wait()  # its first try is not repeated, since the peer may not run at all
        for _ in range(3):
            await trio.sleep(1.5)
            await world.crash("c.edu/0")
            await world.restart("c.edu/0")
    async with work(world, 0) as found:
        pass
    assert found == right_answer(40)
