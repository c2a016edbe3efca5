"""Digests: a peer that has just taken over announces it at once, and is believed only about its own
streams."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from medusa.engine.objects.availability import Mode
from medusa.engine.replication.directory.book import key_of
from medusa.engine.replication.directory.directory import Directory
from medusa.engine.replication.queries.digests import (
    MAX_DIGEST,
    MAX_VERSIONS,
    NEWEST,
    Digest,
    Digests,
    Version,
)
from medusa.engine.replication.queries.host import QueryHost
from medusa.engine.replication.records.term import Term
from medusa.engine.streams.config import EngineConfig
from medusa.overlay.encoding import decode, encode
from medusa.overlay.listeners import Listeners
from medusa.overlay.node.node import Overlay

OWN, SIBLING, STRANGER = b"o" * 20, b"s" * 20, b"x" * 20
PARTICIPANTS = {OWN: "mit.edu", SIBLING: "mit.edu", STRANGER: "utah.edu"}


class Around:
    """The peer's state, of which digests are made and which they change."""

    def __init__(self) -> None:
        self.published: list[Digest] = []
        self.read_anew: list[str] = []
        self.queries: list[Any] = []
        changed: Listeners[[bytes, bytes]] = Listeners()
        self.gossip = SimpleNamespace(digest_changed=changed, digests={}, publish=self._publish)
        overlay = SimpleNamespace(
            gossip=self.gossip,
            identity=SimpleNamespace(peer_id=OWN),
            clock=lambda: 1_800_000_000.0,
            peers=SimpleNamespace(get=lambda peer: SimpleNamespace(participant=PARTICIPANTS[peer])),
        )
        self.host = SimpleNamespace(all=lambda: self.queries, appointed=Listeners[[]]())
        self.directory = Directory(
            cast("Overlay", overlay), cast("Any", None), cast("trio.Nursery", None)
        )
        self.directory.changed.add(lambda term: self.read_anew.append(term.subject))
        self.digests = Digests(
            cast("Overlay", overlay), cast("QueryHost", self.host), self.directory, EngineConfig()
        )

    def _publish(self, content: bytes) -> None:
        assert len(content) <= MAX_DIGEST
        self.published.append(decode(content, Digest, limit=MAX_DIGEST, what="digest"))

    def hear(self, peer: bytes, stream: str, term_number: int) -> None:
        digest = Digest(0, 1000, (Version(key_of(stream), term_number),))
        self.gossip.digest_changed.notify(peer, encode(digest))

    def has(self, stream: str, term_number: int) -> None:
        task = SimpleNamespace(
            name=stream, boundary=17, runner=SimpleNamespace(load=SimpleNamespace(cores=0.01))
        )
        term = SimpleNamespace(number=term_number)
        wanted = SimpleNamespace(mode=Mode.ACTIVE_STANDBY)
        stored = SimpleNamespace(term=term, availability=wanted)
        self.queries.append(SimpleNamespace(tasks=[task], stored=stored))


@pytest.fixture
async def around(autojump_clock: trio.abc.Clock, nursery: trio.Nursery) -> Around:
    made = Around()
    nursery.start_soon(made.digests.maintain)
    await trio.testing.wait_all_tasks_blocked()
    return made


async def test_a_higher_term_of_a_sibling_is_believed_and_followed_at_once(around: Around) -> None:
    stream = "medusa://mit.edu/out"
    around.directory.believe(Term(stream, 5))
    around.hear(SIBLING, stream, 6)
    assert around.directory.number(stream) == 6
    assert around.read_anew == [stream]
    around.hear(SIBLING, stream, 6)
    assert around.read_anew == [stream]


async def test_a_digest_counts_only_for_the_streams_of_its_sender(around: Around) -> None:
    stream = "medusa://mit.edu/out"
    around.directory.believe(Term(stream, 5))
    around.hear(STRANGER, stream, 6)
    around.gossip.digest_changed.notify(SIBLING, b"rubbish")
    assert around.directory.number(stream) == 5
    assert around.read_anew == []


async def test_a_digest_from_before_the_start_counts() -> None:
    made, stream = Around(), "medusa://mit.edu/out"
    made.directory.believe(Term(stream, 5))
    digest = Digest(2000, 1000, (Version(key_of(stream), 6),))
    made.gossip.digests[SIBLING] = encode(digest)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.digests.maintain)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert made.directory.number(stream) == 6
    assert made.digests.is_busy(SIBLING)


async def test_a_takeover_is_published_at_once_however_many_streams_there_are(
    around: Around, autojump_clock: trio.abc.Clock
) -> None:
    for number in range(100):
        around.has(f"medusa://mit.edu/{number}", 1000 + number)
    await trio.sleep(0.9)
    around.has("medusa://mit.edu/taken", 9999)
    before = len(around.published)
    around.host.appointed.notify()
    await trio.testing.wait_all_tasks_blocked()
    (latest,) = around.published[before:]
    assert latest.versions[0].stream == key_of("medusa://mit.edu/taken")


async def test_all_streams_have_their_turn_and_the_newest_always(
    around: Around, autojump_clock: trio.abc.Clock
) -> None:
    for number in range(100):
        around.has(f"medusa://mit.edu/{number}", 1000 + number)
    await trio.sleep(20.5)
    latest = around.published[-20:]
    assert all(len(digest.versions) == MAX_VERSIONS for digest in latest)
    assert all(digest.versions[0].number == 1099 for digest in latest)
    assert len({version.stream for digest in latest for version in digest.versions}) == 100
    assert {v.number for v in latest[0].versions[:NEWEST]} == set(range(1093, 1100))
