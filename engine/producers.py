"""Who produces a stream: told to the catalog for ours, and found through it for all others."""

from __future__ import annotations

from contextlib import suppress

from dht.catalog import Catalog, Published
from engine.definitions import Producer, StreamEntry
from engine.kinds import PRODUCER, STREAM, lookup
from overlay.connection import Connection
from overlay.errors import InvalidInputError, NotFoundError, UnavailableError
from overlay.identity import parse_peer_id
from overlay.names import ObjectName
from overlay.node import Overlay


class Producers:
    """The catalog's view of streams and who produces a version of them."""

    def __init__(self, overlay: Overlay, catalog: Catalog) -> None:
        self._overlay = overlay
        self._catalog = catalog

    async def announce(self, entry: StreamEntry, worker: str = "") -> None:
        """Publish a stream, and that this peer produces it, or `worker` (hex) for it."""
        name = ObjectName.parse(entry.stream.name)
        await self._catalog.publish(STREAM, name, entry)
        await self.name_worker(entry.stream.name, worker)

    async def name_worker(self, stream: str, worker: str) -> None:
        """Publish who computes a stream of ours now: a peer's id (hex), or "" for this one."""
        name = ObjectName.parse(stream)
        await self._catalog.publish(PRODUCER, name, Producer(stream, worker))

    async def withdraw(self, stream: str) -> None:
        """Take both back; what is not published here, or no more, is no error."""
        name = ObjectName.parse(stream)
        with suppress(NotFoundError, UnavailableError):
            await self._catalog.withdraw(STREAM, name)
        with suppress(NotFoundError, UnavailableError):
            await self._catalog.withdraw(PRODUCER, name)

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
            NotFoundError: nobody does.
            UnavailableError: nobody who does can be reached.
        """
        if at:
            return await self._overlay.connect(at)
        producers = await self._catalog.lookup_all(PRODUCER, ObjectName.parse(stream))
        peers = _in_order(producers, oldest=oldest)
        own = self._overlay.identity.peer_id
        if own in peers:
            peers.remove(own)
        if not peers:
            raise NotFoundError(f"nobody produces {stream}")
        failed: list[str] = []
        for peer in peers:
            try:
                return await self._overlay.connect(peer)
            except UnavailableError as error:
                failed.append(str(error))
        raise UnavailableError(f"no producer of {stream} can be reached: {'; '.join(failed)}")


def _in_order(producers: list[Published[Producer]], *, oldest: bool) -> list[bytes]:
    """Who to ask first: those at work, then those who publish for them and have their past."""
    peers: list[bytes] = []
    for published in producers:
        with suppress(InvalidInputError):  # a stranger's slip costs only the first choice
            if published.value.worker:
                peers.append(parse_peer_id(published.value.worker))
        peers.append(published.publisher)
    if oldest:
        peers.reverse()
    return list(dict.fromkeys(peers))
