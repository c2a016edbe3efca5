"""What `medusa stream|query|peer list|show` and `medusa status` ask: the catalog's entries, beside
what peers say of them now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

import msgspec
import trio

from engine.definitions import QueryEntry, StreamEntry, base_of
from engine.messages import (
    ObjectDescription,
    PeerStatus,
    Snapshot,
    StreamStatus,
    TaskStatus,
)
from engine.query import streams_read, streams_written
from overlay.errors import DecodeError, NotFoundError, UnavailableError
from overlay.names import ObjectName
from tools.async_client import AsyncMedusaClient
from tools.calls import ask
from tools.entries import entry_of

Line = TypeVar("Line")

LOOKUPS_AT_ONCE: Final = 8
"""Each is some questions to the DHT: enough to hide their round trips, no burst."""

OWN_ROLES: Final = ("source", "derived")
"""Of a stream where it is made; elsewhere it is a mirror."""


class StreamLine(msgspec.Struct, frozen=True):
    """One stream.

    Attributes:
        entry: as published; None where that could not be had, `note` says why.
        status: of the peer that keeps it, where it told.
    """

    name: str
    owner: str
    entry: StreamEntry | None = None
    status: StreamStatus | None = None
    note: str = ""

    @property
    def made_by(self) -> str:
        """`source`, the query that produces it, or what it is a view of."""
        if self.entry is None:
            return ""
        stream = self.entry.stream
        return f"view of {stream.view.stream}" if stream.view else stream.query or "source"


class QueryLine(msgspec.Struct, frozen=True):
    """One query.

    Attributes:
        entry: as published; None where that could not be had, `note` says why.
        tasks: those that their peers told of.
        failing: why it does not go on; "": it does, or nobody told.
    """

    name: str
    owner: str
    entry: QueryEntry | None = None
    tasks: tuple[TaskStatus, ...] = ()
    failing: str = ""
    note: str = ""

    @property
    def inputs(self) -> list[str]:
        """The streams that it reads and does not make."""
        if self.entry is None:
            return []
        return sorted(streams_read(self.entry.query) - streams_written(self.entry.query))


def streams(home: str | None) -> list[StreamLine]:
    """The streams of the participants that answer, by name, without those of late tuples and of
    revisions beside them."""

    async def look(client: AsyncMedusaClient) -> list[StreamLine]:
        listed = (await client.list_objects()).names.get("stream", ())
        names = [name for name in listed if base_of(name) == name]
        told = _kept((await client.status()).peers)
        return await _each(names, lambda name: _stream(client, name, told))

    return ask(home, look)


def stream(home: str | None, name: str) -> StreamLine:
    """
    Raises:
        NotFoundError: there is no such stream. InvalidInputError: it is something else.
    """

    async def look(client: AsyncMedusaClient) -> StreamLine:
        found = await client.lookup_object(name)
        if "stream" not in found.private:
            entry_of(found, "stream", StreamEntry)
        return await _stream(client, name, _kept((await client.status()).peers))

    return ask(home, look)


def queries(home: str | None) -> list[QueryLine]:
    """All queries of the participants that answer, by name."""

    async def look(client: AsyncMedusaClient) -> list[QueryLine]:
        objects = await client.list_objects()
        told = _run((await client.status()).peers)
        names = objects.names.get("query", ())
        return await _each(names, lambda name: _query(client, name, told, objects.failing))

    return ask(home, look)


def query(home: str | None, name: str) -> QueryLine:
    """
    Raises:
        NotFoundError: there is no such query. InvalidInputError: it is something else.
    """

    async def look(client: AsyncMedusaClient) -> QueryLine:
        found = await client.lookup_object(name)
        if "query" not in found.private:
            entry_of(found, "query", QueryEntry)
        told = _run((await client.status()).peers)
        return await _query(client, name, told, {})

    return ask(home, look)


def snapshot(home: str | None) -> Snapshot:
    """What all peers say of themselves."""
    return ask(home, lambda client: client.status())


def failing(tasks: Iterable[TaskStatus]) -> list[TaskStatus]:
    """Those that do not go on, with a reason."""
    return [task for task in tasks if task.reason]


def parameters(box: msgspec.Struct) -> dict[str, Any]:
    """What a box does, without its name and its streams."""
    told = msgspec.to_builtins(box)
    for known in ("name", "type", "input", "inputs", "output", "outputs"):
        told.pop(known, None)
    return {name: value for name, value in told.items() if value}


async def _each(names: Iterable[str], look: Callable[[str], Awaitable[Line]]) -> list[Line]:
    found: dict[str, Line] = {}
    limit = trio.CapacityLimiter(LOOKUPS_AT_ONCE)

    async def one(name: str) -> None:
        async with limit:
            found[name] = await look(name)

    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(one, name)
    return [found[name] for name in sorted(found)]


async def _described(client: AsyncMedusaClient, name: str) -> ObjectDescription | str:
    """What the catalog has, or why it cannot be told. A name in a list may be gone by now."""
    try:
        return await client.lookup_object(name)
    except (NotFoundError, UnavailableError) as error:
        return str(error)


async def _stream(
    client: AsyncMedusaClient, name: str, told: dict[str, StreamStatus]
) -> StreamLine:
    owner, found = ObjectName.parse(name).participant, await _described(client, name)
    if isinstance(found, str):
        return StreamLine(name, owner, note=found)
    if "stream" in found.private:
        return StreamLine(name, owner, note=f"private: {owner} says who may read it")
    try:
        entry = entry_of(found, "stream", StreamEntry)
    except DecodeError as error:
        return StreamLine(name, owner, note=str(error))
    return StreamLine(name, owner, entry, told.get(name))


async def _query(
    client: AsyncMedusaClient,
    name: str,
    told: dict[str, list[TaskStatus]],
    failing: dict[str, str],
) -> QueryLine:
    owner, found = ObjectName.parse(name).participant, await _described(client, name)
    if isinstance(found, str):
        return QueryLine(name, owner, note=found)
    if "query" in found.private:
        return QueryLine(name, owner, note=f"private: {owner} says who may know what it does")
    try:
        entry = entry_of(found, "query", QueryEntry)
    except DecodeError as error:
        return QueryLine(name, owner, note=str(error))
    tasks = tuple(found.tasks or told.get(name, ()))
    reason = failing.get(name) or next((task.reason for task in tasks if task.reason), "")
    return QueryLine(name, owner, entry, tasks, reason)


def _kept(peers: Iterable[PeerStatus]) -> dict[str, StreamStatus]:
    """Streams by name, as the peer that makes them tells of them."""
    return {
        stream.name: stream
        for peer in peers
        for stream in peer.streams
        if stream.role in OWN_ROLES and not stream.producer
    }


def _run(peers: Iterable[PeerStatus]) -> dict[str, list[TaskStatus]]:
    """Tasks by query, as the peer that keeps the query tells of them."""
    found: dict[str, list[TaskStatus]] = {}
    for peer in peers:
        for task in peer.tasks:
            if not task.owner:
                found.setdefault(task.query, []).append(task)
    return found
