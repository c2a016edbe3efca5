"""Partitions of simulated federations: consumers notice only the permitted effects."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import trio

from medusa.engine.objects.availability import Availability, Mode, Recovery
from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.query import Filter, Union
from medusa.engine.replication.versions.monitor import VersionMonitor
from medusa.engine.streams.revisions.corrections import Corrections
from medusa.overlay.errors import UnavailableError
from medusa.testnet.simulation import simulate as simulation
from medusa.testnet.simulation.faults import Crash, Fault, Partition
from medusa.testnet.simulation.federation import Federation
from medusa.testnet.simulation.history import (
    History,
    Posted,
    Quiescent,
    Received,
    Tentative,
    schema_of,
    table_of,
)
from medusa.testnet.simulation.manifest import (
    Manifest,
    PosterTable,
    QueryTable,
    Settings,
    StreamTable,
    SubscriberTable,
)
from medusa.testnet.simulation.simulate import Result, run_simulation, simulate
from medusa.testnet.simulation.world import World

SOURCE, SOME, FEW = (
    "medusa://utah.edu/s",
    "medusa://mit.edu/some",
    "medusa://utah.edu/few",
)
CUT_S = (4.0, 5.0)
PRIMARY = "mit.edu/0"


def replicated(*faults: Fault) -> Manifest:
    """Return the poster's demonstration: A and C at utah.edu, B and its replica R at mit.edu."""
    standby = Availability(Mode.ACTIVE_STANDBY, Recovery.PRECISE, bound_s=2.0)
    some = Filter("some", SOURCE, (SOME,), ("value >= 0",))
    few = Filter("few", SOME, (FEW,), ("value >= 0",))
    return Manifest(
        participants={"mit.edu": 2, "utah.edu": 2},
        workload_s=14.0,
        settings=Settings(epoch_s=0.1),
        streams=(StreamTable(SOURCE, "utah.edu/0"),),
        queries=(
            QueryTable(PRIMARY, "medusa://mit.edu/b", (some,), (), standby),
            QueryTable("utah.edu/1", "medusa://utah.edu/c", (few,)),
        ),
        posters=(PosterTable("p", SOURCE, ("utah.edu/0",), posts=120, every_s=0.1),),
        subscribers=(SubscriberTable("r", FEW, ("utah.edu/1",), 60.0),),
        faults=faults,
    )


def run(manifest: Manifest, patch: pytest.MonkeyPatch, seed: int = 1) -> tuple[Result, History]:
    history = History()
    patch.setattr(simulation, "History", lambda: history)
    return simulate(manifest, seed), history


