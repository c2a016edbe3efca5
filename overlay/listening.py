"""Listening on TCP: one socket, limits on who may hold how many connections, faults kept apart."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import trio

from overlay.errors import ConflictError, InvalidInputError, MedusaError, UnavailableError
from overlay.events import Events

Address: TypeAlias = tuple[str, int]

HANDSHAKE_S: Final = 10.0
"""Seconds from the TCP connection to the end of the greeting: some slow round trips. Until then
the other side has proved nothing and holds a task and a socket of ours."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Most connections at once, those in their handshake included.

    Attributes:
        per_address: of one IP address; many peers of a test or behind one NAT share it.
        in_all: each costs a socket, three tasks and some 100 KiB.
    """

    per_address: int = 256
    in_all: int = 1024


async def listen_tcp(address: Address) -> trio.SocketListener:
    """Listen; port 0 takes a free one.

    Raises:
        ConflictError: the port is in use.
        InvalidInputError: the address cannot be listened on.
    """
    host, port = address
    try:
        listeners = await trio.open_tcp_listeners(port, host=host)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConflictError(
                f"{host}:{port} is in use by another process: stop it or listen on another port"
            ) from None
        raise InvalidInputError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    for spare in listeners[1:]:  # a name with several addresses: the first counts
        await spare.aclose()
    return listeners[0]


def bound_address(listener: trio.SocketListener) -> Address:
    """Where it listens."""
    host, port = listener.socket.getsockname()[:2]
    return host, port


class Listening:
    """Hands each accepted connection to a handler and closes it afterwards."""

    def __init__(
        self,
        handler: Callable[[trio.SocketStream], Awaitable[None]],
        limits: ConnectionLimits,
        events: Events,
    ) -> None:
        self._handler = handler
        self._limits = limits
        self._events = events
        self._held: Counter[str] = Counter()

    async def serve(self, listener: trio.SocketListener) -> None:
        """Accept for ever. A handler's MedusaError concerns its own connection: it is noted."""
        async with listener:
            await trio.serve_listeners(self._accept, [listener])

    async def _accept(self, stream: trio.SocketStream) -> None:
        try:
            host = str(stream.socket.getpeername()[0])
        except OSError:  # gone already
            host = "unknown"
        try:
            if self._full(host):
                self._events.note("warning", f"{host}: too many connections; one was refused")
                return
            self._held[host] += 1
            try:
                await self._handler(stream)
            except MedusaError as error:
                self._events.note("warning", f"{host}: connection refused: {error}")
            finally:
                self._held -= Counter({host: 1})
        finally:
            await trio.aclose_forcefully(stream)

    def _full(self, host: str) -> bool:
        limits = self._limits
        return self._held[host] >= limits.per_address or self._held.total() >= limits.in_all


async def dial_tcp(address: Address) -> trio.SocketStream:
    """
    Raises:
        UnavailableError: nobody listens there, or the address cannot be reached.
    """
    host, port = address
    try:
        return await trio.open_tcp_stream(host, port)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UnavailableError(f"{host}:{port} cannot be reached: {reason}") from None
