"""The catalog: typed objects under names, published by their owners, found by every peer.

* `publish` puts a signed record on the nodes nearest to the name. A larger body is fetched by its
  hash from the publisher, or from any peer that has looked it up before.
* A peer remembers the records that it has seen, so that a partition does not take the catalog away.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random  # noqa: TID251 -- the type only: the generator is passed in
from typing import Final, Generic, TypeVar

import trio

from medusa.dht.bodies import Bodies, Copying
from medusa.dht.config import DhtConfig
from medusa.dht.database import open_database
from medusa.dht.directory import Directory
from medusa.dht.finding import Finder
from medusa.dht.local_peer import (
    BODY,
    NAMES,
    BodyFollows,
    BodyRequest,
    LocalPeer,
    Names,
    NamesRequest,
    local_peer_of,
)
from medusa.dht.node import open_node
from medusa.dht.private import Guards, sealed
from medusa.dht.publishing import Publishing
from medusa.dht.records import MAX_BODY_BYTES, Pointer, Record, Subject, check_kind
from medusa.dht.store import MAX_PER_PARTICIPANT, RecordStore
from medusa.overlay.encoding import decode, encode
from medusa.overlay.errors import (
    DecodeError,
    InvalidInputError,
    MedusaError,
    NotAuthorisedError,
    NotFoundError,
    UnavailableError,
    UntrustedError,
)
from medusa.overlay.files import storing
from medusa.overlay.listeners import Listeners
from medusa.overlay.names import ObjectName, PeerId
from medusa.overlay.node.node import DATA, Overlay
from medusa.overlay.rpc import Caller, Service

__all__ = [
    "Catalog",
    "DhtConfig",
    "Kind",
    "Listing",
    "Published",
    "open_catalog",
    "open_catalog_in",
]

T = TypeVar("T")

DATABASE: Final = "catalog.sqlite"

MAX_NAMES: Final = MAX_PER_PARTICIPANT
"""Names of one participant in a listing: the nodes store no more records of it."""

SOURCES: Final = 6
"""Peers asked for a body, one after the other, before the lookup fails."""


@dataclass(frozen=True)
class Kind(Generic[T]):
    """A kind of object.

    Attributes:
        many: several publishers each have their own object under one name.
        is_private: whether an object of the kind is only for some participants; see
            `medusa.dht.private`.
    """

    label: str
    type: type[T]
    many: bool = False
    is_private: Callable[[T], bool] = lambda _: False

    def __post_init__(self) -> None:
        check_kind(self.label)

    def under(self, name: ObjectName) -> Subject:
        return Subject(self.label, self.many, str(name))


@dataclass(frozen=True)
class Published(Generic[T]):
    """An object of the catalog. publisher: peer id. version: microseconds UTC, greater than any
    before."""

    name: ObjectName
    value: T
    publisher: PeerId
    version: int


@dataclass(frozen=True)
class Listing:
    """The names that peers publish. names: by kind, of all peers that answered. unreachable: peer
    ids (hex) of the others."""

    names: dict[str, tuple[str, ...]]
    unreachable: tuple[str, ...]


class Catalog:
    """The catalog of one peer. Made by `open_catalog`.

    Attributes:
        yielded: called with the kind and name of an object that this peer stops publishing, because
            another peer of our participant published a newer version.
    """

    def __init__(
        self,
        local: LocalPeer,
        directory: Directory,
        store: RecordStore,
        bodies: Bodies,
        config: DhtConfig,
    ) -> None:
        self._local = local
        self._directory = directory
        self._store = store
        self._bodies = bodies
        self._finder = Finder(local, directory, store)
        self._publishing = Publishing(local, directory, store, bodies, self._finder, config=config)
        self.yielded: Listeners[[str, ObjectName]] = self._publishing.yielded
        self.keep_told = self._publishing.keep_told
        self.notify_again = self._publishing.notify_again
        self._guards = Guards(local.participant)
        copying = Copying(local.participant, local.peer_id, bodies, self._sources)
        store.taken.add(copying.note)
        self.keep_copies = copying.run

    def guard(self, kind: Kind[T], may_have: Callable[[T, str], bool]) -> None:
        """Let `may_have` decide which participants may have a private object of that kind. By
        default only our own may."""
        self._guards.set(kind.label, kind.type, may_have)

    # -- publishing ---------------------------------------------------------------------------

    async def publish(self, kind: Kind[T], name: ObjectName, value: T) -> int:
        """Publish this object under a name of our own participant, until it is withdrawn.

        The object is on disk on return. If no other peer can be reached yet, the record is sent
        later.

        Returns:
            number of peers that hold the record now, this one included.

        Raises:
            NotAuthorisedError: the name belongs to another participant.
            InvalidInputError: the object is larger than MAX_BODY_BYTES.
            ConflictError: another peer of ours keeps publishing newer versions.
        """
        self._check_ours(name)
        body = self._encoded(kind, value)
        if len(body) > MAX_BODY_BYTES:
            raise InvalidInputError(f"{name}: {len(body)} bytes, at most {MAX_BODY_BYTES} allowed")
        return await self._publishing.declare(kind.under(name), body)

    def publish_soon(self, kind: Kind[T], name: ObjectName, value: T) -> None:
        """`publish` an object of this peer's own files, with the next scheduled renewals. An
        unchanged object is not published again.

        Raises:
            NotAuthorisedError: the name is another participant's.
        """
        self._check_ours(name)
        self._publishing.declare_soon(kind.under(name), self._encoded(kind, value))

    async def withdraw(self, kind: Kind[T], name: ObjectName) -> None:
        """Withdraw an object that any peer of our participant published.

        Raises:
            NotAuthorisedError: the name belongs to another participant.
            NotFoundError: there is no such object (or, of a `many` kind, it is not ours).
        """
        self._check_ours(name)
        subject = kind.under(name)
        own = self._store.publication(subject)
        if own is None or own.body is None:
            if kind.many:
                raise NotFoundError(f"{subject}: not published by this peer")
            await self._finder.newest(subject)
        await self._publishing.declare(subject, None)

    def leave(self, kind: Kind[T], name: ObjectName) -> None:
        """Stop publishing the object without withdrawing it: another peer of ours publishes it from
        now on."""
        self._publishing.leave(kind.under(name))

    def own(self, kind: Kind[T]) -> list[Published[T]]:
        """The objects of that kind that this peer publishes, except unreadable ones."""
        found: list[Published[T]] = []
        for each in self._store.publications():
            of = each.subject
            if each.body is None or (of.kind, of.many) != (kind.label, kind.many):
                continue
            try:
                value = _decoded(kind, of, each.body)
            except DecodeError as error:
                self._local.events.note(
                    "error", f"cannot read our own {error}; it is to be declared again"
                )
                continue
            name = ObjectName.parse(of.name)
            found.append(Published(name, value, self._local.peer_id, each.version))
        return found

    async def joined(self, count: int = 1) -> None:
        """Wait until that many other peers' catalogs have answered this one."""
        await self._directory.joined(count)

    # -- looking up ---------------------------------------------------------------------------

    async def lookup(self, kind: Kind[T], name: ObjectName) -> Published[T]:
        """The newest object of that kind under that name.

        Raises:
            NotFoundError: the peers that should have it say that there is none.
            NotAuthorisedError: it is not for our participant.
            UnavailableError: too few peers answer, and it is not remembered here; or no reachable
                peer has its body; or it is another participant's, not found, and `is_in_doubt`.
            UntrustedError: all answers had another body than the record's.
            DecodeError: its publisher published something else than this kind.
        """
        return await self._published(kind, await self._finder.newest(kind.under(name)))

    @property
    def is_in_doubt(self) -> bool:
        """Whether this peer may miss objects that there are, because most other clocks contradict
        its own."""
        return self._finder.is_in_doubt

    def absent(self, text: str) -> NotFoundError | UnavailableError:
        """The error for an object that is not found. text: for people."""
        return self._finder.absent(text)

    async def lookup_all(self, kind: Kind[T], name: ObjectName) -> list[Published[T]]:
        """All objects of a `many` kind under that name, at most one for each publisher; or [].

        Raises:
            UnavailableError, UntrustedError, DecodeError: as `lookup`.
        """
        records = await self._finder.records(kind.under(name))
        return [await self._published(kind, r) for r in records if r.body is not None]

    async def names(self) -> Listing:
        """The names that all reachable peers publish. A peer is believed only about the names of
        its own participant."""
        found: dict[str, set[tuple[str, str]]] = {}
        unreachable: list[str] = []

        def add(participant: str, names: dict[str, tuple[str, ...]]) -> None:
            some = found.setdefault(participant, set())
            some.update(islice(_believed(names, participant), MAX_NAMES - len(some)))

        async def ask(peer_id: PeerId) -> None:
            try:
                answer = await self._local.fetch_names(peer_id)
                participant = self._local.publisher_of(peer_id).participant
            except MedusaError:
                unreachable.append(peer_id.hex())
            else:
                add(participant, answer.names)

        add(self._local.participant, self.own_names())
        async with trio.open_nursery() as nursery:
            for peer_id in self._local.contacts.known():
                nursery.start_soon(ask, peer_id)
        names: dict[str, list[str]] = {}
        for kind, name in sorted(set().union(*found.values())):
            names.setdefault(kind, []).append(name)
        return Listing({k: tuple(n) for k, n in names.items()}, tuple(sorted(unreachable)))

    # -- answers to other peers ---------------------------------------------------------------

    def own_names(self) -> dict[str, tuple[str, ...]]:
        """The names that this peer publishes, by kind."""
        names: dict[str, list[str]] = {}
        for publication in self._store.publications():
            if publication.body is not None:
                subject = publication.subject
                names.setdefault(subject.kind, []).append(subject.name)
        return {kind: tuple(sorted(found)) for kind, found in names.items()}

    def body(self, digest: bytes, participant: str) -> bytes:
        """A stored body, for that participant.

        Raises:
            NotFoundError: the body is not here. NotAuthorisedError: the body is not for that
                participant.
        """
        body = self._bodies.get(digest)
        if body is None:
            raise NotFoundError(f"body {digest.hex()} is not here")
        self._guards.check(body, participant)
        return body

    # -----------------------------------------------------------------------------------------

    def _encoded(self, kind: Kind[T], value: T) -> bytes:
        body = encode(value)
        if not kind.is_private(value):
            return body
        return sealed(kind.label, body, self._local.private_key)

    async def _published(self, kind: Kind[T], record: Record) -> Published[T]:
        body = record.body
        if isinstance(body, Pointer):
            try:
                body = await self._bodies.obtain(body, self._sources(record))
            except UntrustedError:
                raise
            except NotAuthorisedError:
                owner = ObjectName.parse(record.name).participant
                raise NotAuthorisedError(
                    f"{self._local.participant} may not read {record.name}; what it is, is for "
                    f"those whom {owner} lets read it"
                ) from None
        value = _decoded(kind, record.subject, body)
        return Published(ObjectName.parse(record.name), value, record.publisher, record.version)

    def _sources(self, record: Record) -> list[PeerId]:
        """Peers to ask for a body: its publisher, then other peers of its owner, then neighbours,
        which may have looked it up."""
        contacts = self._local.contacts
        owner = ObjectName.parse(record.name).participant
        siblings = [p for p in contacts.known() if contacts.participant_of(p) == owner]
        neighbours = self._directory.neighbours()
        for some in (siblings, neighbours):
            self._local.rng.shuffle(some)
        return list(dict.fromkeys([record.publisher, *siblings, *neighbours]))[:SOURCES]

    def _check_ours(self, name: ObjectName) -> None:
        if name.participant != self._local.participant:
            raise NotAuthorisedError(
                f"{name}: only {name.participant} may publish under its name, "
                f"and this peer is of {self._local.participant}"
            )


