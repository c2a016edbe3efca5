"""Who produces a stream: told to the catalog for ours, and found through it for all others."""

from __future__ import annotations

from contextlib import suppress
from typing import Final, TypeVar

import trio

from dht.catalog import Catalog, Published
from engine.definitions import Producer, StreamEntry
from engine.kinds import PRODUCER, STREAM, lookup
from overlay.connection import Connection
from overlay.errors import InvalidInputError, NotFoundError, UnavailableError
from overlay.gossip.events import Health
from overlay.identity import parse_peer_id
from overlay.names import ObjectName
from overlay.node import Overlay

T = TypeVar("T")


LOOK_UP_S: Final = 0.25
"""How long the catalog is waited for where an earlier answer of it is known, seconds: it is slow
when peers die, which is when consumers are in a hurry."""

MAX_FENCE: Final = 2**62
"""Every fence is milliseconds since the epoch, or little more: beyond it, it would be no number
that a message can hold for long."""

MAX_REMEMBERED: Final = 10_000
"""Streams whose producers and fence are remembered: some hundred bytes each."""


class Producers:
    """The catalog's view of streams and who produces a version of them."""

    def __init__(self, overlay: Overlay, catalog: Catalog) -> None:
        self._overlay = overlay
        self._catalog = catalog
        self._fences: dict[str, int] = {}
        self._remembered: dict[str, list[Published[Producer]]] = {}

    def fence(self, stream: str) -> int:
        """The highest under which the stream was ever known to be produced."""
        return self._fences.get(stream, 0)

    def believe(self, stream: str, fence: int) -> None:
        """Somebody of its participant produces the stream under that fence: nobody of a lower one
        is asked any more."""
        if self.fence(stream) < fence <= MAX_FENCE:
            self._fences.pop(stream, None)
            self._fences[stream] = fence
            _forget_oldest(self._fences)

    async def learn(self, stream: str) -> int:
        """The fence that the catalog knows of.

        Raises:
            UnavailableError: too few peers answer to say so.
        """
        producers = await self._catalog.lookup_all(PRODUCER, ObjectName.parse(stream))
        for published in producers:
            self.believe(stream, published.value.fence)
        # who has stepped down has withdrawn what it said; who succeeds it may be known from that
        if producers or stream not in self._remembered:
            self._remembered.pop(stream, None)
            self._remembered[stream] = producers
            _forget_oldest(self._remembered)
        return self.fence(stream)

    async def successor(self, stream: str, primary: bytes) -> bytes | None:
        """Who produces the stream under a higher fence than `primary`, a peer, if anybody does.

        Raises:
            MedusaError: the catalog cannot say so.
        """
        producers = await self._catalog.lookup_all(PRODUCER, ObjectName.parse(stream))
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
        with trio.move_on_after(LOOK_UP_S if known else float("inf")):
            try:
                await self.learn(stream)
            except UnavailableError:
                if not known:
                    raise
        return self._remembered.get(stream) or known or []

    async def announce(
        self, entry: StreamEntry, worker: str = "", *, secondary: str = "", fence: int = 0
    ) -> None:
        """Publish a stream, and who produces it; see `name_producer`."""
        await self._catalog.publish(STREAM, ObjectName.parse(entry.stream.name), entry)
        await self.name_producer(
            Producer(entry.stream.name, worker=worker, secondary=secondary, fence=fence)
        )

    async def name_producer(self, producer: Producer) -> None:
        """Publish who produces a stream of ours now: this peer, or the one it names."""
        self.believe(producer.stream, producer.fence)
        await self._catalog.publish(PRODUCER, ObjectName.parse(producer.stream), producer)

    async def withdraw(self, stream: str) -> None:
        """Take both back; what is not published here, or no more, is no error."""
        name = ObjectName.parse(stream)
        with suppress(NotFoundError, UnavailableError):
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
        producers = await self._catalog.lookup_all(PRODUCER, ObjectName.parse(stream))
        return [published.publisher for published in producers]

    async def entry(self, stream: str) -> StreamEntry:
        """A stream as published. Raises: see `engine.kinds.lookup`."""
        return (await lookup(self._catalog, STREAM, ObjectName.parse(stream))).value

    async def connect(self, stream: str, *, oldest: bool = False, at: bytes = b"") -> Connection:
        """A connection to another peer that produces `stream` now.

        Args:
            oldest: rather to who has most of its past than to who is at work.
            at: to that peer, whatever the catalog says.

        Raises:
            UnavailableError: nobody does now, or who does cannot be reached.
        """
        if at:
            return await self._overlay.connect(at)
        producers = await self._look_up(stream)
        peers = in_order(producers, self.fence(stream), oldest=oldest)
        own = self._overlay.identity.peer_id
        if own in peers:
            peers.remove(own)
        if not peers:
            # who asks knows that there is such a stream: it is changing hands
            raise UnavailableError(f"nobody produces {stream} at the moment")
        peers.sort(key=self._seems_dead)  # stable; a dead one is still tried, the last
        failed: list[str] = []
        for peer in peers:
            try:
                return await self._overlay.connect(peer)
            except UnavailableError as error:
                failed.append(str(error))
        raise UnavailableError(f"no producer of {stream} can be reached: {'; '.join(failed)}")

    def _seems_dead(self, peer: bytes) -> bool:
        return self._overlay.gossip.health(peer) in {Health.DEAD, Health.LEFT}


def _forget_oldest(remembered: dict[str, T]) -> None:
    if len(remembered) > MAX_REMEMBERED:
        del remembered[next(iter(remembered))]


def in_order(producers: list[Published[Producer]], fence: int, *, oldest: bool) -> list[bytes]:
    """Who to ask first: those at work, then those who publish for them and have their past; those
    who take over from them last, who may know already what the catalog does not.

    Args:
        fence: who published under a lower one has been succeeded: its successor alone is asked.
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
    return list(dict.fromkeys([*peers, *successors]))
