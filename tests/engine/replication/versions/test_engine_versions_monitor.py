"""The monitor asks the producers of all read streams for their state, and notices one that does not
answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from medusa.engine.replication.versions.choice import MAX_STREAMS, AskVersions, Version, Versions
from medusa.engine.replication.versions.monitor import VersionMonitor
from medusa.engine.streams.config import EngineConfig
from medusa.engine.streams.log.suffix import State
from medusa.engine.streams.store.stream_state import Role
from medusa.overlay.errors import UnavailableError
from medusa.overlay.listeners import Listeners

pytestmark = pytest.mark.usefixtures("autojump_clock")


PRIMARY, SECONDARY, GONE = (bytes([n]) * 32 for n in (1, 2, 3))


class Peers:
    """The other peers as the monitor sees them: a peer that answers is well."""

    def __init__(self, states: dict[bytes, State]) -> None:
        self.states = states
        self.asked: list[tuple[bytes, tuple[str, ...]]] = []

    async def connect(self, peer: bytes) -> Any:
        state = self.states.get(peer)
        if state is None:
            raise UnavailableError("not there")

        async def call(method: str, question: AskVersions, _: type) -> Versions:
            assert method == "versions"
            self.asked.append((peer, question.streams))
            await trio.sleep(0.01)
            return Versions(tuple(Version(name, state, 7, 7, 1) for name in question.streams))

        return SimpleNamespace(call=call)


class Cluster:
    """Streams that are read here, each from the first of its producers at first."""

    def __init__(self, names: list[str], versions: tuple[bytes, ...]) -> None:
        self.state = [
            SimpleNamespace(
                name=name,
                role=Role.FOLLOWER,
                version=0,
                entry=SimpleNamespace(stream=SimpleNamespace(query="medusa://a.org/q")),
            )
            for name in names
        ]
        self.known = versions
        self.read = dict.fromkeys(names, versions[0])
        self.reconnected: list[str] = []
        self.opened: Listeners[[Any]] = Listeners()
        self.elsewhere: set[str] = set()
        self.reach = SimpleNamespace(is_elsewhere=self.elsewhere.__contains__)

    def all(self) -> list[Any]:
        return self.state

    def versions(self, _: str) -> tuple[bytes, ...]:
        return self.known

    def read_from(self, stream: str) -> bytes:
        return self.read[stream]

    def prefer(self, stream: str, peer: bytes) -> None:
        self.read[stream] = peer

    def learn_soon(self, _: str) -> None:
        pass

    def read_anew(self, stream: str) -> None:
        self.reconnected.append(stream)


async def watch(cluster: Cluster, peers: Peers, seconds: float) -> None:
    parts: dict[str, Any] = {
        "overlay": peers,
        "store": cluster,
        "directory": cluster,
        "followers": cluster,
    }
    async with trio.open_nursery() as nursery:
        monitor = VersionMonitor(**parts, config=EngineConfig(keep_alive_s=0.1), nursery=nursery)
        nursery.start_soon(monitor.maintain)
        await trio.sleep(seconds)
        nursery.cancel_scope.cancel()


async def test_every_stream_is_asked_about_however_many_there_are() -> None:
    names = [f"medusa://a.org/s{number:04}" for number in range(2 * MAX_STREAMS + 3)]
    cluster = Cluster(names, (PRIMARY, SECONDARY))
    peers = Peers({PRIMARY: State.UP_FAILURE, SECONDARY: State.STABLE})
    await watch(cluster, peers, 1.0)
    assert all(len(streams) <= MAX_STREAMS for _, streams in peers.asked)
    for peer in (PRIMARY, SECONDARY):
        assert {name for who, streams in peers.asked if who == peer for name in streams} == {*names}
    assert set(cluster.read.values()) == {SECONDARY}
    # each reader changed its producer once: it keeps a producer while no other one is better
    assert sorted(cluster.reconnected) == names


async def test_a_silent_producer_is_read_no_more() -> None:
    cluster = Cluster(["medusa://a.org/s"], (GONE, SECONDARY))
    await watch(cluster, Peers({SECONDARY: State.STABLE}), 1.0)
    assert cluster.read == {"medusa://a.org/s": SECONDARY}


async def test_a_failed_producer_is_read_when_it_answers() -> None:
    cluster = Cluster(["medusa://a.org/s"], (PRIMARY, SECONDARY))
    cluster.read = {"medusa://a.org/s": SECONDARY}
    peers = Peers({PRIMARY: State.STABLE, SECONDARY: State.STABLE})
    await watch(cluster, peers, 1.0)
    assert cluster.read == {"medusa://a.org/s": SECONDARY}
    await watch(cluster, peers, 3.0)
    assert cluster.read == {"medusa://a.org/s": PRIMARY}
    assert cluster.reconnected == ["medusa://a.org/s"]


async def test_a_stream_read_at_a_suggested_place_stays_there() -> None:
    cluster = Cluster(["medusa://a.org/s"], (PRIMARY, SECONDARY))
    cluster.elsewhere.add("medusa://a.org/s")
    await watch(cluster, Peers({SECONDARY: State.STABLE}), 10.0)
    assert cluster.reconnected == []


async def test_the_only_producer_is_not_asked() -> None:
    peers = Peers({PRIMARY: State.STABLE})
    await watch(Cluster(["medusa://a.org/s"], (PRIMARY,)), peers, 1.0)
    assert not peers.asked


async def test_a_version_made_from_another_version_is_another_one() -> None:
    cluster = Cluster(["medusa://a.org/s"], (PRIMARY, SECONDARY))
    peers = Peers({PRIMARY: State.STABLE, SECONDARY: State.STABLE})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, cluster, peers, 10.0)
        await trio.sleep(5.0)
        number = cluster.state[0].version
        del peers.states[PRIMARY]
        await trio.sleep(4.0)
    assert cluster.read == {"medusa://a.org/s": SECONDARY}
    assert cluster.state[0].version == number + 1