@asynccontextmanager
async def open_catalog(
    overlay: Overlay,
    home: Path,
    config: DhtConfig,
    *,
    rng: Random | None = None,
) -> AsyncIterator[Catalog]:
    """Open the catalog of a peer whose overlay is open; its file is `home/data/catalog.sqlite`.

    The file is an index of this peer's objects and of received records. If it is lost or damaged,
    it is put aside and made anew; the packages above publish this peer's own objects again
    (`publish_soon`).

    Raises:
        InvalidInputError: that file cannot be opened, or is of another version.
        StorageFullError: the disk is full.
    """
    async with open_catalog_in(local_peer_of(overlay, rng), home, config) as catalog:
        _serve(overlay.service, catalog)
        yield catalog


@asynccontextmanager
async def open_catalog_in(
    local: LocalPeer, home: Path, config: DhtConfig
) -> AsyncIterator[Catalog]:
    """As `open_catalog`, for any local peer."""
    folder = home / DATA
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)

    def damaged(text: str) -> None:
        local.events.note(
            "error", f"lost the catalog: {text}; what others publish is learned again"
        )

    with open_database(folder / DATABASE, damaged) as database:
        store = RecordStore(database, local.federation, local.publisher_of, local.clock)
        bodies = Bodies(database, local.fetch_body, local.events, local.clock)
        async with (
            open_node(
                local.peer_id,
                local.wire,
                local.contacts,
                store,
                config=config,
                events=local.events,
                rng=local.rng,
            ) as directory,
            trio.open_nursery() as nursery,
        ):
            catalog = Catalog(local, directory, store, bodies, config)
            nursery.start_soon(catalog.keep_told)
            nursery.start_soon(catalog.keep_copies)
            try:
                with local.returning(catalog.notify_again):
                    yield catalog
            finally:
                nursery.cancel_scope.cancel()


def _decoded(kind: Kind[T], subject: Subject, body: bytes | None) -> T:
    assert body is not None, "callers have seen to withdrawals"
    return decode(body, kind.type, limit=MAX_BODY_BYTES, what=str(subject))


def _serve(service: Service, catalog: Catalog) -> None:
    async def body(caller: Caller, request: BodyRequest, _body: bytes) -> tuple[BodyFollows, bytes]:
        await trio.lowlevel.checkpoint()
        return BodyFollows(), catalog.body(request.digest, caller.participant)

    async def names(_caller: Caller, _request: NamesRequest, _body: bytes) -> Names:
        await trio.lowlevel.checkpoint()
        return Names(catalog.own_names())

    # every peer that looks an object up asks, because the record does not tell who may have it
    service.unary(BODY, BodyRequest, body, often_refused=True)
    service.unary(NAMES, NamesRequest, names)


def _believed(names: dict[str, tuple[str, ...]], participant: str) -> Iterator[tuple[str, str]]:
    """The (kind, name) pairs that are well formed and belong to that participant."""
    for kind, some in names.items():
        for name in some:
            with suppress(InvalidInputError):
                if ObjectName.parse(name).participant == participant:
                    yield check_kind(kind), name
