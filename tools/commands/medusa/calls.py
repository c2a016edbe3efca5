"""The commands that make one call to the peer, and print the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import msgspec
import trio

from medusa.engine.api.messages import Objects
from medusa.engine.language.classes import class_of, weakest_box
from medusa.engine.objects.availability import AvailabilityRequest
from medusa.engine.objects.definitions import QueryEntry, StreamEntry
from medusa.engine.objects.query import QueryStatus
from medusa.engine.objects.view import View
from medusa.engine.replication.moves.messages import MoveRecord
from medusa.engine.tasks.status import TaskStatus
from medusa.overlay.errors import InvalidInputError, MedusaError, NotFoundError
from medusa.tools.client.at_prompt import absences_of, ask
from medusa.tools.client.calls import ClientCalls
from medusa.tools.client.entries import entry_of, hidden
from medusa.tools.commands.command_line import read_text, warn
from medusa.tools.commands.in_text import in_file
from medusa.tools.commands.medusa.travel import history_in_words, view_in_words
from medusa.tools.monitor.availability_words import in_words

T = TypeVar("T")

LOOK_S: Final = 0.5
"""Seconds between checks whether Spark has started, which takes many seconds."""


def ask_and_warn(home: str | None, question: Callable[[ClientCalls], Awaitable[T]]) -> T:
    """Ask the peer in `home` one question, and write to standard error its troubles that make other
    peers look absent: while the others refuse this peer, its lists lack their objects."""

    async def both(client: ClientCalls) -> T:
        answer = await question(client)
        for warning in await absences_of(client):
            warn(warning)
        return answer

    return ask(home, both)


def warn_of_silent(peers: Sequence[str]) -> None:
    """Write to standard error that a list may lack what these peers have, which did not answer."""
    if peers:
        from medusa.tools.monitor.tables import SHORT_ID  # this import loads rich

        ids = ", ".join(peer[:SHORT_ID] for peer in peers)
        warn(f"not all is listed: these peers did not answer: {ids} (medusa peer list)")


def create(
    home: str | None, file: str, availability: AvailabilityRequest | None = None
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Define everything in a document; returns the names, and who may read the streams.

    Args:
        availability: overrides the attributes of its queries; its secondary is the beginning of the
            id of a peer of ours.
    """
    text = read_text(file)

    async def define(client: ClientCalls) -> tuple[tuple[str, ...], dict[str, str]]:
        request = availability
        if request is not None and request.secondary:
            secondary = await _sibling(client, request.secondary)
            request = msgspec.structs.replace(request, secondary=secondary)
        names = await client.create_query_xml(text, request)
        for remark in client.remarks:
            warn(remark)
        return names, client.readers

    try:
        return ask(home, define)
    except InvalidInputError as error:
        raise in_file(error, file, text) from None


def set_query_status(home: str | None, name: str, status: QueryStatus) -> str:
    """Why a started query computes nothing yet, and the mend; or "". Waits until its engine has
    started or failed."""

    async def change(client: ClientCalls) -> str:
        trouble = await client.set_query_status(name, status)
        return trouble or (await _outcome(client, name) if status is QueryStatus.RUNNING else "")

    return ask(home, change)


async def _outcome(client: ClientCalls, query: str) -> str:
    """Why a started query does not run, or "", once Spark has started or failed."""
    waits = False
    while True:
        tasks = (await client.lookup_object(query, "query")).tasks
        if all(task.state != "starting" for task in tasks):
            return next((task.reason for task in tasks if task.reason), "")
        if not waits:
            warn(f"{query} is started, and waits for Spark to start")
            waits = True
        await trio.sleep(LOOK_S)


def lookup(home: str | None, name: str) -> tuple[dict[str, object], tuple[TaskStatus, ...]]:
    """The entries under a name, by kind, and the tasks of a query of ours. For an entry that we may
    not read, or of which it is not known whether it is there, a sentence about it."""
    found = ask(home, lambda client: client.lookup_object(name))
    private = dict.fromkeys(found.private, hidden(found.name))
    entries = {kind: entry_of(found, kind, object) for kind in found.entries}
    return found.unavailable | private | entries, found.tasks


def how_it_goes(tasks: Sequence[TaskStatus]) -> list[str]:
    """Sentences about the present state of a query's tasks."""
    return [
        f"{task.name} is {task.state}{f': {task.reason}' if task.reason else ''}" for task in tasks
    ]


def readers_of(entry: object) -> str:
    """Say who may read the stream of an entry, in words; "" if the entry is malformed, which an
    entry of others may be. Its `readers` are only those of its own definition: the streams that it
    is made from may have fewer."""
    from medusa.engine.objects.readers import (
        readers_in_words,
    )  # imported here: it loads the catalog

    try:
        return readers_in_words(msgspec.convert(entry, StreamEntry).stream)
    except (MedusaError, msgspec.ValidationError, ValueError):
        return ""


def told_of(kind: str, entry: object) -> list[str]:
    """Sentences about an entry in the catalog."""
    try:
        if kind == "view":
            return [view_in_words(msgspec.convert(entry, View))]
        if kind == "stream":
            readers = readers_of(entry)
            return [f"read by {readers}"] if readers else []
        if kind != "query":
            return []
        query = msgspec.convert(entry, QueryEntry).query
        weakest = weakest_box(query)
    except (msgspec.ValidationError, ValueError):  # entries of others may be malformed
        return []
    return [
        f"availability: {in_words(query.availability)}",
        f"class: {class_of(weakest, query.functions)} (box {weakest.name!a})",
        *history_in_words(query),
    ]


def list_objects(home: str | None) -> Objects:
    return ask_and_warn(home, lambda client: client.list_objects())


def move_task(home: str | None, stream: str, to: str) -> MoveRecord:
    """Move the task that makes a stream to a peer of ours whose id begins with `to`, or to the
    asked peer ("home").

    Raises:
        NotFoundError: no such peer. InvalidInputError: several.
    """

    async def move(client: ClientCalls) -> MoveRecord:
        if to == "home":
            return await client.move_task(stream)
        return await client.move_task(stream, await _sibling(client, to))

    return ask(home, move)


async def _sibling(client: ClientCalls, beginning: str) -> str:
    """The one peer of our own whose id begins with that text.

    Raises:
        NotFoundError: no such peer. InvalidInputError: several.
    """
    snapshot = await client.status()
    own = next(peer.participant for peer in snapshot.peers if peer.peer == snapshot.by)
    peers = [
        peer.peer
        for peer in snapshot.peers
        if peer.participant == own and peer.peer.startswith(beginning)
    ]
    if not peers:
        raise NotFoundError(f"no peer of {own} has an id that begins with {beginning[:40]!a}")
    if len(peers) > 1:
        raise InvalidInputError(
            f"{len(peers)} peers of {own} begin with {beginning[:40]!a}: say more"
        )
    return peers[0]
