"""Each participant tries to read each stream of the others, in every way that exists."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from msgspec import Struct

from medusa.engine.objects.alteration import Alteration
from medusa.engine.objects.definitions import ANY
from medusa.engine.objects.query import Query, Union
from medusa.engine.objects.view import Last, View
from medusa.overlay.errors import NotAuthorisedError
from medusa.overlay.names import ObjectName
from medusa.testnet.shared_intrusion.scripts import SOURCES, expected_readers, readers, stream_of
from medusa.tools.client.async_client import AsyncMedusaClient, open_medusa

READ: Final = "read"
"""The ways that a reader may use; all other ways are for the owner only."""

_VIEW_ROWS: Final = 10


class Attempt(Struct, frozen=True):
    """An attempt of a participant to read, and its outcome.

    Attributes:
        way: read, or another one in `_WAYS`.
        allowed: whether the participant got tuples. right: whether it may get them. said: the
            error, if it was refused.
    """

    who: str
    stream: str
    way: str
    allowed: bool
    right: bool
    said: str = ""


async def attempts(homes: Mapping[str, Path]) -> list[Attempt]:
    """Let each participant ask for every listed stream. It asks for a stream that it may not read
    by a subscription, a query, and a view. It also tries to post to each stream of others that
    takes posts, and to make everybody a reader of each.

    Args:
        homes: the home of a peer of each participant.

    Raises:
        MedusaError: a call failed otherwise than by a refusal.
    """
    async with AsyncExitStack() as stack:
        # with separate clients, because after a refused post a client fails to flush
        clients = {
            who: await stack.enter_async_context(open_medusa(home)) for who, home in homes.items()
        }
        return await _all(clients)


async def _all(clients: Mapping[str, AsyncMedusaClient]) -> list[Attempt]:
    named: set[str] = set()
    for client in clients.values():
        named.update((await client.list_objects()).names.get("stream", ()))
    found: list[Attempt] = []
    for who, client in clients.items():
        for stream in sorted(named | readers().keys()):
            reads = who in expected_readers(stream)
            found.append(await _attempt(who, stream, READ, client, right=reads))
            found += [
                await _attempt(who, stream, way, client, right=False)
                for way in _other_ways(who, stream, reads=reads)
            ]
    return found


def _other_ways(who: str, stream: str, *, reads: bool) -> list[str]:
    if who == ObjectName.parse(stream).participant:
        return []
    ways = [] if reads else ["query", "view"]
    if stream.endswith(SOURCES):
        ways.append("post")
    return ways if stream.endswith("/late") else [*ways, "alter"]


async def _attempt(
    who: str, stream: str, way: str, client: AsyncMedusaClient, *, right: bool
) -> Attempt:
    try:
        await _WAYS[way](client, who, stream)
    except NotAuthorisedError as error:
        return Attempt(who, stream, way, False, right, str(error))
    return Attempt(who, stream, way, True, right)


async def _read(client: AsyncMedusaClient, _who: str, stream: str) -> None:
    await client.receive_events(stream)


async def _query(client: AsyncMedusaClient, who: str, stream: str) -> None:
    box = Union("copy", (stream,), stream_of(who, "taken"))
    await client.create_query(Query(stream_of(who, "taking"), (box,)))


async def _view(client: AsyncMedusaClient, who: str, stream: str) -> None:
    await client.create_view(View(stream_of(who, "seen"), stream, Last(_VIEW_ROWS)))


async def _post(client: AsyncMedusaClient, _who: str, stream: str) -> None:
    poster = await client.poster(stream)
    await poster.post(None, boundary=1)
    await poster.flush()


async def _alter(client: AsyncMedusaClient, _who: str, stream: str) -> None:
    await client.alter_stream(stream, Alteration(readers=(ANY,)))


_WAYS: Final[Mapping[str, Callable[[AsyncMedusaClient, str, str], Awaitable[None]]]] = {
    READ: _read,
    "query": _query,
    "view": _view,
    "post": _post,
    "alter": _alter,
}
