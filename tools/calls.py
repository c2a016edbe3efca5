"""The one-call commands: ask the peer, give the answer."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import trio

from engine.messages import Objects
from engine.moves.messages import MoveRecord
from engine.query import QueryStatus
from overlay.errors import InvalidInputError, NotFoundError
from tools.async_client import AsyncMedusaClient, open_medusa

T = TypeVar("T")

PATIENCE_S: Final = 10.0
"""A person waits at the prompt."""

MAX_DOCUMENT_BYTES: Final = 1024 * 1024
"""What a peer accepts of one document."""


def ask(home: str | None, question: Callable[[AsyncMedusaClient], Awaitable[T]]) -> T:
    """Ask the peer in `home` one thing."""

    async def main() -> T:
        async with open_medusa(home, patience_s=PATIENCE_S) as client:
            return await question(client)

    return trio.run(main)


def create(home: str | None, file: str) -> tuple[str, ...]:
    """Define everything in an XML document; gives the names."""
    text = read_text(file)
    try:
        return ask(home, lambda client: client.create_query_xml(text))
    except InvalidInputError as error:
        raise type(error)(f"{file}: {error}") from None


def set_query_status(home: str | None, name: str, status: str) -> None:
    ask(home, lambda client: client.set_query_status(name, QueryStatus(status)))


def lookup(home: str | None, name: str) -> dict[str, object]:
    """The entries under a name, by kind."""
    found = ask(home, lambda client: client.lookup_object(name))
    return {kind: msgspec.json.decode(entry) for kind, entry in found.entries.items()}


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
        snapshot = await client.status()
        own = next(peer.participant for peer in snapshot.peers if peer.peer == snapshot.by)
        peers = [p.peer for p in snapshot.peers if p.participant == own and p.peer.startswith(to)]
        if not peers:
            raise NotFoundError(f"no peer of {own} has an id that begins with {to[:40]!a}")
        if len(peers) > 1:
            raise InvalidInputError(f"{len(peers)} peers of {own} begin with {to[:40]!a}: say more")
        return await client.move_task(stream, peers[0])

    return ask(home, move)


def read_text(file: str) -> str:
    """A document from a file, or from standard input for `-`.

    Raises:
        NotFoundError: no such file. InvalidInputError: too long, or not UTF-8.
    """
    try:
        if file == "-":
            data = sys.stdin.buffer.read(MAX_DOCUMENT_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(MAX_DOCUMENT_BYTES + 1)
    except FileNotFoundError:
        raise NotFoundError(f"no such file: {file}") from None
    if len(data) > MAX_DOCUMENT_BYTES:
        raise InvalidInputError(f"{file}: longer than {MAX_DOCUMENT_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{file}: not UTF-8 at byte {error.start}") from None
