"""Finds the holder of each subject: by terms from the catalog, and from holders by gossip.

`Book` is the sans-IO part. `Announcements` publishes this peer's own terms.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import trio

from medusa.dht.catalog import Catalog, Published
from medusa.engine.objects.catalog_records import PRODUCER, QUERY, STREAM, lookup
from medusa.engine.objects.definitions import Producer, QueryEntry, StreamEntry
from medusa.engine.replication.directory.book import Book, Rendition, remember
from medusa.engine.replication.directory.questions import Questions
from medusa.engine.replication.records.term import HIGHEST_NUMBER, Term
from medusa.overlay.concurrency import Watched
from medusa.overlay.connection import Connection
from medusa.overlay.errors import (
    InvalidInputError,
    MedusaError,
    NotAuthorisedError,
    NotFoundError,
    UnavailableError,
)
from medusa.overlay.identity import parse_optional_peer_id
from medusa.overlay.listeners import Listeners
from medusa.overlay.names import NO_PEER, ObjectName, PeerId
from medusa.overlay.node.node import Overlay

HANDOVER_S: Final = 1.0
"""How long a stream without a producer waits for a takeover, seconds: longer than a failure
detector takes on one machine, and less than a consumer's patience."""


class Directory:
    """Decides which terms to believe, finds holders, and notifies listeners of changes.

    Args:
        nursery: runs questions to the catalog whose answers come late.

    Attributes: changed: called with each new term that its own holder claims.
    """

    def __init__(self, overlay: Overlay, catalog: Catalog, nursery: trio.Nursery) -> None:
        self._overlay = overlay
        self._catalog = catalog
        self._book = Book()
        self._believed: Watched[Term | None] = Watched(None)
        self._questions = Questions(nursery)
        self._entries: dict[str, StreamEntry] = {}
        self._preferred: dict[str, PeerId] = {}
        self._read_from: dict[str, PeerId] = {}
        self.changed: Listeners[[Term]] = Listeners()

    # -- believing ------------------------------------------------------------------------------

    def number(self, stream: str) -> int:
        """The highest term number known of the stream's producers, unless of the future; else 0."""
        return self._book.number(stream, self._overlay.clock())

    def believe(self, term: Term) -> bool:
        """Note that a peer of the stream's participant produces it under that term: peers of
        earlier terms are not asked any more. Args: term: its holder is the peer that claims it; "":
        another peer mentions it.

        Returns:
            whether it is news.
        """
        now = self._overlay.clock()
        if not HIGHEST_NUMBER.believes(term.number, now):
            self._note_future(term)
            return False
        if not self._book.believe(term, now):
            return False
        self._believed.set(term)
        if term.holder:
            self.changed.notify(term)
        return True

    def receive(self, peer: PeerId, key: bytes, number: int) -> None:
        """Note that a peer claims by gossip to produce the stream of that key (`key_of`). It is
        believed only about streams of its own participant."""
        stream, record = self._book.named(key), self._overlay.peers.get(peer)
        if stream is None or record is None:
            return
        if record.participant == ObjectName.parse(stream).participant:
            self.believe(Term(stream, number, peer))

    def _note_future(self, term: Term) -> None:
        whose = f"its producer {term.holder.hex()[:8]}" if term.holder else "its producer"
        text = f"disbelieves a term of the future of {term.subject}; check the clock of {whose}"
        self._overlay.events.note("warning", text)

    # -- asking the catalog -----------------------------------------------------------------------

    async def learn(self, stream: str) -> None:
        """Ask the catalog for a stream's producers, and believe it.

        Raises:
            UnavailableError: too few peers answer.
        """
        renditions = await self._renditions(stream)
        for each in renditions:
            self.believe(Term(stream, each.term.number))
        self._book.learn(stream, renditions)

    def learn_soon(self, stream: str) -> None:
        """`learn`, in the background."""
        self._questions.ask_soon(stream, self.learn)

    async def edition(self, stream: str) -> int:
        """The newest edition of its query in which any peer produces the stream.

        Raises:
            UnavailableError: too few peers answer.
        """
        return max((each.edition for each in await self._renditions(stream)), default=0)

    async def publishers(self, stream: str) -> list[PeerId]:
        """The peers that publish the stream: they keep all of it, whichever peer computes it.

        Raises:
            UnavailableError: too few peers answer.
        """
        return [published.publisher for published in await self._published(stream)]

    async def successor(self, stream: str, before: PeerId) -> PeerId | None:
        """The holder of the latest term, if it is not `before`.

        Raises:
            MedusaError: the catalog does not answer.
        """
        published = await self._published(stream)
        newest = max(published, key=lambda each: each.value.term_number, default=None)
        if newest is None or newest.publisher == before:
            return None
        return newest.publisher

    async def _renditions(self, stream: str) -> list[Rendition]:
        return [_rendition(stream, each) for each in await self._published(stream)]

    async def _published(self, stream: str) -> list[Published[Producer]]:
        """The catalog's entries of the stream's producers, under terms that can be believed.

        Raises:
            UnavailableError: too few peers answer.
        """
        believed: list[Published[Producer]] = []
        for each in await self._catalog.lookup_all(PRODUCER, ObjectName.parse(stream)):
            if HIGHEST_NUMBER.believes(each.value.term_number, self._overlay.clock()):
                believed.append(each)
            else:
                self._note_future(_rendition(stream, each).term)
        return believed

    async def query(self, query: str) -> QueryEntry:
        """A query as published. Raises: see `medusa.engine.objects.catalog_records.lookup`."""
        return (await lookup(self._catalog, QUERY, ObjectName.parse(query))).value

    async def entry(self, stream: str) -> StreamEntry:
        """A stream as published; the last known entry, if the catalog is slow or away.

        Raises: see `medusa.engine.objects.catalog_records.lookup`.
        """
        if stream in self._entries:
            await self._questions.wait_for(stream, self._learn_entry)
        known = self._entries.get(stream)
        return await self._learn_entry(stream) if known is None else known

    async def published(self, stream: str) -> StreamEntry | None:
        """A stream as published now; None: it is not, or the catalog does not answer."""
        with suppress(MedusaError):
            return await self._learn_entry(stream)
        return None

    async def _learn_entry(self, stream: str) -> StreamEntry:
        try:
            found = (await lookup(self._catalog, STREAM, ObjectName.parse(stream))).value
        except (NotFoundError, NotAuthorisedError):
            self._entries.pop(stream, None)
            raise
        remember(self._entries, stream, found)
        return found

    # -- finding ----------------------------------------------------------------------------------

    def versions(self, stream: str) -> list[PeerId]:
        """The other peers that produce the stream, or are its query's secondaries, as far as this
        peer knows; the peers that compute it come first."""
        peers = self._book.in_order(stream, self._overlay.clock())
        return [peer for peer in peers if peer != self._overlay.identity.peer_id]

    def prefer(self, stream: str, peer: PeerId) -> None:
        """Ask this producer of the stream first from now on."""
        remember(self._preferred, stream, peer)

    def read_from(self, stream: str) -> PeerId | None:
        """The producer that a copy of the stream was last read from."""
        return self._read_from.get(stream)

    def reads_from(self, stream: str, peer: PeerId) -> None:
        """Note that a copy of the stream is read from that producer now."""
        remember(self._read_from, stream, peer)

    async def connect(
        self, stream: str, *, oldest: bool = False, at: PeerId = NO_PEER
    ) -> Connection:
        """A connection to another peer that produces `stream` now. Args: oldest: whether to prefer
        the peer with most of its history to the one that computes it. at: the peer to connect to,
        whatever the catalog says.

        Raises:
            UnavailableError: no peer produces it or begins to do so within `HANDOVER_S`; or its
                producer cannot be reached.
        """
        if at:
            return await self._overlay.connect(at)
        tried = self._book.holder(stream)
        try:
            return await self._connect(stream, oldest=oldest)
        except UnavailableError:
            if not self.number(stream):
                raise
            with trio.move_on_after(HANDOVER_S) as waiting:
                await self._believed.until(lambda _: self._book.holder(stream) not in {tried, None})
            if waiting.cancelled_caught:
                raise
        return await self._connect(stream, oldest=oldest)

    async def _connect(self, stream: str, *, oldest: bool) -> Connection:
        await self._look_up(stream)
        peers = self._book.in_order(stream, self._overlay.clock(), oldest=oldest)
        own = self._overlay.identity.peer_id
        if own in peers:
            peers.remove(own)
        if not peers:
            # the caller knows that the stream exists: it is changing hands
            raise UnavailableError(f"nobody produces {stream} at the moment")
        preferred = NO_PEER if oldest else self._preferred.get(stream, NO_PEER)
        health = self._overlay.gossip.health
        # the sort is stable; a dead peer is still tried, as the last
        peers.sort(key=lambda peer: (peer != preferred, health(peer).gone))
        failed: list[str] = []
        for peer in peers:
            try:
                connection = await self._overlay.connect(peer)
            except UnavailableError as error:
                failed.append(str(error))
            else:
                return connection
        raise UnavailableError(f"no producer of {stream} can be reached: {'; '.join(failed)}")

    async def _look_up(self, stream: str) -> None:
        """Ask the catalog for the stream's producers; its last answer counts if it is slow or away.

        Raises:
            UnavailableError: too few peers answer.
        """
        if self._book.is_ahead(stream, self._overlay.clock()):
            return  # the holder's own claim is newer
        if self._book.learned(stream):
            await self._questions.wait_for(stream, self.learn)
        else:
            await self.learn(stream)


def _rendition(stream: str, published: Published[Producer]) -> Rendition:
    producer = published.value
    secondary = _named(producer.secondary)
    members = (secondary,) if secondary else ()
    term = Term(stream, producer.term_number, published.publisher, members)
    return Rendition(term, _named(producer.worker), producer.edition)


def _named(text: str) -> PeerId:
    """The peer with that id. NO_PEER for a text that is no peer id: the text comes from another
    participant's record, and such a mistake costs only the first choice of a producer."""
    with suppress(InvalidInputError):
        return parse_optional_peer_id(text)
    return NO_PEER
