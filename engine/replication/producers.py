"""Who produces a stream: told to the catalog for ours, and found through it for all others."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final, TypeVar

import trio

from dht.catalog import Catalog, Published
from engine.objects.definitions import Producer, StreamEntry
from engine.objects.kinds import PRODUCER, STREAM, lookup
from engine.replication.term import QUERIES
from overlay.connection import Connection
from overlay.errors import (
    ConflictError,
    InvalidInputError,
    MedusaError,
    NotAuthorisedError,
    NotFoundError,
    UnavailableError,
)
from overlay.identity import parse_peer_id
from overlay.names import ObjectName
from overlay.node import Overlay

K = TypeVar("K")
T = TypeVar("T")

LOOK_UP_S: Final = 0.25
"""How long the catalog is waited for where an earlier answer of it is known, seconds: it is slow
when peers die, which is when consumers are in a hurry."""

MAX_REMEMBERED: Final = 10_000
"""Streams whose producers and fence are remembered: some hundred bytes each."""


HANDOVER_S: Final = 1.0
"""How long it is waited for who takes a stream over, where nobody has it, seconds: longer than a
failure detector takes on one machine, and less than a consumer's patience."""

ANNOUNCE_S: Final = 2.0
"""Patience with the nodes that should hear of a change, seconds; those that do not hear it now are
told again."""

KEY_BYTES: Final = 8
"""Of a stream's name: enough that two of one peer do not meet."""


def key_of_stream(name: str) -> bytes:
    """A stream in a digest."""
    return hashlib.sha256(name.encode()).digest()[:KEY_BYTES]


