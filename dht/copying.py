"""Bodies of what other peers of our participant publish: kept here too, so that there is another
one to ask when their publisher is away. Of a private object nobody else may give them out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio

from dht.bodies import Bodies
from dht.records import Pointer, Record
from overlay.errors import MedusaError
from overlay.names import ObjectName

MAX_WANTED: Final = 10_000
"""Bodies to be fetched at a time; of more the oldest are left out, and fetched when asked for."""


class Copying:
    """
    Args:
        participant, peer_id: ours.
        sources: who may have the body of a record.
    """

    def __init__(
        self,
        participant: str,
        peer_id: bytes,
        bodies: Bodies,
        sources: Callable[[Record], list[bytes]],
    ) -> None:
        self._participant = participant
        self._peer_id = peer_id
        self._bodies = bodies
        self._sources = sources
        self._wanted: dict[Pointer, Record] = {}
        self._more = trio.Event()

    def heed(self, record: Record) -> None:
        """This peer has come to hold that record."""
        body = record.body
        if not isinstance(body, Pointer) or record.publisher == self._peer_id:
            return
        if ObjectName.parse(record.name).participant == self._participant:
            self._wanted[body] = record
            if len(self._wanted) > MAX_WANTED:
                del self._wanted[next(iter(self._wanted))]
            self._more.set()

    async def run(self) -> None:
        """Runs for ever. A body that cannot be fetched now is fetched when a caller asks for it."""
        while True:
            self._more = trio.Event()
            while self._wanted:
                pointer, record = self._wanted.popitem()
                with suppress(MedusaError):
                    await self._bodies.obtain(pointer, self._sources(record))
            await self._more.wait()
