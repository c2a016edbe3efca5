from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final

import trio
from msgspec.structs import replace

from medusa.dht.catalog import Catalog
from medusa.engine.objects.catalog_records import PRODUCER, QUERY, STREAM
from medusa.engine.objects.definitions import Producer, StreamEntry, base_of
from medusa.engine.replication.directory.directory import Directory
from medusa.engine.replication.records.stored_query import StoredQuery
from medusa.engine.replication.records.term import Term
from medusa.engine.streams.config import Timing
from medusa.overlay.errors import ConflictError, MedusaError, NotFoundError, UnavailableError
from medusa.overlay.events import Events
from medusa.overlay.failpoints import Failpoint, failpoint
from medusa.overlay.names import NO_PEER, ObjectName, PeerId

PATIENCE_S: Final = 2.0
"""The longest wait for nodes that should learn of a change, seconds; others learn of it later."""


class Announcements:
    """Publishes this peer's streams, queries and terms in the catalog.

    Args:
        nursery: runs the publications in the background.
    """

    def __init__(
        self,
        catalog: Catalog,
        directory: Directory,
        events: Events,
        nursery: trio.Nursery,
        timing: Timing,
    ) -> None:
        self._catalog = catalog
        self._directory = directory
        self._events = events
        self._nursery = nursery
        self._timing = timing
        self._publications: dict[str, _Publication] = {}

    # -- streams and their terms ------------------------------------------------------------------

    async def announce(self, entry: StreamEntry, term: Term) -> None:
        """Publish a stream of ours, and this peer as the holder of its term.

        Raises:
            MedusaError: they cannot be published.
        """
        await self.publish_entry(entry)
        await self.publish_term(term)

    def announce_soon(self, entry: StreamEntry) -> None:
        """Publish, in the background, a stream without terms that this peer's files have."""
        stream = entry.stream.name
        name = ObjectName.parse(stream)
        self._catalog.publish_soon(STREAM, name, entry)
        self._catalog.publish_soon(PRODUCER, name, Producer(stream))

    @failpoint(Failpoint.CATALOG_ANNOUNCE_ALTERED)
    async def announce_altered(self, entries: Iterable[StreamEntry]) -> None:
        """Publish new definitions of our streams; later, if it takes longer than `PATIENCE_S`."""
        with trio.move_on_after(PATIENCE_S):
            for each in entries:
                await self.publish_entry(each)

    async def publish_entry(self, entry: StreamEntry) -> None:
        """Publish a stream without its term."""
        await self._catalog.publish(STREAM, ObjectName.parse(entry.stream.name), entry)

    @failpoint(Failpoint.CATALOG_NAME_PRODUCER)
    async def publish_term(self, term: Term, *, worker: PeerId = NO_PEER, edition: int = 0) -> None:
        """Publish this peer as the holder of a stream's term.

        Args:
            worker: computes it for this peer; NO_PEER: this peer does. edition: see `Producer`.
        """
        self._directory.believe(Term(term.subject, term.number))
        producer = Producer(term.subject, worker.hex(), term.secondary.hex(), term.number, edition)
        await self._catalog.publish(PRODUCER, ObjectName.parse(term.subject), producer)

    @failpoint(Failpoint.CATALOG_WITHDRAW)
    async def withdraw(self, stream: str) -> None:
        """Withdraw a stream and its term, unless another peer of our participant holds them by
        now."""
        name = ObjectName.parse(stream)
        with suppress(NotFoundError, UnavailableError, ConflictError):
            await self._catalog.withdraw(STREAM, name)
        await self.withdraw_term(stream)

    async def leave(self, stream: str) -> None:
        """Leave a stream to another peer of ours, which holds its term and has published it."""
        self._catalog.leave(STREAM, ObjectName.parse(stream))
        await self.withdraw_term(stream)

    async def withdraw_term(self, stream: str) -> None:
        """Withdraw this peer as the producer of a stream."""
        with suppress(NotFoundError, UnavailableError):
            await self._catalog.withdraw(PRODUCER, ObjectName.parse(stream))

    async def withdraw_sources(self, peer: str, is_kept: Callable[[str], bool]) -> None:
        """Withdraw the source streams that this peer deleted in the last run: a crash may have
        prevented the withdrawal. Call it once all kept streams are open.

        Args:
            peer: this peer's id, hex. is_kept: whether the stream of that name is here.
        """
        for published in self._catalog.own(STREAM):
            stream, name = published.value.stream, str(published.name)
            of_source = not stream.query and stream.view is None and stream.leader == peer
            if of_source and not is_kept(base_of(name)):
                await self.withdraw(name)

    # -- queries --------------------------------------------------------------------------------

    async def publish_query(self, stored: StoredQuery) -> None:
        """Publish a query without its outputs. Raises: MedusaError: it cannot be published."""
        await self._catalog.publish(QUERY, ObjectName.parse(stored.name), stored.published)

    def leave_query(self, stored: StoredQuery) -> None:
        """Leave a query to another peer, which has published it: our entries are neither repeated
        nor withdrawn."""
        for output in stored.entry.outputs:
            self._catalog.leave(STREAM, ObjectName.parse(output))
        self._catalog.leave(QUERY, ObjectName.parse(stored.name))

    async def withdraw_terms(self, stored: StoredQuery) -> None:
        """Withdraw this peer as the producer of a query's outputs. A failure does no harm: no peer
        believes the old term any more."""
        for output in stored.entry.outputs:
            try:
                await self.withdraw_term(output)
            except MedusaError as error:
                self._events.note("warning", f"could not withdraw {output}: {error}")

    async def withdraw_query(self, stored: StoredQuery) -> None:
        """Withdraw a deleted query and its outputs."""
        for output in stored.entry.outputs:
            await self.withdraw(output)
        await self._withdraw_query(ObjectName.parse(stored.name))

    async def withdraw_all_but(self, known: set[str]) -> None:
        """Withdraw entries that the last run published about queries that are unknown now."""
        for stream in self._catalog.own(STREAM):
            query = "" if stream.value.stream.view else stream.value.stream.query
            if query and query not in known:
                await self.withdraw(str(stream.name))
        for published in self._catalog.own(QUERY):
            if str(published.name) not in known:
                await self._withdraw_query(published.name)

    async def _withdraw_query(self, query: ObjectName) -> None:
        # an entry that another peer of ours publishes belongs to that peer
        with suppress(NotFoundError, UnavailableError, ConflictError):
            await self._catalog.withdraw(QUERY, query)

    # -- in the background ----------------------------------------------------------------------

    def publish_soon(self, name: str, publish: Callable[[], Awaitable[None]]) -> None:
        """Call `publish`, which publishes the object of that name, in the background until it
        succeeds: the catalog is slow when peers die, and callers must not wait for it. Changes that
        come meanwhile are published, too."""
        publication = self._publications.get(name)
        if publication is not None and not publication.scope.cancel_called:
            publication.again = True
        else:
            self._publications[name] = publication = _Publication()
            self._nursery.start_soon(self._publish, name, publish, publication)

    async def _publish(
        self, name: str, publish: Callable[[], Awaitable[None]], publication: _Publication
    ) -> None:
        try:
            with publication.scope:
                while publication.again:
                    publication.again = False
                    try:
                        await publish()
                    except MedusaError as error:
                        self._events.note("warning", f"could not publish {name} yet: {error}")
                        publication.again = True
                        await trio.sleep(self._timing.announce_again_s)
        finally:
            if self._publications.get(name) is publication:
                del self._publications[name]
            publication.over.set()

    def stop_publishing(self, name: str) -> None:
        """Stop publishing the object of that name in the background."""
        if (publication := self._publications.get(name)) is not None:
            publication.scope.cancel()

    async def silence(self, name: str) -> None:
        """Stop publishing the object of that name; on return no publication of it is under way."""
        self.stop_publishing(name)
        if (publication := self._publications.get(name)) is not None:
            await publication.over.wait()


