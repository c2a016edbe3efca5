"""Where a secondary has a query's streams from."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from engine.replication.directory import Directory
from engine.replication.mirror_sources import Feed, FromProducers
from engine.replication.replicas.messages import ReadReplica
from engine.replication.term import Term
from engine.streams.messages import Subscribe
from engine.streams.store import StreamStore
from overlay.errors import NotRetainedError
from overlay.identity import parse_peer_id
from overlay.node import Overlay


class FromPrimary:
    """An output, as the primary has it.

    Attributes:
        lost: it has no more what would come next: the copy is to begin anew.
    """

    def __init__(self, overlay: Overlay, query: str, term: Term) -> None:
        self._overlay = overlay
        self._query = query
        self.term = term
        self.lost = False

    @asynccontextmanager
    async def subscribe(self, request: Subscribe) -> AsyncIterator[Feed]:
        connection = await self._overlay.connect(parse_peer_id(self.term.holder))
        read = ReadReplica(self._query, self.term.number, request.stream, request.after)
        async with connection.open("replica.read", read) as duplex:
            yield duplex

    @asynccontextmanager
    async def catch_up(self, request: Subscribe) -> AsyncIterator[Feed]:
        """Nobody else has it."""
        try:
            async with self.subscribe(request) as feed:
                yield feed
        except NotRetainedError:
            self.lost = True
            raise


class InputOfReplica(FromProducers):
    """An input: of a passive standby from the primary, of an active one from its producer, and from
    the primary what the producer let go of. After a takeover always from its producer.

    Attributes:
        carried: whether the primary sends it.
    """

    def __init__(
        self, directory: Directory, store: StreamStore, primary: FromPrimary, *, carried: bool
    ) -> None:
        super().__init__(directory, store)
        self._primary = primary
        self.carried = carried
        self.succeeded = False

    @asynccontextmanager
    async def subscribe(self, request: Subscribe) -> AsyncIterator[Feed]:
        if self.carried and not self.succeeded:
            async with self._primary.subscribe(request) as feed:
                yield feed
        else:
            async with super().subscribe(request) as feed:
                yield feed

    @asynccontextmanager
    async def catch_up(self, request: Subscribe) -> AsyncIterator[Feed]:
        if self.succeeded:
            async with super().catch_up(request) as feed:
                yield feed
        elif self.carried:  # the primary lets its producer keep what it has not given us
            async with super().subscribe(request) as feed:
                yield feed
        else:
            async with self._primary.catch_up(request) as feed:
                yield feed