def longest_pause_s(history: History) -> float:
    """Return the longest pause in a subscriber's messages, around the cut."""
    times = [
        each.at
        for each in history.of(Received)
        if each.subscriber == "r" and each.rows and each.at < sum(CUT_S)
    ]
    return max(later - earlier for earlier, later in pairwise(times))


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_a_replica_hides_that_its_primary_is_cut_off(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_s, for_s = CUT_S
    cut = replicated(Partition(at_s, for_s, (PRIMARY,)))
    result, history = run(cut, monkeypatch, seed)
    assert result.violations == ()
    with_monitor_s = longest_pause_s(history)

    async def maintain(_: VersionMonitor) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(VersionMonitor, "maintain", maintain)
    without, history = run(cut, monkeypatch, seed)
    assert without.violations == ()
    assert longest_pause_s(history) > 1.0, "a failure detector takes longer than a keep-alive"
    assert with_monitor_s < longest_pause_s(history)


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param((Partition(2.0, 6.0, (PRIMARY,), False),), id="one way"),
        pytest.param((Partition(2.0, 6.0, (PRIMARY, "utah.edu/1")),), id="with the consumer"),
        pytest.param(
            (Partition(2.0, 6.0, (PRIMARY,)), Crash(4.0, 3.0, "mit.edu/1")), id="replica dies"
        ),
        pytest.param(
            (Partition(2.0, 3.0, (PRIMARY,)), Partition(6.0, 3.0, ("mit.edu/1",))), id="in turn"
        ),
    ],
)
def test_nothing_is_lost_or_repeated_however_the_versions_are_cut_off(
    faults: tuple[Fault, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    result, _ = run(replicated(*faults), monkeypatch)
    assert result.violations == ()
    assert result.rows == 120


def torn(*faults: Fault, **more: object) -> Manifest:
    """Return a query that reads a stream of each side; its secondary is not on the side of its
    primary, and both sides have readers."""
    standby = Availability(Mode.ACTIVE_STANDBY, Recovery.PRECISE, bound_s=1.0)
    streams = ("medusa://utah.edu/s0", "medusa://utah.edu/s1")
    merge = Union("merge", streams, SOME)
    homes = ("utah.edu/0", "utah.edu/1")
    return Manifest(
        participants={"mit.edu": 2, "utah.edu": 2},
        workload_s=14.0,
        settings=Settings(epoch_s=0.1),
        streams=tuple(map(StreamTable, streams, homes)),
        queries=(QueryTable(PRIMARY, "medusa://mit.edu/q", (merge,), (), standby),),
        posters=tuple(
            PosterTable(f"p{n}", stream, (home,), posts=100, every_s=0.1)
            for n, (stream, home) in enumerate(zip(streams, homes, strict=True))
        ),
        subscribers=tuple(
            SubscriberTable(f"{how} at {at}", SOME, (at,), 60.0, how)
            for at in ("mit.edu/0", "mit.edu/1")
            for how in Corrections
        ),
        faults=faults,
    )


@pytest.mark.parametrize("symmetric", [True, False])
def test_both_sides_go_on_and_one_version_survives(
    symmetric: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = Partition(3.0, 5.0, (PRIMARY, "utah.edu/0"), symmetric)
    result, history = run(torn(cut), monkeypatch)
    assert result.violations == ()  # all four readers have exact results
    given = {each.subscriber for each in history.of(Tentative) if each.rows}
    assert len(given) == 4, "on both sides, in either way"
    last = max((each for each in history.of(Quiescent)), key=lambda each: each.at)
    owners = [view.peer for view in last.peers if view.primaries]
    assert len(owners) == 1


async def define(world: World, peer: str, path: str) -> str:
    name = f"medusa://{peer.partition('/')[0]}/{path}"
    async with world.client(peer, patience_s=5.0) as client:
        await client.create_schema(schema_of(name))
        await client.create_stream(
            StreamDefinition(name, schema_of(name).name, readers=("*",), writers=("*",))
        )
        row = Posted(int(world.now() * 1e6), peer, 1, 1, 1)
        await client.post_event(name, table_of([row]), end=True)
        await client.flush()
    return name


def test_each_side_defines_names_whose_owners_it_has_and_both_are_found_afterwards() -> None:
    found: dict[tuple[str, str], int] = {}

    async def main(world: World) -> None:
        await world.start_all()
        await trio.sleep(2)
        alone, others = "rice.edu/0", ("mit.edu/0", "utah.edu/0")
        for other in others:
            world.network.links.cut(world.peers[alone].host, world.peers[other].host)
        await trio.sleep(8)  # each side believes the other dead
        names = [await define(world, alone, "a"), await define(world, "utah.edu/0", "b")]
        world.network.links.heal_all()
        await trio.sleep(30)
        for peer in world.peers:
            async with world.client(peer, patience_s=5.0) as client:
                for name in names:
                    epoch = await client.receive_events(name)
                    found[peer, name] = 0 if epoch is None else epoch.table.num_rows

    settings = {"dht": {"attempt_s": 0.25}}
    participants = {"mit.edu": 1, "utah.edu": 1, "rice.edu": 1}
    outcome = run_simulation(main, 1, Federation(participants, settings))
    assert outcome.error is None
    assert list(found.values()) == [1] * 6


def test_a_name_is_not_defined_while_another_of_its_owners_cannot_be_asked() -> None:
    """A peer without any answer cannot know what its sibling on the other side has defined."""

    async def main(world: World) -> None:
        await world.start_all()
        await trio.sleep(2)
        for other in ("mit.edu/1", "utah.edu/0"):
            world.network.links.cut(world.peers["mit.edu/0"].host, world.peers[other].host)
        await trio.sleep(8)
        with pytest.raises(UnavailableError, match=r"peers of mit\.edu that may know of it"):
            await define(world, "mit.edu/0", "a")

    participants = {"mit.edu": 2, "utah.edu": 1}
    outcome = run_simulation(main, 1, Federation(participants, {"dht": {"attempt_s": 0.25}}))
    assert outcome.error is None


def test_one_of_two_definitions_of_a_name_counts_and_no_row_is_lost() -> None:
    """Two peers of one participant can each ask a third one, which knows no such name."""
    sides = (("mit.edu/0", "utah.edu/0"), ("mit.edu/1", "rice.edu/0"))
    homes: list[str] = []
    events: list[str] = []
    rows: set[int] = set()
    kept_aside: list[str] = []

    async def main(world: World) -> None:
        await world.start_all()
        await trio.sleep(2)
        hosts = {name: peer.host for name, peer in world.peers.items()}
        for one in sides[0]:
            for other in sides[1]:
                world.network.links.cut(hosts[one], hosts[other])
        await trio.sleep(8)
        for first, _ in sides:
            name = await define(world, first, "both")
        world.network.links.heal_all()
        await trio.sleep(60)
        for peer in world.peers.values():
            assert peer.peer is not None
            engine = peer.peer.engine
            kept = engine.store.serving(name)
            homes.extend([peer.id] * (kept is not None))
            events.extend(event.text for event in engine.overlay.events.recent())
            folders = (peer.home.folder / "data" / "streams").glob("*aside*")
            kept_aside.extend(str(folder) for folder in folders)
        for peer in world.peers:
            async with world.client(peer, patience_s=5.0) as client:
                epoch = await client.receive_events(name)
                rows.add(0 if epoch is None else epoch.table.num_rows)

    participants = {"mit.edu": 2, "utah.edu": 1, "rice.edu": 1}
    outcome = run_simulation(main, 1, Federation(participants, {"dht": {"attempt_s": 0.25}}))
    assert outcome.error is None
    assert len(homes) == 1
    assert rows == {1}
    (told,) = [text for text in events if "another peer of ours defined it as well" in text]
    assert kept_aside
    assert Path(kept_aside[0]).name in told
