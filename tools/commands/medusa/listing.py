"""The data of `medusa stream|query|peer list|show` and `medusa status`: the catalog's entries,
combined with answers of peers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec
import trio

from medusa.engine.api.messages import ObjectDescription
from medusa.engine.objects.definitions import QueryEntry, StreamEntry, base_of, is_panes
from medusa.engine.objects.query import QueryStatus, streams_read, streams_written
from medusa.engine.replication.records.status import PeerStatus, Snapshot
from medusa.engine.streams.messages import StreamStatus
from medusa.engine.tasks.status import TaskStatus
from medusa.overlay.errors import DecodeError, NotFoundError, UnavailableError
from medusa.overlay.identity import Identity
from medusa.overlay.names import ObjectName
from medusa.overlay.troubles import Reason, Trouble
from medusa.tools.client.at_prompt import ask
from medusa.tools.client.calls import ClientCalls
from medusa.tools.client.dialling import given_token
from medusa.tools.client.entries import entry_of
from medusa.tools.commands.medusa.calls import ask_and_warn
from medusa.tools.home.folder import Home

Entry = TypeVar("Entry")
Line = TypeVar("Line")

LOOKUPS_AT_ONCE: Final = 8
"""Lookups at a time. Each is some requests to the DHT: enough to hide their round trips, no
burst."""

SOURCE: Final = "source"

OWN_ROLES: Final = (SOURCE, "derived")
"""The roles of a stream at the peer that makes it; elsewhere it is a copy."""


class Listing(msgspec.Struct, Generic[Line], frozen=True):
    """The objects of the participants that answered.

    Attributes:
        lines: the lines, by name. unreachable: ids of the peers that did not answer: their objects
            may be missing here.
    """

    lines: list[Line]
    unreachable: tuple[str, ...] = ()


class StreamLine(msgspec.Struct, frozen=True):
    """One stream.

    Attributes:
        entry: as published; None if it could not be had: `note` has the reason.
        status: the status at the peer that keeps it, if that peer answered.
        troubles: those of that peer with the stream, if it is of our participant.
    """

    name: str
    owner: str
    entry: StreamEntry | None = None
    status: StreamStatus | None = None
    note: str = ""
    troubles: tuple[Trouble, ...] = ()

    @property
    def made_by(self) -> str:
        """`source`, the query that produces it, or the stream of which it is a view."""
        if self.entry is None:
            return ""
        stream = self.entry.stream
        return f"view of {stream.view.stream}" if stream.view else stream.query or "source"


class QueryLine(msgspec.Struct, frozen=True):
    """One query.

    Attributes:
        entry: as published; None if it could not be had: `note` has the reason.
        tasks: the tasks about which peers answered.
        failing: why it does not run; "": it runs, or no peer answered.
        silent: whether it is to run, and its peer does not answer.
    """

    name: str
    owner: str
    entry: QueryEntry | None = None
    tasks: tuple[TaskStatus, ...] = ()
    failing: str = ""
    silent: bool = False
    note: str = ""

    @property
    def inputs(self) -> list[str]:
        """The streams that the query reads and does not make."""
        if self.entry is None:
            return []
        return sorted(streams_read(self.entry.query) - streams_written(self.entry.query))


def streams(home: str | None) -> Listing[StreamLine]:
    """The streams, without streams of late tuples, of revisions and of panes."""

    async def look(client: ClientCalls) -> Listing[StreamLine]:
        objects = await client.list_objects()
        listed = objects.names.get("stream", ())
        names = [name for name in listed if base_of(name) == name and not is_panes(name)]
        told = _kept((await client.status()).peers)
        lines = await _each(client, names, "stream", lambda name, found: _stream(name, found, told))
        return Listing(lines, objects.unreachable)

    return ask_and_warn(home, look)


def stream(home: str | None, name: str) -> StreamLine:
    """
    Raises:
        NotFoundError: there is no such stream. InvalidInputError: the name is another kind of
            object's.
    """

    def line(found: ObjectDescription, seen: Snapshot) -> StreamLine:
        return _stream(name, found, _kept(seen.peers))

    return _one(home, name, "stream", StreamEntry, line)


def queries(home: str | None) -> Listing[QueryLine]:
    """All queries."""

    async def look(client: ClientCalls) -> Listing[QueryLine]:
        objects = await client.list_objects()
        peers = (await client.status()).peers
        told, away = _run(peers), _away(peers)
        names = objects.names.get("query", ())
        failing = objects.failing
        lines = await _each(
            client, names, "query", lambda name, found: _query(name, found, told, away, failing)
        )
        return Listing(lines, objects.unreachable)

    return ask_and_warn(home, look)


def query(home: str | None, name: str) -> QueryLine:
    """
    Raises:
        NotFoundError: there is no such query. InvalidInputError: the name is another kind of
            object's.
    """

    def line(found: ObjectDescription, seen: Snapshot) -> QueryLine:
        return _query(name, found, _run(seen.peers), _away(seen.peers), {})

    return _one(home, name, "query", QueryEntry, line)


def snapshot(home: str | None) -> Snapshot:
    """The present answers of all peers about themselves."""
    return ask(home, lambda client: client.status())


def snapshot_of_silence(home: str | None, error: UnavailableError) -> Snapshot:
    """A snapshot for a peer that did not answer: its name, if its home is here, and the reason."""
    at, place = time.time(), Home.locate(home)
    participant = peer = ""
    if given_token() is None and place.exists:  # a token may be for a peer elsewhere
        name = Identity.load(place.folder).name
        participant, peer = name.participant, name.peer_id.hex()
    trouble = Trouble(Reason.NO_ANSWER, "this peer", f"does not answer: {error}", since=at)
    told = PeerStatus(participant, peer, "", "unreachable", troubles=(trouble,))
    return Snapshot(at, peer, "", (told,))


def _one(
    home: str | None,
    name: str,
    kind: str,
    entry: type[Entry],
    line: Callable[[ObjectDescription, Snapshot], Line],
) -> Line:
    """The line of an object that must be of that kind."""

    async def look(client: ClientCalls) -> Line:
        found = await client.lookup_object(name, kind)
        if kind not in found.private:
            entry_of(found, kind, entry)
        return line(found, await client.status())

    return ask_and_warn(home, look)


async def _each(
    client: ClientCalls,
    names: Iterable[str],
    kind: str,
    line: Callable[[str, ObjectDescription | str], Line],
) -> list[Line]:
    found: dict[str, Line] = {}
    limit = trio.CapacityLimiter(LOOKUPS_AT_ONCE)

    async def one(name: str) -> None:
        async with limit:
            found[name] = line(name, await _described(client, name, kind))

    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(one, name)
    return [found[name] for name in sorted(found)]


async def _described(client: ClientCalls, name: str, kind: str) -> ObjectDescription | str:
    """The catalog's entry, or the reason that there is none. A listed name may be gone by now."""
    try:
        return await client.lookup_object(name, kind)
    except (NotFoundError, UnavailableError) as error:
        return str(error)


