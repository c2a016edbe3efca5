"""Deletes source streams and schemas, and lets streams go on that have ended: of one peer's.

What is deleted is gone once its folder is renamed, its late tuples and revisions with it; the
catalog follows, after a crash when the peer starts again. Before that nothing has changed. Of
streams with replicas see `engine.replication.homes.changing`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import trio

from dht.catalog import Catalog
from engine.objects.definitions import base_of
from engine.objects.files import SchemaFiles
from engine.objects.kinds import SCHEMA, STREAM, find
from engine.objects.schema import END
from engine.replication.announcements import Announcements
from engine.replication.following.book import Followers
from engine.replication.homes import changing
from engine.replication.homes.homes import Homes
from engine.replication.homes.keeper import Keeper
from engine.replication.homes.logs import HOLDER
from engine.streams.kept import KeptStream, Role, entries_of
from engine.streams.store import StreamStore
from engine.streams.subscriptions import Subscriptions
from overlay.concurrency import Locks
from overlay.errors import (
    ConflictError,
    MedusaError,
    NotFoundError,
    StorageError,
    UnavailableError,
)
from overlay.names import ObjectName
from overlay.node import Overlay


class Deleting:
    """Of one peer.

    Args:
        locks: one a stream: it is altered, deleted and reopened one after the other.
    """

    def __init__(
        self,
        *,
        overlay: Overlay,
        catalog: Catalog,
        store: StreamStore,
        homes: Homes,
        followers: Followers,
        announcements: Announcements,
        subscriptions: Subscriptions,
        schemas: SchemaFiles,
        locks: Locks,
    ) -> None:
        self._overlay = overlay
        self._catalog = catalog
        self._store = store
        self._homes = homes
        self._followers = followers
        self._announcements = announcements
        self._subscriptions = subscriptions
        self._schemas = schemas
        self._changing = locks

    async def delete_stream(self, stream: str) -> None:
        """Leave nothing of a source stream whose home this peer is.

        Raises:
            NotFoundError: this peer is not its home.
            ConflictError: it is read; says by whom.
            StorageError: the disk does not let it go.
            UnavailableError: no majority of its electors answers.
        """
        async with self._changing.of(stream):
            keeper = self._homes.get(stream)
            if keeper is not None:
                if not keeper.is_home:
                    raise UnavailableError(f"{stream}: this peer is not its home now; ask again")
                kept = await keeper.open()
                self._check_unread(kept)
                self._check_known_readers(kept)
                await changing.delete(keeper)
                return
            kept = self._source(stream)
            self._check_unread(kept)
            assert kept.home is not None, "a source"
            await kept.home.retire()
            with trio.CancelScope(shield=True):  # half a stream is no stream
                await self._store.drop(kept.key)
                if self._store.folder_of(kept.key).exists():
                    raise StorageError(f"{stream}: its files stay, see the events: start the peer")
                await self._withdraw(each.stream.name for each in entries_of(kept.entry))
            self._overlay.events.note("info", f"deleted {stream}")

    async def reopen_stream(self, stream: str) -> bool:
        """Let a source stream whose home this peer is go on although it has ended. Gives whether it
        had: one that has not is as it should be.

        Raises:
            NotFoundError: this peer is not its home.
            ConflictError: an answer depends on its end; says whose.
            StorageError: the disk does not take it; it has ended still.
            UnavailableError: its end is not in its log yet; or of its electors one does not answer,
                which may have told somebody of its end.
        """
        async with self._changing.of(stream):
            keeper = self._homes.get(stream)
            if keeper is not None:
                return await self._reopen_replicated(keeper)
            kept = self._source(stream)
            assert kept.home is not None, "a source"
            async with self._store.telling_end(kept):
                if kept.home.boundary < END:
                    return False
                self._check_end_unread(kept)
                await kept.home.reopen()
                await trio.to_thread.run_sync(self._store.forget_end, kept)
            self._overlay.events.note("info", f"reopened {stream}")
            return True

    async def _reopen_replicated(self, keeper: Keeper) -> bool:
        if not keeper.is_home:
            raise UnavailableError(f"{keeper.name}: this peer is not its home now; ask again")
        await keeper.open()
        if keeper.logs.home.boundary < END:
            return False
        refused = await changing.reopen(keeper)
        if refused is None:
            self._overlay.events.note("info", f"reopened {keeper.name}")
            return True
        if refused.told:
            raise _told_of_end(keeper.name, refused.told)
        silent = changing.peers_in_words(refused.silent)
        raise UnavailableError(
            f"{keeper.name} has ended still: each of its electors may have told somebody of that, "
            f"and {silent} did not answer: start what is down, and ask again"
        )

    async def delete_schema(self, schema: str) -> None:
        """Leave nothing of a schema that was created at this peer.

        Raises:
            NotFoundError: there is none. ConflictError: a stream of ours has it; says which.
            UnavailableError: a peer of ours that may keep such a stream cannot be asked.
        """
        name = ObjectName.parse(schema)
        async with self._changing.of(schema):
            if users := await self._streams_of(schema):
                raise ConflictError(
                    f"{schema} is the schema of {in_words(users)}: delete that first"
                )
            await trio.to_thread.run_sync(self._schemas.remove, schema)
            await self._catalog.withdraw(SCHEMA, name)
            self._overlay.events.note("info", f"deleted {schema}")

    async def tidy(self) -> None:
        """Take back what the catalog says of source streams that a crash came to while they were
        deleted. Comes once all that are kept are open."""
        here = self._overlay.identity.peer_id.hex()
        for published in self._catalog.own(STREAM):
            stream, name = published.value.stream, str(published.name)
            base = base_of(name)
            kept = self._store.get(base) is not None or self._homes.get(base) is not None
            if not stream.query and stream.view is None and stream.home == here and not kept:
                await self._announcements.withdraw(name)

    # -----------------------------------------------------------------------------------------

    def _source(self, stream: str) -> KeptStream:
        kept = self._store.get(stream)
        if kept is None or kept.role is not Role.SOURCE:
            raise NotFoundError(f"{stream}: this peer is not its home")
        return kept

    def _check_unread(self, source: KeptStream) -> None:
        for kept in (source, *self._store.beside(source)):
            readers = {name: self._end_of(name) for name in self._followers.readers(kept.name)}
            readers |= self._subscriptions.readers(kept)
            if readers:
                told = in_words(f"{name} ({end})" for name, end in readers.items())
                raise ConflictError(f"{kept.name} is read, end that first: {told}")

    @staticmethod
    def _end_of(user: str) -> str:
        """How what reads a stream here, other than a subscriber, is ended."""
        kind, _, view = user.partition(" ")
        if kind == "view":
            return f"`medusa view delete {view}`"
        return "computed here for another peer" if view else f"`medusa query delete {user}`"

    def _check_known_readers(self, source: KeptStream) -> None:
        """A home that has taken over does not know the readers of the last one yet."""
        for kept in (source, *self._store.beside(source)):
            if HOLDER in kept.log.retention.consumers:
                raise ConflictError(
                    f"{kept.name} has changed its home: readers of the last one may come back for "
                    f"up to {self._store.lease_s:g} s, try again then"
                )

    def _check_end_unread(self, source: KeptStream) -> None:
        readers = set(self._store.end_readers(source))
        for kept in (source, *self._store.beside(source)):
            readers |= self._followers.readers(kept.name)
        if readers:
            raise _told_of_end(source.name, readers)

    async def _withdraw(self, streams: Iterable[str]) -> None:
        for stream in streams:
            with suppress(MedusaError):  # a restart takes it back as well: `tidy`
                await self._announcements.withdraw(stream)

    async def _streams_of(self, schema: str) -> list[str]:
        own = self._overlay.identity.participant
        listing = await self._catalog.names()
        siblings = {peer.hex() for peer in self._overlay.living_siblings()}
        if silent := sorted(siblings.intersection(listing.unreachable)):
            raise UnavailableError(
                f"{schema}: peer {silent[0][:8]} cannot be asked whether a stream of its has it"
            )
        found: list[str] = []
        for text in listing.names.get(STREAM.label, ()):
            name = ObjectName.parse(text)
            if name.participant == own and base_of(text) == text:
                entry = await find(self._catalog, STREAM, name)
                if entry is not None and entry.value.stream.schema == schema:
                    found.append(text)
        return found


def _told_of_end(stream: str, readers: Iterable[str]) -> ConflictError:
    return ConflictError(
        f"{stream} has ended, and that was told {in_words(readers)}, whose answers may depend on "
        "it: post to a stream of another name"
    )


SHOWN = 5
"""Readers that are named in one error."""


def in_words(names: Iterable[str]) -> str:
    """Some of them, for people."""
    found = sorted(names)
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more