class _Publication:
    """A publication in the background. again: whether it must be repeated, because the object has
    changed."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.over = trio.Event()
        self.again = True


class Announcing:
    """The announcements of one stream at one of its voters, one after the other. A deleted stream
    is withdrawn last of all, and not announced any more.

    Args:
        stream: its name.
        nursery: runs the announcements.
    """

    def __init__(
        self, stream: str, announcements: Announcements, events: Events, nursery: trio.Nursery
    ) -> None:
        self._stream = stream
        self._announcements = announcements
        self._events = events
        self._nursery = nursery
        self._published = False
        self._deleted = False
        self._lock = trio.Lock()

    def announce_soon(self, entries: Iterable[StreamEntry], term: Term) -> None:
        """Announce this peer as the leader of that term."""
        self.stop()
        publish = partial(self._announce, tuple(entries), term)
        self._announcements.publish_soon(self._stream, publish)

    def stop(self) -> None:
        """Stop announcing this peer as the leader."""
        self._announcements.stop_publishing(self._stream)

    async def _announce(self, entries: tuple[StreamEntry, ...], term: Term) -> None:
        for entry in entries:
            async with self._lock:
                if self._deleted:
                    return
                await self._announcements.announce(entry, replace(term, subject=entry.stream.name))
        self._published = True

    async def announce_altered(self, entries: Iterable[StreamEntry]) -> None:
        """Announce new definitions of the stream and of the streams of its late tuples and
        revisions."""
        async with self._lock:
            if not self._deleted:
                await self._announcements.announce_altered(entries)

    def leave_soon(self, streams: Iterable[str], leader: str) -> None:
        """Leave the stream to another leader: withdraw this peer as its producer."""
        if self._published:
            self._published = False
            self._events.note("info", f"follows {leader[:8]}, the leader of {self._stream} now")
            self._nursery.start_soon(self._leave, tuple(streams))

    async def _leave(self, streams: tuple[str, ...]) -> None:
        for stream in streams:
            try:
                await self._announcements.leave(stream)
            except MedusaError as error:
                self._events.note("warning", f"could not leave {stream} to its leader: {error}")

    @failpoint(Failpoint.LEADER_WITHDRAW)
    async def withdraw(self, streams: Iterable[str]) -> None:
        """Withdraw the deleted stream."""
        async with self._lock:
            self._deleted = True
            for stream in streams:
                with suppress(MedusaError):  # a restart withdraws it as well
                    await self._announcements.withdraw(stream)
