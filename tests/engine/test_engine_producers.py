"""Who produces a stream: what the catalog says, what producers say of themselves, and when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from dht.catalog import Catalog, Published
from engine.objects.definitions import Producer, StreamDefinition, StreamEntry
from engine.objects.kinds import PRODUCER
from engine.objects.schema import Field, FieldType, Schema
from engine.replication.producers import (
    HANDOVER_S,
    LOOK_UP_S,
    MAX_REMEMBERED,
    Producers,
    in_order,
    key_of_stream,
)
from engine.replication.term import QUERIES
from overlay.errors import NotFoundError, UnavailableError
from overlay.events import Events
from overlay.gossip.events import Health
from overlay.names import ObjectName
from overlay.node import Overlay

STREAM = "medusa://mit.edu/out"
ENTRY = StreamEntry(
    StreamDefinition(STREAM, "medusa://mit.edu/t"),
    Schema("medusa://mit.edu/t", (Field("a", FieldType.LONG),)),
)
PRIMARY, SECONDARY, READER = b"p" * 20, b"s" * 20, b"r" * 20


class SlowCatalog:
    """Says what it is told to, after `after_s` seconds."""

    def __init__(self) -> None:
        self.after_s = 0.0
        self.fails = False
        self.producers: list[Published[Producer]] = []
        self.asked = 0

    async def lookup_all(self, kind: object, name: ObjectName) -> list[Published[Producer]]:
        assert (kind, str(name)) == (PRODUCER, STREAM)
        await self._answer()
        return list(self.producers)

    async def lookup(self, _kind: object, name: ObjectName) -> Published[StreamEntry]:
        await self._answer()
        return Published(name, ENTRY, PRIMARY, 1)

    async def _answer(self) -> None:
        self.asked += 1
        await trio.sleep(self.after_s)
        if self.fails:
            raise UnavailableError("too few peers answer")

    def say(self, publisher: bytes, fence: int, secondary: bytes = b"") -> None:
        producer = Producer(STREAM, secondary=secondary.hex(), fence=fence)
        self.producers = [Published(ObjectName.parse(STREAM), producer, publisher, fence)]


class Network:
    """An overlay that reaches who is up."""

    def __init__(self) -> None:
        self.up = {PRIMARY, SECONDARY}
        self.now = 1_800_000_000.0
        self.clock = lambda: self.now
        self.events = Events(self.clock)
        self.identity = SimpleNamespace(peer_id=READER)
        self.gossip = SimpleNamespace(health=lambda _: Health.ALIVE)

    async def connect(self, peer: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        if peer not in self.up:
            raise UnavailableError(f"{peer[:1]!r} is gone")
        return peer


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def catalog() -> SlowCatalog:
    return SlowCatalog()


@pytest.fixture
async def producers(network: Network, catalog: SlowCatalog, nursery: trio.Nursery) -> Producers:
    return Producers(cast("Overlay", network), cast("Catalog", catalog), nursery)


async def reached(producers: Producers) -> Any:
    return await producers.connect(STREAM)


async def test_the_catalog_is_asked_where_nothing_else_is_known(
    producers: Producers, catalog: SlowCatalog
) -> None:
    catalog.say(PRIMARY, 5)
    assert await reached(producers) == PRIMARY
    assert producers.fence(STREAM) == 5


async def test_who_takes_over_is_asked_at_its_own_word_though_the_catalog_is_slow(
    autojump_clock: trio.abc.Clock, producers: Producers, network: Network, catalog: SlowCatalog
) -> None:
    catalog.say(PRIMARY, 5)  # it does not name its secondary yet
    await reached(producers)
    network.up.remove(PRIMARY)
    catalog.after_s = 3600.0
    began = trio.current_time()
    assert producers.believe(STREAM, 6, SECONDARY)
    assert await reached(producers) == SECONDARY
    assert trio.current_time() == began
    assert catalog.asked == 1


async def test_a_call_that_finds_nobody_waits_for_who_takes_over(
    autojump_clock: trio.abc.Clock, producers: Producers, network: Network, catalog: SlowCatalog
) -> None:
    catalog.say(PRIMARY, 5)
    await reached(producers)
    network.up.remove(PRIMARY)

    async def take_over() -> None:
        await trio.sleep(HANDOVER_S / 2)
        producers.believe(STREAM, 6, SECONDARY)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_over)
        assert await reached(producers) == SECONDARY


async def test_it_does_not_wait_for_ever_nor_where_nobody_can_take_over(
    autojump_clock: trio.abc.Clock, producers: Producers, network: Network, catalog: SlowCatalog
) -> None:
    network.up.clear()
    catalog.say(PRIMARY, 0)
    began = trio.current_time()
    with pytest.raises(UnavailableError):
        await reached(producers)
    assert trio.current_time() == began
    catalog.say(PRIMARY, 5)
    with pytest.raises(UnavailableError):
        await reached(producers)
    assert trio.current_time() == pytest.approx(began + HANDOVER_S)


async def test_what_the_catalog_said_serves_while_it_is_slow_or_away(
    autojump_clock: trio.abc.Clock, producers: Producers, catalog: SlowCatalog
) -> None:
    assert await producers.entry(STREAM) == ENTRY
    catalog.after_s = 3600.0
    began = trio.current_time()
    assert await producers.entry(STREAM) == ENTRY
    assert trio.current_time() == pytest.approx(began + LOOK_UP_S)
    catalog.after_s, catalog.fails = 0.0, True
    assert await producers.entry(STREAM) == ENTRY


async def test_an_answer_that_comes_late_is_heeded_when_it_comes(
    autojump_clock: trio.abc.Clock, producers: Producers, network: Network, catalog: SlowCatalog
) -> None:
    """However often it is asked for meanwhile: where every answer takes longer than anybody waits,
    as across an ocean, or past dead peers, nothing would ever be learnt."""
    catalog.say(PRIMARY, 0)
    await reached(producers)
    catalog.say(SECONDARY, 0)
    catalog.after_s = 10 * LOOK_UP_S
    network.up.remove(PRIMARY)
    began = trio.current_time()
    for _ in range(20):
        try:
            assert await reached(producers) == SECONDARY
            break
        except UnavailableError:
            continue
    assert trio.current_time() == pytest.approx(began + catalog.after_s, abs=2 * LOOK_UP_S)
    assert catalog.asked <= 3  # one question at a time


async def test_what_was_never_said_cannot_be_remembered(
    producers: Producers, catalog: SlowCatalog
) -> None:
    catalog.fails = True
    with pytest.raises(UnavailableError):
        await producers.entry(STREAM)


async def test_what_is_withdrawn_is_not_remembered(
    producers: Producers, catalog: SlowCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await producers.entry(STREAM)

    async def withdrawn(*_: object) -> None:
        await trio.lowlevel.checkpoint()
        raise NotFoundError("withdrawn")

    monkeypatch.setattr(catalog, "lookup", withdrawn)
    with pytest.raises(NotFoundError):
        await producers.entry(STREAM)
    monkeypatch.undo()
    catalog.fails = True
    with pytest.raises(UnavailableError):
        await producers.entry(STREAM)


async def test_only_news_counts_as_news(producers: Producers) -> None:
    assert not producers.believe(STREAM, 0, PRIMARY)  # of no fence: it has no successor either
    assert producers.believe(STREAM, 5)
    assert not producers.believe(STREAM, 5)
    assert producers.believe(STREAM, 5, PRIMARY)
    assert not producers.believe(STREAM, 5, PRIMARY)
    assert not producers.believe(STREAM, 4, SECONDARY)
    assert producers.believe(STREAM, 6, SECONDARY)
    assert producers.fence(STREAM) == 6


async def test_streams_are_known_by_their_keys_and_not_without_bound(producers: Producers) -> None:
    assert producers.known(key_of_stream(STREAM)) is None
    producers.believe(STREAM, 1)
    assert producers.known(key_of_stream(STREAM)) == STREAM
    for number in range(MAX_REMEMBERED):
        producers.believe(f"{STREAM}{number}", 1)
    assert producers.known(key_of_stream(STREAM)) is None


def test_a_word_of_a_producer_counts_beside_records_of_its_fence_and_against_older_ones() -> None:
    name = ObjectName.parse(STREAM)
    old = Published(name, Producer(STREAM, fence=5), PRIMARY, 1)
    assert in_order([old], 6, oldest=False, maker=SECONDARY) == [SECONDARY]
    assert in_order([old], 5, oldest=False, maker=SECONDARY) == [PRIMARY, SECONDARY]
    assert in_order([old], 5, oldest=False) == [PRIMARY]


async def test_a_fence_of_the_future_is_not_believed_and_can_be_outdone(
    producers: Producers, catalog: SlowCatalog, network: Network
) -> None:
    """A sibling gone wild, or a thief of its key, says so in the catalog, by digest, by call."""
    catalog.say(PRIMARY, 5)
    assert await reached(producers) == PRIMARY
    for claimed in (2**62, QUERIES.latest(network.now) + 1):
        catalog.say(SECONDARY, claimed)
        await producers.learn(STREAM)
        assert not producers.believe(STREAM, claimed, SECONDARY)
        assert producers.fence(STREAM) == 5
        assert await producers.publishers(STREAM) == []
        assert await producers.successor(STREAM, PRIMARY) is None
    assert any("term of the future" in event.text for event in network.events.recent())
    # the greatest that is believed is outdone by the next that somebody takes
    assert producers.believe(STREAM, QUERIES.latest(network.now), SECONDARY)
    taken = QUERIES.next([producers.fence(STREAM)], network.now, PRIMARY.hex())
    network.now += 0.002
    assert producers.believe(STREAM, taken, PRIMARY)


async def test_a_fence_believed_while_our_clock_was_ahead_counts_no_more(
    producers: Producers, network: Network
) -> None:
    network.now += 100 * 86_400
    assert producers.believe(STREAM, QUERIES.next([], network.now, SECONDARY.hex()), SECONDARY)
    network.now -= 100 * 86_400
    assert producers.fence(STREAM) == 0
    fence = QUERIES.next([], network.now, PRIMARY.hex())
    assert producers.believe(STREAM, fence, PRIMARY)
    assert producers.fence(STREAM) == fence
