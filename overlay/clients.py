"""Clients of a participant: a listener that asks for the token, and the client's own end.

The peer shows its certificate, so that a client proves itself to nobody else; the client shows the
token's hash, once per connection, and before that nothing of it is read.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio
from cryptography import x509

from overlay.addresses import Address, shown
from overlay.certificates import PeerName, check_certificate, load_certificate
from overlay.connection import Connection, KeepAlive, running
from overlay.errors import DeadlineError, NotAuthorisedError, UntrustedError
from overlay.events import Events, wall_clock
from overlay.greeting import (
    Answer,
    Verdict,
    receive_hello,
    receive_verdict,
    send_hello,
    send_verdict,
)
from overlay.identity import Identity
from overlay.listening import (
    HANDSHAKE_S,
    ConnectionLimits,
    Listening,
    bound_address,
    dial_tcp,
    listen_tcp,
)
from overlay.memory import MEMORY_BYTES, Memory
from overlay.rpc import Caller, Service
from overlay.tls import CLIENT_PROTOCOL, client_context, listener_context, shake_hands

PROOF_BYTES: Final = hashlib.sha256().digest_size

CLIENTS: Final = "our clients"
"""Whose memory their connections take; no participant has that name."""


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
    memory: Memory | None = None,
) -> AsyncIterator[Address]:
    """Serve clients of `identity`'s participant that hold `token`; gives the address.

    Args:
        memory: bounds what their connections hold, together with whatever else shares it.

    Raises:
        ConflictError: the port is in use.
        InvalidInputError: the address cannot be listened on.
    """
    assert token
    events = events or Events()
    context = listener_context(identity)
    share = (memory or Memory(MEMORY_BYTES)).share(CLIENTS)

    async def welcome(stream: trio.SocketStream, proven: Callable[[], None]) -> None:
        tls = await shake_hands(stream, context, CLIENT_PROTOCOL, server_side=True)
        shown = await receive_hello(tls, PROOF_BYTES)
        if not hmac.compare_digest(shown, _proof(token)):
            await send_verdict(tls, Verdict(Answer.WRONG_TOKEN))
            raise NotAuthorisedError("a client showed a wrong token")
        await send_verdict(tls, Verdict(Answer.ACCEPTED))
        proven()
        connection = Connection(
            tls,
            PeerName(identity.participant, b""),
            dialled=False,
            service=service,
            caller=Caller(identity.participant, None, own=True),
            events=events,
            keep_alive=keep_alive,
            memory=share,
        )
        await connection.run()

    listener = await listen_tcp(listen)
    listening = Listening(welcome, limits or ConnectionLimits(), events, handshake_s)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listening.serve, listener)
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
    where = shown(address)
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
            await send_hello(tls, _proof(token))
            if (error := (await receive_verdict(tls)).error()) is not None:
                raise error
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
        yield connection


def _proof(token: bytes) -> bytes:
    """What a client shows: of one size, and not the token itself."""
    return hashlib.sha256(token).digest()