def _entry(
    found: ObjectDescription | str, kind: str, entry: type[Entry], secret: str
) -> Entry | str:
    """The entry, or the reason that there is none. secret: the right that it needs."""
    if isinstance(found, str):
        return found
    if kind in found.private:
        return f"private: {ObjectName.parse(found.name).participant} says who may {secret}"
    try:
        return entry_of(found, kind, entry)
    except (DecodeError, UnavailableError) as error:
        return str(error)


def _stream(name: str, found: ObjectDescription | str, told: dict[str, _Kept]) -> StreamLine:
    owner = ObjectName.parse(name).participant
    entry = _entry(found, "stream", StreamEntry, "read it")
    if isinstance(entry, str):
        return StreamLine(name, owner, note=entry)
    if (kept := told.get(name)) is None:
        return StreamLine(name, owner, entry)
    return StreamLine(name, owner, entry, kept.status, troubles=kept.troubles)


def _query(
    name: str,
    found: ObjectDescription | str,
    told: dict[str, list[TaskStatus]],
    away: set[str],
    failing: dict[str, str],
) -> QueryLine:
    owner = ObjectName.parse(name).participant
    entry = _entry(found, "query", QueryEntry, "know what it does")
    if isinstance(entry, str) or isinstance(found, str):
        return QueryLine(name, owner, note=str(entry))
    tasks = tuple(found.tasks or told.get(name, ()))
    reason = failing.get(name) or next((task.reason for task in tasks if task.reason), "")
    silent = entry.status == QueryStatus.RUNNING and not tasks and entry.peer in away
    return QueryLine(name, owner, entry, tasks, reason, silent)


class _Kept(NamedTuple):
    """The status of a stream at the peer that makes it, and that peer's troubles with it."""

    status: StreamStatus
    troubles: tuple[Trouble, ...]


def _kept(peers: Iterable[PeerStatus]) -> dict[str, _Kept]:
    """Streams by name, from the peers that make them."""
    return {
        stream.name: _Kept(stream, _about(stream, peer))
        for peer in peers
        for stream in peer.streams
        if stream.role in OWN_ROLES and not stream.producer
    }


def _about(stream: StreamStatus, peer: PeerStatus) -> tuple[Trouble, ...]:
    is_source = stream.role == SOURCE
    return tuple(
        each
        for each in peer.troubles
        if each.thing == stream.name or (is_source and each.stops_posts_to(stream.name))
    )


def _away(peers: Iterable[PeerStatus]) -> set[str]:
    """The ids of the peers that do not answer."""
    return {peer.peer for peer in peers if peer.state == "unreachable"}


def _run(peers: Iterable[PeerStatus]) -> dict[str, list[TaskStatus]]:
    """Tasks by query, from the peers that keep the queries."""
    found: dict[str, list[TaskStatus]] = {}
    for peer in peers:
        for task in peer.tasks:
            if not task.owner:
                found.setdefault(task.query, []).append(task)
    return found
