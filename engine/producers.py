"""Who produces a stream: told to the catalog for ours, and found through it for all others."""

from __future__ import annotations

from contextlib import suppress

from dht.catalog import Catalog
from engine.definitions import Producer, StreamEntry
from engine.kinds import PRODUCER, STREAM
from overlay.connection import Connection
from overlay.errors import NotFoundError, UnavailableError
from overlay.names import ObjectName
from overlay.node import Overlay


class Producers:
    """The catalog's view of streams and who produces a version of them."""

    def __init__(self, overlay: Overlay, catalog: Catalog) -> None:
        self._overlay = overlay
        self._catalog = catalog

    async def announce(self, entry: StreamEntry) -> None:
        """Publish a stream, and that this peer produces it."""
        name = ObjectName.parse(entry.stream.name)
        await self._catalog.publish(STREAM, name, entry)
        await self._catalog.publish(PRODUCER, name, Producer(str(name)))

    async def withdraw(self, stream: str) -> None:
        """Take both back; what is not published here, or no more, is no error."""
        name = ObjectName.parse(stream)
        with suppress(NotFoundError, UnavailableError):
            await self._catalog.withdraw(STREAM, name)
        with suppress(NotFoundError, UnavailableError):
            await self._catalog.withdraw(PRODUCER, name)

    async def connect(self, stream: str) -> Connection:
        """A connection to another peer that produces `stream` now.

        Raises:
            NotFoundError: nobody does.
            UnavailableError: nobody who does can be reached.
        """
        producers = await self._catalog.lookup_all(PRODUCER, ObjectName.parse(stream))
        own = self._overlay.identity.peer_id
        peers = [producer.publisher for producer in producers if producer.publisher != own]
        if not peers:
            raise NotFoundError(f"nobody produces {stream}")
        failed: list[str] = []
        for peer in peers:
            try:
                return await self._overlay.connect(peer)
            except UnavailableError as error:
                failed.append(str(error))
        raise UnavailableError(f"no producer of {stream} can be reached: {'; '.join(failed)}")
