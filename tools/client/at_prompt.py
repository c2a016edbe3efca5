"""Sends one request of a command to its peer, over a connection of its own, which Ctrl-C ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from msgspec import Struct

from medusa.engine.replication.records.status import Snapshot
from medusa.overlay.errors import NotAuthorisedError
from medusa.overlay.troubles import Trouble
from medusa.tools.client.calls import ClientCalls, open_calls
from medusa.tools.client.dialling import Endpoint, dial_to
from medusa.tools.client.interrupt import run_interruptible
from medusa.tools.home.folder import Home

T = TypeVar("T")
Answer = TypeVar("Answer", bound=Struct)

PATIENCE_S: Final = 10.0
"""Seconds for which a command tries to reach a peer: few, because a person waits at the prompt."""

DAEMON_S: Final = 5.0
"""Seconds for which a command tries to reach the daemon of a home: few, because a healthy daemon on
this machine answers at once."""


def ask(home: str | None, question: Callable[[ClientCalls], Awaitable[T]]) -> T:
    """Ask the peer in `home` one question."""

    async def main() -> T:
        async with open_calls(home, patience_s=PATIENCE_S) as client:
            return await question(client)

    return run_interruptible(main)


def ask_daemon(home: Home, question: Callable[[ClientCalls], Awaitable[T]]) -> T:
    """Ask the daemon of this home one question, with the owner's token, even if the environment has
    a token for other peers."""

    async def main() -> T:
        async with open_calls(None, endpoint=Endpoint.of(home), patience_s=DAEMON_S) as client:
            return await question(client)

    return run_interruptible(main)


def call_daemon(
    home: Home, method: str, request: Struct, response: type[Answer], timeout_s: float
) -> Answer:
    """Make one call to the daemon of this home, with the owner's token."""

    async def main() -> Answer:
        async with dial_to(home.folder, None)() as connection:
            return await connection.call(method, request, response, timeout_s=timeout_s)

    return run_interruptible(main)


async def absences_of(client: ClientCalls) -> tuple[str, ...]:
    """The troubles of that peer that make others look absent; () if the token's scope hides
    them."""
    try:
        return absences(await client.status(federation=False))
    except NotAuthorisedError:
        return ()


def absences(snapshot: Snapshot) -> tuple[str, ...]:
    """The troubles that make others look absent at the peer that made the snapshot."""
    return tuple(each.sentence for each in own_troubles(snapshot) if each.reason.hides_others)


def own_troubles(snapshot: Snapshot) -> tuple[Trouble, ...]:
    """The troubles of the peer that made the snapshot."""
    return next((peer.troubles for peer in snapshot.peers if peer.peer == snapshot.by), ())
