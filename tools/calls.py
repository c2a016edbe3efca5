"""The one-call commands: ask the peer, give the answer."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from engine.availability_request import AvailabilityRequest
from engine.classes import class_of, weakest_box
from engine.definitions import QueryEntry
from engine.messages import Objects, TaskStatus
from engine.moves.messages import MoveRecord
from engine.query import QueryStatus
from engine.view import View
from overlay.errors import InvalidInputError, NotFoundError
from tools.async_client import AsyncMedusaClient, open_medusa
from tools.availability_words import in_words
from tools.entries import entry_of, hidden
from tools.interrupt import run_interruptible
from tools.travel_words import past_in_words, view_in_words

T = TypeVar("T")

PATIENCE_S: Final = 10.0
"""A person waits at the prompt."""

MAX_DOCUMENT_BYTES: Final = 1020 * 1024
"""What a peer accepts of one document: a request of 1 MiB has some words beside it."""


def ask(home: str | None, question: Callable[[AsyncMedusaClient], Awaitable[T]]) -> T:
    """Ask the peer in `home` one thing."""

    async def main() -> T:
        async with open_medusa(home, patience_s=PATIENCE_S) as client:
            return await question(client)

    return run_interruptible(main)


def create(
    home: str | None, file: str, availability: AvailabilityRequest | None = None
) -> tuple[str, ...]:
    """Define everything in an XML document; gives the names.

    Args:
        availability: overrides the attributes of its queries; its secondary is the beginning of the
            id of a peer of ours.
    """
    text = read_text(file)

    async def define(client: AsyncMedusaClient) -> tuple[str, ...]:
        request = availability
        if request is not None and request.secondary:
            secondary = await _sibling(client, request.secondary)
            request = msgspec.structs.replace(request, secondary=secondary)
        return await client.create_query_xml(text, request)

    try:
        return ask(home, define)
    except InvalidInputError as error:
        raise type(error)(f"{file}: {error}") from None


def set_query_status(home: str | None, name: str, status: str) -> str:
    """Why a query that is to run computes nothing yet, and the mend, or nothing."""
    return ask(home, lambda client: client.set_query_status(name, QueryStatus(status)))


def lookup(home: str | None, name: str) -> tuple[dict[str, object], tuple[TaskStatus, ...]]:
    """The entries under a name, by kind, and the tasks of a query of ours. Of a kind that is not
    for us, what can be said of it."""
    found = ask(home, lambda client: client.lookup_object(name))
    private = dict.fromkeys(found.private, hidden(found.name))
    entries = {kind: entry_of(found, kind, object) for kind in found.entries}
    return private | entries, found.tasks


def how_it_goes(tasks: Sequence[TaskStatus]) -> list[str]:
    """What the tasks of a query do now, in words."""
    return [
        f"{task.name} is {task.state}{f': {task.reason}' if task.reason else ''}" for task in tasks
    ]


def told_of(kind: str, entry: object) -> list[str]:
    """What is worth saying in words of an entry in the catalog."""
    try:
        if kind == "view":
            return [view_in_words(msgspec.convert(entry, View))]
        if kind != "query":
            return []
        query = msgspec.convert(entry, QueryEntry).query
        weakest = weakest_box(query)
    except (msgspec.ValidationError, ValueError):  # what was published is not ours to believe
        return []
    return [
        f"availability: {in_words(query.availability)}",
        f"class: {class_of(weakest)} (box {weakest.name!a})",
        *past_in_words(query),
    ]


def list_objects(home: str | None) -> Objects:
    return ask(home, lambda client: client.list_objects())


def move_task(home: str | None, stream: str, to: str) -> MoveRecord:
    """Let a peer of ours whose id begins with `to`, or the peer asked ("home"), compute a stream.

    Raises:
        NotFoundError: no such peer. InvalidInputError: several.
    """

    async def move(client: AsyncMedusaClient) -> MoveRecord:
        if to == "home":
            return await client.move_task(stream)
        return await client.move_task(stream, await _sibling(client, to))

    return ask(home, move)


async def _sibling(client: AsyncMedusaClient, beginning: str) -> str:
    """The one peer of our own whose id begins so.

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


def read_text(file: str) -> str:
    """A document from a file, or from standard input for `-`.

    Raises:
        NotFoundError: no such file. InvalidInputError: too long, or not UTF-8; a directory.
    """
    try:
        if file == "-":
            data = sys.stdin.buffer.read(MAX_DOCUMENT_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(MAX_DOCUMENT_BYTES + 1)
    except FileNotFoundError:
        raise NotFoundError(f"no such file: {file}") from None
    except IsADirectoryError:
        raise InvalidInputError(f"{file} is a directory: give one of the files in it") from None
    except OSError as error:
        raise InvalidInputError(f"{file}: {error.strerror}") from None
    if len(data) > MAX_DOCUMENT_BYTES:
        raise InvalidInputError(f"{file}: longer than {MAX_DOCUMENT_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{file}: not UTF-8 at byte {error.start}") from None
