"""Clients of a participant: the listener that checks their tokens, and the client's side.

The peer shows its certificate, so that a client sends its proof to no other machine. The client
shows the hash of its token once for each connection. The peer reads nothing else from the client
before that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio
from cryptography import x509

from medusa.overlay.addresses import Address, shown
from medusa.overlay.certificates import check_certificate, load_certificate
from medusa.overlay.client_tokens import PROOF_BYTES, ClientToken, in_words, proof_of, shown_by
from medusa.overlay.concurrency import next_beat
from medusa.overlay.connection import Connection, KeepAlive, running
from medusa.overlay.errors import BusyError, DeadlineError, NotAuthorisedError, UntrustedError
from medusa.overlay.events import Events, wall_clock
from medusa.overlay.greeting import (
    Answer,
    Verdict,
    receive_hello,
    receive_verdict,
    send_hello,
    send_verdict,
)
from medusa.overlay.identity import Identity
from medusa.overlay.listeners import Listeners
from medusa.overlay.listening import (
    HANDSHAKE_S,
    Admit,
    ConnectionLimits,
    Listening,
    bound_address,
    dial_tcp,
    listen_tcp,
)
from medusa.overlay.memory import MEMORY_BYTES, Memory
from medusa.overlay.names import NO_PEER
from medusa.overlay.rpc import Caller, Service
from medusa.overlay.tls import CLIENT_PROTOCOL, client_context, listener_context, shake_hands, show

LOOK_S: Final = 1.0
"""Seconds between two checks of the tokens of connected clients."""


@dataclass(frozen=True, eq=False)
class Session:
    """A connected client.

    Attributes:
        token: the token that the client showed.
        address: the client's address.
        since: seconds since the epoch.
    """

    token: ClientToken
    address: Address
    since: float
    connection: Connection


class Clients:
    """The clients of one peer: the tokens that count, and the clients that are connected.

    Args:
        tokens: the tokens that count now.
        clock: seconds since the epoch, by which tokens expire.
    """

    def __init__(
        self, tokens: Callable[[], Sequence[ClientToken]], clock: Callable[[], float] = wall_clock
    ) -> None:
        self._tokens = tokens
        self.clock = clock
        self._sessions: dict[Session, None] = {}

    def connected(self) -> tuple[Session, ...]:
        """The connected clients, in the order in which they came."""
        return tuple(self._sessions)

    def admit(self, proof: bytes) -> ClientToken:
        """The token that belongs to a client's proof.

        Raises:
            NotAuthorisedError: no such token, or it no longer counts.
        """
        token = shown_by(proof, self._tokens())
        if token is None:
            raise NotAuthorisedError(
                "wrong token: it may have been rotated, or revoked, or be another peer's; use the "
                "client.token of this peer's home, or ask who runs the peer for another one "
                "(`medusa-peer token add NAME`, `medusa-peer token rotate NAME`)"
            )
        self._check(token)
        return token

    @contextmanager
    def session(self, session: Session) -> Iterator[None]:
        """List the session as connected during the block."""
        self._sessions[session] = None
        try:
            yield
        finally:
            del self._sessions[session]

    def refused(self) -> Iterator[tuple[Session, str]]:
        """The connected clients whose token no longer counts, each with the reason."""
        if not self._sessions:
            return
        now = self.clock()
        current = {token.proof_hash: token for token in self._tokens()}
        for session in self.connected():
            token = current.get(session.token.proof_hash)
            if token is None:
                yield session, f"client token {session.token.name!a} was rotated"
            elif (reason := token.refusal(now)) is not None:
                yield session, reason

    def _check(self, token: ClientToken) -> None:
        if (reason := token.refusal(self.clock())) is not None:
            raise NotAuthorisedError(
                f"{reason}: ask who runs the peer for another one (`medusa-peer token add NAME`)"
            )


def caller_with(token: ClientToken, participant: str) -> Caller:
    """The caller that a client of ours with that token is."""
    return Caller(participant, None, own=True, token=token.name, scopes=token.scopes)


@asynccontextmanager
async def open_client_listener(
    identity: Identity,
    clients: Clients,
    service: Service,
    listen: Address,
    events: Events,
    *,
    renewed: Listeners[[Identity]] | None = None,
    limits: ConnectionLimits | None = None,
    keep_alive: KeepAlive | None = None,
    handshake_s: float = HANDSHAKE_S,
    memory: Memory | None = None,
) -> AsyncIterator[Address]:
    """Serve clients of `identity`'s participant that hold a token; yields the address.

    Connections end within `LOOK_S` after their token is revoked, rotated or expired.

    Args:
        events: gets faults in clients' calls, and refused clients.
        renewed: tells when the identity's certificate was renewed.
        memory: the bound on memory that the connections share with all others.

    Raises:
        ConflictError: the port is in use.
        InvalidInputError: the address cannot be listened on.
    """
    context = listener_context(identity)
    if renewed is not None:
        renewed.add(partial(show, context))
    budget = memory or Memory(MEMORY_BYTES)

    async def welcome(stream: trio.SocketStream, admit: Admit) -> None:
        tls = await shake_hands(stream, context, CLIENT_PROTOCOL, server_side=True)
        proof = await receive_hello(tls, PROOF_BYTES)
        try:
            token = clients.admit(proof)
        except NotAuthorisedError as error:
            await send_verdict(tls, Verdict(Answer.WRONG_TOKEN, text=str(error)))
            raise
        caller = caller_with(token, identity.participant)
        try:
            admit(caller.holder)
        except BusyError as error:
            await send_verdict(tls, Verdict(Answer.BUSY, text=str(error)))
            raise
        await send_verdict(tls, Verdict(Answer.ACCEPTED))
        connection = Connection(
            tls,
            caller,
            dialled=False,
            service=service,
            events=events,
            keep_alive=keep_alive,
            memory=budget.share(caller.holder),
        )
        came_from = stream.socket.getpeername()[:2]
        with clients.session(Session(token, came_from, clients.clock(), connection)):
            await connection.run()

    async def send_away() -> None:
        while True:
            await trio.sleep_until(next_beat(LOOK_S))
            for session, reason in clients.refused():
                scopes = in_words(session.token.scopes)
                events.note("warning", f"disconnected a client with {scopes}: {reason}")
                session.connection.close(reason)

    listener = await listen_tcp(listen)
    listening = Listening(welcome, limits or ConnectionLimits(), events, handshake_s)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listening.serve, listener)
        nursery.start_soon(send_away)
        yield bound_address(listener)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_admitted_client(
    participant: str,
    clients: Clients,
    service: Service,
    proof: bytes,
    *,
    came_from: Address,
    events: Events,
    memory: Memory,
) -> AsyncIterator[Connection]:
    """Connect, inside the peer, a client that speaks another protocol to it.

    Its calls take the way of the calls of every client: the same token, scopes, limits and
    handlers. It is listed with the others, and its connection ends with its token.

    Args:
        participant: ours. came_from: where the client is.
        memory: the bound on memory that the connections share with all others.

    Raises:
        NotAuthorisedError: no such token, or it no longer counts.
    """
    token = clients.admit(proof)
    caller = caller_with(token, participant)
    near, far = (trio.SocketStream(end) for end in trio.socket.socketpair())
    answering = Connection(
        far,
        caller,
        dialled=False,
        service=service,
        events=events,
        memory=memory.share(caller.holder),
    )
    calling = Connection(
        near, Caller(participant, NO_PEER), dialled=True, service=Service(), events=events
    )
    session = Session(token, came_from, clients.clock(), answering)
    with clients.session(session):
        async with running(answering), running(calling):
            yield calling


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
        UntrustedError: the answer is not from a peer of that participant.
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
            await send_hello(tls, proof_of(token))
            if (error := (await receive_verdict(tls)).error()) is not None:
                raise error
            connection = Connection(
                tls,
                Caller(name.participant, name.peer_id),
                dialled=True,
                service=service or Service(),
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
