"""Clients of a participant: a listener that asks for the token, and the client's own end.

The peer shows its certificate, so that a client gives the token to nobody else; the client shows
the token, once per connection, before any other method is there for it.
"""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio
from cryptography import x509
from msgspec import Struct

from overlay.certificates import PeerName, check_certificate, load_certificate
from overlay.connection import Connection, KeepAlive, running
from overlay.errors import DeadlineError, MedusaError, NotAuthorisedError, UntrustedError
from overlay.events import Events, wall_clock
from overlay.identity import Identity
from overlay.listening import (
    HANDSHAKE_S,
    Address,
    ConnectionLimits,
    Listening,
    bound_address,
    dial_tcp,
    listen_tcp,
)
from overlay.rpc import Caller, Service
from overlay.tls import CLIENT_PROTOCOL, client_context, listener_context, shake_hands

PROVE: Final = "overlay.prove"


class Token(Struct, frozen=True):
    token: bytes


class Welcome(Struct, frozen=True):
    """The client may go on."""

    participant: str


class _Gate(Service):
    """All that a client finds before it has shown the token."""

    def __init__(self, token: bytes, participant: str) -> None:
        super().__init__()
        self.on_open: Callable[[], None] = lambda: None
        self._token = token
        self._participant = participant
        self.unary(PROVE, Token, self._prove, clients=True, peers=False)

    async def _prove(self, caller: Caller, request: Token, body: bytes) -> Welcome:
        await trio.lowlevel.checkpoint()
        if not hmac.compare_digest(request.token, self._token):
            raise NotAuthorisedError("wrong token: use the client.token of this peer's home")
        self.on_open()
        return Welcome(self._participant)

    def missing(self, method: str) -> MedusaError:
        return NotAuthorisedError("show the client token first")


@asynccontextmanager
async def open_client_listener(
    identity: Identity,
    token: bytes,
    service: Service,
    listen: Address,
    *,
    events: Events | None = None,
    limits: ConnectionLimits | None = None,
    keep_alive: KeepAlive | None = None,
    handshake_s: float = HANDSHAKE_S,
) -> AsyncIterator[Address]:
    """Serve clients of `identity`'s participant that hold `token`; gives the address.

    Raises:
        ConflictError: the port is in use.
        InvalidInputError: the address cannot be listened on.
    """
    assert token
    events = events or Events()
    context = listener_context(identity)
    remote = PeerName(identity.participant, b"")

    async def welcome(stream: trio.SocketStream) -> None:
        gate = _Gate(token, identity.participant)
        with trio.CancelScope() as scope:
            scope.deadline = trio.current_time() + handshake_s
            tls = await shake_hands(stream, context, CLIENT_PROTOCOL, server_side=True)
            connection = Connection(
                tls,
                remote,
                dialled=False,
                service=gate,
                caller=Caller(identity.participant, None),
                events=events,
                keep_alive=keep_alive,
            )

            def let_in() -> None:
                connection.admit(service)
                scope.deadline = float("inf")

            gate.on_open = let_in
            await connection.run()
        if scope.cancelled_caught:
            raise NotAuthorisedError(f"no token was shown within {handshake_s:g} s")

    listener = await listen_tcp(listen)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Listening(welcome, limits or ConnectionLimits(), events).serve, listener)
        yield bound_address(listener)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_client(
    address: Address,
    participant: str,
    root_certificate: x509.Certificate,
    token: bytes,
    *,
    clock: Callable[[], float] = wall_clock,
    service: Service | None = None,
    events: Events | None = None,
    keep_alive: KeepAlive | None = None,
    handshake_s: float = HANDSHAKE_S,
) -> AsyncIterator[Connection]:
    """Connect as a client to a peer of `participant`.

    Raises:
        UnavailableError: nobody answers there.
        UntrustedError: whoever answers is no peer of that participant.
        NotAuthorisedError: the token is wrong.
    """
    where = f"{address[0]}:{address[1]}"
    connection: Connection | None = None
    with trio.move_on_after(handshake_s):
        stream = await dial_tcp(address)
        try:
            tls = await shake_hands(
                stream, client_context(root_certificate), CLIENT_PROTOCOL, server_side=False
            )
            name = check_certificate(load_certificate(tls.certificate), root_certificate, clock())
            if name.participant != participant:
                raise UntrustedError(f"{where} is a peer of {name.participant}, not {participant}")
            connection = Connection(
                tls,
                name,
                dialled=True,
                service=service or Service(),
                caller=Caller(name.participant, name.peer_id),
                events=events or Events(),
                keep_alive=keep_alive,
            )
        finally:
            if connection is None:
                await trio.aclose_forcefully(stream)
    if connection is None:
        raise DeadlineError(f"{where} did not complete the handshake within {handshake_s:g} s")
    async with running(connection):
        await connection.call(PROVE, Token(token), Welcome, timeout_s=handshake_s)
        yield connection
