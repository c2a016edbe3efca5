"""A TCP listener with limits on connections: one socket, and a fault ends only its own
connection."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import trio

from medusa.overlay.addresses import Address, cannot_listen, shown
from medusa.overlay.errors import BusyError, MedusaError, UnavailableError
from medusa.overlay.events import Events
from medusa.overlay.places import Places

HANDSHAKE_S: Final = 10.0
"""Seconds from the TCP connection to the end of the greeting: some slow round trips. Until then the
other side has proved nothing and holds a task and a socket of this peer."""

Admit: TypeAlias = Callable[[str], None]
"""Called with the holder of a connection, once the remote has proved who it is.

Raises:
    BusyError: the holder has as many connections as it may.
"""

Handler: TypeAlias = Callable[[trio.SocketStream, Admit], Awaitable[None]]
"""Serves a connection to its end."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Most connections at once.

    Attributes:
        handshakes: connections of remotes that have not proved who they are.
        per_network: of these, from one IPv4 address or one IPv6 /64 (one machine can use a whole
            /64); many peers of a test or behind one NAT share it. A remote that has proved who it
            is counts for its holder instead: clients of one machine do not take each other's
            places.
        per_holder: of all peers of one participant, which can create any number, or of all clients
            with one token; never more than are free (see `Places`).
        in_all: each costs a socket, three tasks and some 100 KiB.
    """

    handshakes: int = 256
    per_network: int = 128
    per_holder: int = 256
    in_all: int = 768


async def listen_tcp(address: Address) -> trio.SocketListener:
    """Listen on TCP; port 0 takes a free one.

    Raises:
        ConflictError: the port is in use.
        InvalidInputError: the address cannot be listened on.
    """
    host, port = address
    try:
        listeners = await trio.open_tcp_listeners(port, host=host)
    except OSError as error:
        raise cannot_listen(address, error) from None
    for spare in listeners[1:]:  # if a name has several addresses, only the first is used
        await spare.aclose()
    return listeners[0]


def bound_address(listener: trio.SocketListener) -> Address:
    """Return the address of the listener."""
    host, port = listener.socket.getsockname()[:2]
    return host, port


class Listening:
    """Passes each accepted connection to a handler and closes it afterwards.

    A connection that has not proved itself within `handshake_s` is closed. If there is no more
    room, the oldest unproved one is closed: a remote that proves itself quickly gets in, however
    many others do not even try. Then it counts for its holder, who shares the places with others.
    """

    def __init__(
        self, handler: Handler, limits: ConnectionLimits, events: Events, handshake_s: float
    ) -> None:
        self._handler = handler
        self._limits = limits
        self._events = events
        self._handshake_s = handshake_s
        self._places = Places(limits.in_all, limits.per_holder)
        self._unproven: dict[trio.CancelScope, str] = {}

    async def serve(self, listener: trio.SocketListener) -> None:
        """Accept for ever. An error of a handler ends only its own connection, and is noted."""
        async with listener:
            await trio.serve_listeners(self._accept, [listener])

    async def _accept(self, stream: trio.SocketStream) -> None:
        try:
            network = _network(stream)
            self._make_room(network)
            try:
                await self._handle(stream, network)
            except MedusaError as error:
                self._events.note("warning", f"refused a connection from {network}: {error}")
            except Exception as error:  # noqa: BLE001 - only that connection ends
                self._events.fault(f"failed to serve a connection from {network}", error)
        finally:
            await trio.aclose_forcefully(stream)

    async def _handle(self, stream: trio.SocketStream, network: str) -> None:
        holders: list[str] = []
        with trio.CancelScope(deadline=trio.current_time() + self._handshake_s) as scope:

            def admit(holder: str) -> None:
                if not self._places.take(holder):
                    raise BusyError(_used_up(holder, self._places))
                holders.append(holder)
                scope.deadline = float("inf")
                self._unproven.pop(scope, None)

            self._unproven[scope] = network
            try:
                await self._handler(stream, admit)
            finally:
                self._unproven.pop(scope, None)
                for holder in holders:
                    self._places.give_back(holder)
        if scope.cancelled_caught:
            late = trio.current_time() >= scope.deadline
            reason = f"no greeting within {self._handshake_s:g} s" if late else "too many others"
            raise UnavailableError(reason)

    def _make_room(self, network: str) -> None:
        """Close the oldest unproved connection if there is no room for another one."""
        rivals = [scope for scope, other in self._unproven.items() if other == network]
        if len(rivals) < self._limits.per_network:
            rivals = list(self._unproven)
            if len(rivals) < self._limits.handshakes:
                return
        del self._unproven[rivals[0]]
        rivals[0].cancel()


def _used_up(holder: str, places: Places) -> str:
    return (
        f"{holder} has {places.held(holder)} connections here, all of its share of the "
        f"{places.limit} that others use, too: close some; one connection carries many calls"
    )


def _network(stream: trio.SocketStream) -> str:
    """The remote's network, the unit of the limits: an IPv4 address or an IPv6 /64."""
    try:
        host = str(stream.socket.getpeername()[0])
    except OSError:  # the connection is gone already
        return "unknown"
    address = ipaddress.ip_address(host)
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address.packed, 64), strict=False))


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
        raise UnavailableError(f"{shown(address)} cannot be reached: {reason}") from None