class Producers:
    """Who produces a version of a stream, as the catalog says, and as those say who do."""

    def __init__(self, overlay: Overlay, catalog: Catalog, nursery: trio.Nursery) -> None:
        """nursery: runs questions whose answers come late."""
        self._overlay = overlay
        self._catalog = catalog
        self._fences: dict[str, int] = {}
        self._makers: dict[str, bytes] = {}
        self._names: dict[bytes, str] = {}
        self._news = trio.Event()
        self._nursery = nursery
        self._asked: dict[tuple[str, str], trio.Event] = {}
        self._remembered: dict[str, list[Published[Producer]]] = {}
        self._entries: dict[str, StreamEntry] = {}
        self._preferred: dict[str, bytes] = {}
        self._read_from: dict[str, bytes] = {}

    def fence(self, stream: str) -> int:
        """The highest under which the stream was ever known to be produced; none of a time when our
        clock was ahead."""
        known = self._fences.get(stream, 0)
        return known if self._is_believable(known) else 0

    def known(self, key: bytes) -> str | None:
        """The stream of that key (`key_of_stream`), if its fence was ever asked for here."""
        return self._names.get(key)

    def believe(self, stream: str, fence: int, peer: bytes = b"") -> bool:
        """Somebody of its participant produces the stream under that fence: nobody of a lower one
        is asked any more.

        Args:
            peer: who says so of itself.

        Returns:
            whether that was not known.
        """
        before = self.fence(stream)
        if fence < before or not fence:
            return False
        if not self._is_believable(fence):
            self._note_future(stream, peer)
            return False
        if fence > before:
            self._fences.pop(stream, None)
            self._fences[stream] = fence
            _forget_oldest(self._fences)
            self._makers.pop(stream, None)
            self._note_name(stream)
        elif not peer or self._makers.get(stream) == peer:
            return False
        if peer:
            self._makers[stream] = peer
            _forget_oldest(self._makers)
        self._news.set()
        self._news = trio.Event()
        return True

    def _note_name(self, stream: str) -> None:
        self._names.setdefault(key_of_stream(stream), stream)
        _forget_oldest(self._names)

    async def learn(self, stream: str) -> int:
        """The fence that the catalog knows of.

        Raises:
            UnavailableError: too few peers answer to say so.
        """
        producers = await self._published(stream)
        for published in producers:
            self.believe(stream, published.value.fence)
        # who has stepped down has withdrawn what it said; who succeeds it may be known from that
        if producers or stream not in self._remembered:
            self._remembered.pop(stream, None)
            self._remembered[stream] = producers
            _forget_oldest(self._remembered)
            self._note_name(stream)
        return self.fence(stream)

    async def edition(self, stream: str) -> int:
        """The newest of its query in which anybody produces it.

        Raises:
            UnavailableError: too few peers answer to say so.
        """
        producers = await self._published(stream)
        return max((each.value.edition for each in producers), default=0)

    async def _published(self, stream: str) -> list[Published[Producer]]:
        """Who says in the catalog that it produces the stream, under a fence that can be believed.

        Raises:
            UnavailableError: too few peers answer to say so.
        """
        found = await self._catalog.lookup_all(PRODUCER, ObjectName.parse(stream))
        for each in found:
            if not self._is_believable(each.value.fence):
                self._note_future(stream, each.publisher)
        return [each for each in found if self._is_believable(each.value.fence)]

    def _is_believable(self, fence: int) -> bool:
        return QUERIES.believes(fence, self._overlay.clock())

    def _note_future(self, stream: str, peer: bytes) -> None:
        whose = f"its producer {peer.hex()[:8]}" if peer else "its producer"
        text = f"disbelieves a term of the future of {stream}; check the clock of {whose}"
        self._overlay.events.note("warning", text)

    def versions(self, stream: str) -> list[bytes]:
        """The other peers that produce the stream, or stand by for that, as far as is known: who is
        at work first."""
        known = self._remembered.get(stream, [])
        maker = self._makers.get(stream, b"")
        peers = in_order(known, self.fence(stream), oldest=False, maker=maker)
        return [peer for peer in peers if peer != self._overlay.identity.peer_id]

    def prefer(self, stream: str, peer: bytes) -> None:
        """Ask that producer first from now on."""
        self._preferred.pop(stream, None)
        self._preferred[stream] = peer
        _forget_oldest(self._preferred)

    def read_from(self, stream: str) -> bytes | None:
        """The producer that was last connected to, to read what is new of the stream."""
        return self._read_from.get(stream)

    def learn_soon(self, stream: str) -> None:
        """Ask the catalog; what it says is known when it comes."""
        self._ask_soon(stream, self.learn)

    async def successor(self, stream: str, primary: bytes) -> bytes | None:
        """Who produces the stream under a higher fence than `primary`, a peer, if anybody does.

        Raises:
            MedusaError: the catalog cannot say so.
        """
        producers = await self._published(stream)
        newest = max(producers, key=lambda each: each.value.fence, default=None)
        if newest is None or newest.publisher == primary:
            return None
        return newest.publisher

    async def _look_up(self, stream: str) -> list[Published[Producer]]:
        """Who produces it, as the catalog says now; or said before, where it is slow or away.

        Raises:
            UnavailableError: too few peers answer to say so.
        """
        known = self._remembered.get(stream)
        if stream in self._makers and all(
            each.value.fence < self.fence(stream) for each in known or ()
        ):
            return known or []  # who says so itself knows best, and sooner
        if known:
            await self._wait_for(stream, self.learn)
        else:
            await self.learn(stream)
        return self._remembered.get(stream) or known or []

    async def _wait_for(self, stream: str, ask: Callable[[str], Awaitable[object]]) -> None:
        """Ask the catalog, and wait a little for its answer: it is heeded when it comes, later too,
        and there is one question at a time."""
        question = self._ask_soon(stream, ask)
        with trio.move_on_after(LOOK_UP_S):
            await self._asked[question].wait()

    def _ask_soon(self, stream: str, ask: Callable[[str], Awaitable[object]]) -> tuple[str, str]:
        question = (ask.__name__, stream)
        if question not in self._asked:
            self._asked[question] = trio.Event()
            self._nursery.start_soon(self._ask, question, ask)
        return question

    async def _ask(
        self, question: tuple[str, str], ask: Callable[[str], Awaitable[object]]
    ) -> None:
        try:
            with suppress(MedusaError):  # what it said before counts
                await ask(question[1])
        finally:
            self._asked.pop(question).set()

    async def announce(self, entry: StreamEntry, *, secondary: str = "", fence: int = 0) -> None:
        """Publish a stream of ours, and that this peer produces it."""
        await self.publish_entry(entry)
        await self.name_producer(Producer(entry.stream.name, secondary=secondary, fence=fence))

    def announce_soon(self, entry: StreamEntry) -> None:
        """As `announce`, of a stream without a fence that this peer's files say it has: told to
        others when its turn comes."""
        stream = entry.stream.name
        name = ObjectName.parse(stream)
        self._catalog.publish_soon(STREAM, name, entry)
        self._catalog.publish_soon(PRODUCER, name, Producer(stream))

    async def announce_altered(self, entries: Iterable[StreamEntry]) -> None:
        """Publish what streams of ours are from now on: within moments, or later where that takes
        longer."""
        with trio.move_on_after(ANNOUNCE_S):
            for each in entries:
                await self.publish_entry(each)

    async def publish_entry(self, entry: StreamEntry) -> None:
        """Publish a stream alone."""
        await self._catalog.publish(STREAM, ObjectName.parse(entry.stream.name), entry)

    async def name_producer(self, producer: Producer) -> None:
        """Publish who produces a stream of ours now: this peer, or the one it names."""
        self.believe(producer.stream, producer.fence)
        await self._catalog.publish(PRODUCER, ObjectName.parse(producer.stream), producer)

    async def withdraw(self, stream: str) -> None:
        """Take both back; what is not published here, or no more, or by another peer of ours by
        now, is no error."""
        name = ObjectName.parse(stream)
        with suppress(NotFoundError, UnavailableError, ConflictError):
            await self._catalog.withdraw(STREAM, name)
        await self.withdraw_producer(stream)

    async def leave(self, stream: str) -> None:
        """Another peer of ours produces it from now on, and has published it."""
        self._catalog.leave(STREAM, ObjectName.parse(stream))
        await self.withdraw_producer(stream)

    async def withdraw_producer(self, stream: str) -> None:
        """This peer produces it no more."""
        with suppress(NotFoundError, UnavailableError):
            await self._catalog.withdraw(PRODUCER, ObjectName.parse(stream))

    async def publishers(self, stream: str) -> list[bytes]:
        """The peers whose stream it is: they keep all of it, whoever computes it for them.

        Raises:
            UnavailableError: too few peers answer to say so.
        """
        producers = await self._published(stream)
        return [published.publisher for published in producers]

    async def entry(self, stream: str) -> StreamEntry:
        """A stream as published; or as it was before, where the catalog is slow or away.

        Raises: see `engine.objects.kinds.lookup`.
        """
        if stream in self._entries:
            await self._wait_for(stream, self._learn_entry)
        known = self._entries.get(stream)
        return await self._learn_entry(stream) if known is None else known

    async def published(self, stream: str) -> StreamEntry | None:
        """As the catalog says now; None where it does not."""
        with suppress(MedusaError):
            return await self._learn_entry(stream)
        return None

    async def _learn_entry(self, stream: str) -> StreamEntry:
        try:
            found = (await lookup(self._catalog, STREAM, ObjectName.parse(stream))).value
        except (NotFoundError, NotAuthorisedError):
            self._entries.pop(stream, None)
            raise
        self._entries[stream] = found
        _forget_oldest(self._entries)
        return found

    async def connect(self, stream: str, *, oldest: bool = False, at: bytes = b"") -> Connection:
        """A connection to another peer that produces `stream` now.

        Args:
            oldest: rather to who has most of its past than to who is at work.
            at: to that peer, whatever the catalog says.

        Raises:
            UnavailableError: nobody does now, nor begins to within `HANDOVER_S`, or who does cannot
                be reached.
        """
        if at:
            return await self._overlay.connect(at)
        tried = self._makers.get(stream)
        try:
            return await self._connect(stream, oldest=oldest)
        except UnavailableError:
            if not self.fence(stream):
                raise
            with trio.move_on_after(HANDOVER_S) as waiting:
                while self._makers.get(stream) in {tried, None}:
                    await self._news.wait()
            if waiting.cancelled_caught:
                raise
        return await self._connect(stream, oldest=oldest)

    async def _connect(self, stream: str, *, oldest: bool) -> Connection:
        producers = await self._look_up(stream)
        maker = self._makers.get(stream, b"")
        peers = in_order(producers, self.fence(stream), oldest=oldest, maker=maker)
        own = self._overlay.identity.peer_id
        if own in peers:
            peers.remove(own)
        if not peers:
            # who asks knows that there is such a stream: it is changing hands
            raise UnavailableError(f"nobody produces {stream} at the moment")
        peers.sort(key=self._seems_dead)  # stable; a dead one is still tried, the last
        preferred = b"" if oldest else self._preferred.get(stream, b"")
        peers.sort(key=lambda peer: peer != preferred)
        failed: list[str] = []
        for peer in peers:
            try:
                connection = await self._overlay.connect(peer)
            except UnavailableError as error:
                failed.append(str(error))
            else:
                if not oldest:
                    self._read_from.pop(stream, None)
                    self._read_from[stream] = peer
                    _forget_oldest(self._read_from)
                return connection
        raise UnavailableError(f"no producer of {stream} can be reached: {'; '.join(failed)}")

    def _seems_dead(self, peer: bytes) -> bool:
        return self._overlay.gossip.health(peer).gone


def _forget_oldest(remembered: dict[K, T]) -> None:
    if len(remembered) > MAX_REMEMBERED:
        del remembered[next(iter(remembered))]


def in_order(
    producers: list[Published[Producer]], fence: int, *, oldest: bool, maker: bytes = b""
) -> list[bytes]:
    """Who to ask first: those at work, then those who publish for them and have their past; those
    who take over from them last, who may know already what the catalog does not.

    Args:
        fence: who published under a lower one has been succeeded: its successor alone is asked.
        maker: who says of itself that it produces the stream under that fence, if anybody does.
    """
    peers: list[bytes] = []
    successors: list[bytes] = []
    for published in producers:
        producer = published.value
        current = [published.publisher] if producer.fence >= fence else []
        with suppress(InvalidInputError):  # a stranger's slip costs only the first choice
            if current and producer.worker:
                current.insert(0, parse_peer_id(producer.worker))
        with suppress(InvalidInputError):
            if producer.secondary:
                successors.append(parse_peer_id(producer.secondary))
        peers += current
    if oldest:
        peers.reverse()
    return list(dict.fromkeys([*peers, *filter(None, [maker]), *successors]))
