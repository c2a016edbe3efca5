"""The producer of a stream: the catalog and producers name it, at different moments."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from medusa.dht.catalog import Catalog, Published
from medusa.engine.objects.catalog_records import PRODUCER
from medusa.engine.objects.definitions import Producer, StreamDefinition, StreamEntry
from medusa.engine.objects.schema import Field, FieldType, Schema
from medusa.engine.replication.directory.book import (
    MAX_REMEMBERED,
    Book,
    Rendition,
    in_order,
    key_of,
)
from medusa.engine.replication.directory.directory import HANDOVER_S, Directory
from medusa.engine.replication.directory.questions import LOOK_UP_S
from medusa.engine.replication.records.term import HIGHEST_NUMBER, Term
from medusa.overlay.errors import NotFoundError, UnavailableError
from medusa.overlay.events import Events
from medusa.overlay.gossip.events import Health
from medusa.overlay.names import NO_PEER, ObjectName, PeerId
from medusa.overlay.node.node import Overlay

STREAM = "medusa://mit.edu/out"
ENTRY = StreamEntry(
    StreamDefinition(STREAM, "medusa://mit.edu/t"),
    Schema("medusa://mit.edu/t", (Field("a", FieldType.LONG),)),
)
PRIMARY, SECONDARY, READER = (PeerId(20 * letter) for letter in (b"p", b"s", b"r"))


class SlowCatalog:
    """Returns what the test sets, after `after_s` seconds."""

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

    def say(self, publisher: bytes, term_number: int, secondary: bytes = b"") -> None:
        producer = Producer(STREAM, secondary=secondary.hex(), term_number=term_number)
        self.producers = [Published(ObjectName.parse(STREAM), producer, publisher, term_number)]


class Network:
    """An overlay that reaches the peers that are up."""

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
async def directory(network: Network, catalog: SlowCatalog, nursery: trio.Nursery) -> Directory:
    return Directory(cast("Overlay", network), cast("Catalog", catalog), nursery)


async def reached(directory: Directory) -> Any:
    return await directory.connect(STREAM)


async def test_the_catalog_is_asked_where_nothing_else_is_known(
    directory: Directory, catalog: SlowCatalog
) -> None:
    catalog.say(PRIMARY, 5)
    assert await reached(directory) == PRIMARY
    assert directory.number(STREAM) == 5


async def test_a_successor_is_asked_by_its_own_announcement_though_the_catalog_is_slow(
    autojump_clock: trio.abc.Clock, directory: Directory, network: Network, catalog: SlowCatalog
) -> None:
    catalog.say(PRIMARY, 5)  # the record does not name its secondary yet
    await reached(directory)
    network.up.remove(PRIMARY)
    catalog.after_s = 3600.0
    began = trio.current_time()
    assert directory.believe(Term(STREAM, 6, SECONDARY))
    assert await reached(directory) == SECONDARY
    assert trio.current_time() == began
    assert catalog.asked == 1


async def test_a_call_that_finds_no_producer_waits_for_a_takeover(
    autojump_clock: trio.abc.Clock, directory: Directory, network: Network, catalog: SlowCatalog
) -> None:
    catalog.say(PRIMARY, 5)
    await reached(directory)
    network.up.remove(PRIMARY)

    async def take_over() -> None:
        await trio.sleep(HANDOVER_S / 2)
        directory.believe(Term(STREAM, 6, SECONDARY))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_over)
        assert await reached(directory) == SECONDARY


async def test_a_lookup_waits_for_a_handover_only_and_for_a_limited_time(
    autojump_clock: trio.abc.Clock, directory: Directory, network: Network, catalog: SlowCatalog
) -> None:
    network.up.clear()
    catalog.say(PRIMARY, 0)
    began = trio.current_time()
    with pytest.raises(UnavailableError):
        await reached(directory)
    assert trio.current_time() == began
    catalog.say(PRIMARY, 5)
    with pytest.raises(UnavailableError):
        await reached(directory)
    assert trio.current_time() == pytest.approx(began + HANDOVER_S)


async def test_known_records_serve_while_the_catalog_is_slow_or_away(
    autojump_clock: trio.abc.Clock, directory: Directory, catalog: SlowCatalog
) -> None:
    assert await directory.entry(STREAM) == ENTRY
    catalog.after_s = 3600.0
    began = trio.current_time()
    assert await directory.entry(STREAM) == ENTRY
    assert trio.current_time() == pytest.approx(began + LOOK_UP_S)
    catalog.after_s, catalog.fails = 0.0, True
    assert await directory.entry(STREAM) == ENTRY


async def test_an_answer_that_comes_late_is_heeded_when_it_comes(
    autojump_clock: trio.abc.Clock, directory: Directory, network: Network, catalog: SlowCatalog
) -> None:
    """Calls repeat faster than answers come, as across an ocean or past dead peers; without late
    answers the peer would never learn anything."""
    catalog.say(PRIMARY, 0)
    await reached(directory)
    catalog.say(SECONDARY, 0)
    catalog.after_s = 10 * LOOK_UP_S
    network.up.remove(PRIMARY)
    began = trio.current_time()
    for _ in range(20):
        try:
            assert await reached(directory) == SECONDARY
            break
        except UnavailableError:
            continue
    assert trio.current_time() == pytest.approx(began + catalog.after_s, abs=2 * LOOK_UP_S)
    assert catalog.asked <= 3  # one question at a time


async def test_an_unpublished_record_cannot_be_remembered(
    directory: Directory, catalog: SlowCatalog
) -> None:
    catalog.fails = True
    with pytest.raises(UnavailableError):
        await directory.entry(STREAM)


async def test_a_withdrawn_record_is_not_remembered(
    directory: Directory, catalog: SlowCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await directory.entry(STREAM)

    async def withdrawn(*_: object) -> None:
        await trio.lowlevel.checkpoint()
        raise NotFoundError("withdrawn")

    monkeypatch.setattr(catalog, "lookup", withdrawn)
    with pytest.raises(NotFoundError):
        await directory.entry(STREAM)
    monkeypatch.undo()
    catalog.fails = True
    with pytest.raises(UnavailableError):
        await directory.entry(STREAM)


async def test_only_news_counts_as_news(directory: Directory) -> None:
    # a term without a number has no successor
    assert not directory.believe(Term(STREAM, 0, PRIMARY))
    assert directory.believe(Term(STREAM, 5))
    assert not directory.believe(Term(STREAM, 5))
    assert directory.believe(Term(STREAM, 5, PRIMARY))
    assert not directory.believe(Term(STREAM, 5, PRIMARY))
    assert not directory.believe(Term(STREAM, 4, SECONDARY))
    assert directory.believe(Term(STREAM, 6, SECONDARY))
    assert directory.number(STREAM) == 6


def test_streams_are_known_by_their_keys_and_not_without_bound() -> None:
    book, now = Book(), 1_800_000_000.0
    assert book.named(key_of(STREAM)) is None
    book.believe(Term(STREAM, 1), now)
    assert book.named(key_of(STREAM)) == STREAM
    for number in range(MAX_REMEMBERED):
        book.believe(Term(f"{STREAM}{number}", 1), now)
    assert book.named(key_of(STREAM)) is None
    assert book.number(STREAM, now) == 0


def test_a_word_of_a_producer_counts_beside_records_of_its_term_and_against_older_ones() -> None:
    old = Rendition(Term(STREAM, 5, PRIMARY))
    assert in_order([old], 6, oldest=False, holder=SECONDARY) == [SECONDARY]
    assert in_order([old], 5, oldest=False, holder=SECONDARY) == [PRIMARY, SECONDARY]
    assert in_order([old], 5, oldest=False) == [PRIMARY]


def test_workers_come_before_their_owners_and_secondaries_last() -> None:
    term = Term(STREAM, 5, PRIMARY, (SECONDARY,))
    assert in_order([Rendition(term, READER)], 5, oldest=False) == [READER, PRIMARY, SECONDARY]
    assert in_order([Rendition(term, READER)], 5, oldest=True) == [PRIMARY, READER, SECONDARY]
    assert in_order([Rendition(term, READER)], 6, oldest=False) == [SECONDARY]


async def test_names_of_peers_that_are_none_cost_only_themselves(
    directory: Directory, catalog: SlowCatalog
) -> None:
    catalog.producers = [
        Published(ObjectName.parse(STREAM), Producer(STREAM, "nothing", "nobody", 5), PRIMARY, 1)
    ]
    await directory.learn(STREAM)
    assert directory.versions(STREAM) == [PRIMARY]


NUMBERS = st.integers(0, 4)
HOLDERS = st.sampled_from([NO_PEER, PRIMARY, SECONDARY])


@given(st.lists(st.tuples(st.sampled_from("ab"), NUMBERS, HOLDERS), max_size=30))
def test_the_book_believes_the_highest_term_and_its_last_holder(
    words: list[tuple[str, int, PeerId]],
) -> None:
    """The order and repetition of messages make no difference: the result equals a search of all
    messages so far."""
    book, now, said = Book(), 1_800_000_000.0, dict[str, list[tuple[int, PeerId]]]()

    def believed(subject: str) -> tuple[int, PeerId]:
        heard = said.get(subject, [])
        number = max((number for number, _ in heard), default=0)
        holders = [holder for each, holder in heard if each == number and holder]
        return number, holders[-1] if number and holders else NO_PEER

    for subject, number, holder in words:
        before = believed(subject)
        said.setdefault(subject, []).append((number, holder))
        after = believed(subject)
        assert book.believe(Term(subject, number, holder), now) is (after != before)
        assert book.number(subject, now) == after[0]
        assert book.holder(subject) == (after[1] or None)
        assert book.named(key_of(subject)) == (subject if after[0] else None)


@given(st.permutations([(1, READER), (2, SECONDARY), (3, PRIMARY), (3, PRIMARY), (2, NO_PEER)]))
def test_the_order_in_which_words_come_does_not_matter(words: list[tuple[int, PeerId]]) -> None:
    book, now = Book(), 1_800_000_000.0
    for number, holder in words:
        book.believe(Term(STREAM, number, holder), now)
    assert (book.number(STREAM, now), book.holder(STREAM)) == (3, PRIMARY)


def test_an_empty_answer_of_the_catalog_takes_nothing_back() -> None:
    book, now = Book(), 1_800_000_000.0
    assert book.learned(STREAM) is None
    book.learn(STREAM, [])
    assert book.learned(STREAM) == []
    known = [Rendition(Term(STREAM, 5, PRIMARY, (SECONDARY,)))]
    book.learn(STREAM, known)
    book.learn(STREAM, [])
    assert book.learned(STREAM) == known
    assert not book.is_ahead(STREAM, now)
    book.believe(Term(STREAM, 6, SECONDARY), now)
    assert book.is_ahead(STREAM, now)
    assert book.in_order(STREAM, now) == [SECONDARY]


async def test_only_the_claim_of_the_holder_itself_is_passed_on(directory: Directory) -> None:
    told = list[Term]()
    directory.changed.add(told.append)
    directory.believe(Term(STREAM, 5))
    assert told == []
    term = Term(STREAM, 5, PRIMARY)
    directory.believe(term)
    directory.believe(term)
    directory.believe(Term(STREAM, 4, SECONDARY))
    assert told == [term]


async def test_a_term_of_the_future_is_not_believed_and_can_be_outdone(
    directory: Directory, catalog: SlowCatalog, network: Network
) -> None:
    """A faulty sibling, or a thief of its key, claims it in the catalog, by digest and by call."""
    catalog.say(PRIMARY, 5)
    assert await reached(directory) == PRIMARY
    for claimed in (2**62, HIGHEST_NUMBER.latest(network.now) + 1):
        catalog.say(SECONDARY, claimed)
        await directory.learn(STREAM)
        assert not directory.believe(Term(STREAM, claimed, SECONDARY))
        assert directory.number(STREAM) == 5
        assert await directory.publishers(STREAM) == []
        assert await directory.successor(STREAM, PRIMARY) is None
    assert any("term of the future" in event.text for event in network.events.recent())
    # even the greatest term that peers believe can be exceeded by the next one
    assert directory.believe(Term(STREAM, HIGHEST_NUMBER.latest(network.now), SECONDARY))
    known = [directory.number(STREAM)]
    taken = HIGHEST_NUMBER.next(STREAM, known, PRIMARY, network.now)
    network.now += 0.002
    assert directory.believe(taken)


async def test_a_term_believed_while_our_clock_was_ahead_counts_no_more(
    directory: Directory, network: Network
) -> None:
    network.now += 100 * 86_400
    assert directory.believe(HIGHEST_NUMBER.next(STREAM, [], SECONDARY, network.now))
    network.now -= 100 * 86_400
    assert directory.number(STREAM) == 0
    term = HIGHEST_NUMBER.next(STREAM, [], PRIMARY, network.now)
    assert directory.believe(term)
    assert directory.number(STREAM) == term.number
