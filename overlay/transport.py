"""The transport: one TLS connection per pair of peers, dialled when needed, accepted from members.

A fault ends only its own connection; the transport's tasks never fail for an action of a remote.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import SystemRandom  # noqa: TID251 - jitter in a driver
from typing import Final, NoReturn

import trio

from medusa.overlay.addresses import Address, shown
from medusa.overlay.clients import Clients, open_client, open_client_listener
from medusa.overlay.connection import Connection, KeepAlive
from medusa.overlay.errors import (
    BusyError,
    InvalidInputError,
    MedusaError,
    RefusedError,
    UnavailableError,
    UntrustedError,
)
from medusa.overlay.events import Events, wall_clock
from medusa.overlay.greeting import (
    INSTANCE_BYTES,
    Answer,
    Verdict,
    receive_hello,
    send_verdict,
)
from medusa.overlay.identity import Identity, PeerName
from medusa.overlay.links import Link, Links, Refusals
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
from medusa.overlay.membership import Membership
from medusa.overlay.memory import MEMORY_BYTES, Memory
from medusa.overlay.names import PeerId
from medusa.overlay.rpc import Caller, Service
from medusa.overlay.tls import PEER_PROTOCOL, PeerContexts, shake_hands
from medusa.overlay.tls_stream import TlsStream, Traffic

__all__ = [
    "Clients",
    "Transport",
    "TransportConfig",
    "open_client",
    "open_client_listener",
    "open_transport",
]

REPORT_FAILURES: Final = 3
"""Failed dials in a row before an event reports them: a single one may fail while a peer starts."""


@dataclass(frozen=True, slots=True)
class TransportConfig:
    """
    Attributes:
        handshake_s: seconds for TCP, TLS and greeting of one dial.
        backoff_s, max_backoff_s: pause after the first failure to reach a peer, doubled by each
            further one up to the maximum. Half of it is random, so that peers do not redial in
            step.
    """

    handshake_s: float = HANDSHAKE_S
    backoff_s: float = 0.2
    max_backoff_s: float = 30.0
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    keep_alive: KeepAlive = field(default_factory=KeepAlive)

    def __post_init__(self) -> None:
        assert 0 < self.backoff_s <= self.max_backoff_s
        assert self.handshake_s > 0


@dataclass(frozen=True)
class Serving:
    """The parts that serve remotes' calls: methods, events for faults, memory for all."""

    service: Service
    events: Events
    memory: Memory


class Transport:
    """All connections of one peer.

    Attributes:
        traffic: the bytes sent to and received from peers so far, on all connections.
        refusals: the participants that refuse this peer.
        doubted: called with the id of a peer to which a connection broke, or writes stall.
    """

    def __init__(
        self,
        *,
        identity: Identity,
        membership: Membership,
        serving: Serving,
        address_of: Callable[[PeerId], Sequence[Address]],
        config: TransportConfig,
        clock: Callable[[], float],
        nursery: trio.Nursery,
    ) -> None:
        self._identity = identity
        self._membership = membership
        self._serving = serving
        self._address_of = address_of
        self._config = config
        self._clock = clock
        self._nursery = nursery
        self._contexts = PeerContexts(identity)
        self._instance = secrets.token_bytes(INSTANCE_BYTES)
        self._links = Links(config.backoff_s, config.max_backoff_s)
        self._random = SystemRandom()
        self.address: Address = ("", 0)
        self.traffic = Traffic()
        self.refusals = Refusals(serving.events)
        self.doubted: Listeners[[PeerId]] = Listeners()

    def connections(self) -> tuple[Connection, ...]:
        """The present connections."""
        links = self._links.all()
        return tuple(link.connection for link in links if link.connection is not None)

    async def connection(self, peer_id: PeerId) -> Connection:
        """The connection to that peer, dialled if there is none.

        Raises:
            UnavailableError: the peer cannot be reached, or could not be reached a moment ago.
                UntrustedError: one of the two peers refuses the other.
        """
        await trio.lowlevel.checkpoint()
        link = self._links.to(peer_id)
        if link.connection is not None:
            return link.connection
        if link.attempt is None:
            wait = link.retry_at - trio.current_time()
            if link.error is not None and wait > 0:
                _again(link.error, _next_try(link.error, wait))
            link.attempt = trio.Event()
            self._nursery.start_soon(self._reach, peer_id, link)
        await link.attempt.wait()
        return self._reached(peer_id, link)

    async def dial(self, address: Address) -> Connection:
        """Connect to the peer at that address; its certificate tells its name.

        Raises:
            UnavailableError, UntrustedError: as `connection`.
            InvalidInputError: it is our own address.
        """
        return await self._dial(address, None)

    def renew(self, identity: Identity) -> None:
        """Our certificate was renewed: connections made from now on show it."""
        self._contexts.renew(identity)

    def drop(self, peer_id: PeerId) -> None:
        """Close the connection to that peer, if there is one."""
        link = self._links.get(peer_id)
        if link is not None and link.connection is not None:
            link.connection.close("dropped")

    def give_up(self, peer_id: PeerId, reason: str) -> None:
        """Break the connection to a peer that is gone: its open calls fail with BrokenError."""
        link = self._links.get(peer_id)
        if link is not None and link.connection is not None:
            link.connection.give_up(reason)

    def dial_again(self, peer_id: PeerId) -> None:
        """Forget earlier failures of a peer that has answered again, so that it is dialled again at
        once."""
        link = self._links.get(peer_id)
        if link is not None and link.connection is None:
            link.retry_at = 0.0
            link.backoff.succeeded()

    def failure(self, peer_id: PeerId) -> str:
        """Why the last `REPORT_FAILURES` or more dials of a peer all failed; "" if fewer failed."""
        link = self._links.get(peer_id)
        if link is None or link.connection is not None or link.backoff.failures < REPORT_FAILURES:
            return ""
        return str(link.error)

    def drop_revoked(self) -> None:
        """Close the connections to peers that are no longer members."""
        for connection in self.connections():
            if not self._membership.stands(connection.remote):
                connection.close(f"{connection.remote} is no member any more")

    # -- dialling

    def _reached(self, peer_id: PeerId, link: Link) -> Connection:
        if link.connection is None:
            _again(link.error or UnavailableError(f"peer {peer_id.hex()} closed the connection"))
        return link.connection

    async def _reach(self, peer_id: PeerId, link: Link) -> None:
        """Try the peer's addresses in turn; the link records the outcome."""
        error: MedusaError = UnavailableError(f"no address of peer {peer_id.hex()} is known")
        try:
            for address in self._address_of(peer_id):
                try:
                    await self._dial(address, peer_id)
                    return
                except MedusaError as failure:
                    error = failure
                if link.connection is not None:
                    return
            link.error = error
            link.retry_at = trio.current_time() + link.backoff.failed(self._random)
        finally:
            assert link.attempt is not None
            link.attempt.set()
            link.attempt = None

    async def _dial(self, address: Address, expected: PeerId | None) -> Connection:
        where = shown(address)
        with trio.move_on_after(self._config.handshake_s):
            stream = await dial_tcp(address)
            connection = None
            try:
                connection = await self._greet(stream, expected)
            except BusyError as error:  # a busy peer counts as away for now
                raise UnavailableError(f"{where}: {error}") from None
            except MedusaError as error:
                raise type(error)(f"{where}: {error}") from None
            finally:
                if connection is None:
                    await trio.aclose_forcefully(stream)
            return connection
        raise UnavailableError(
            f"{where} did not complete the handshake within {self._config.handshake_s:g} s"
        )

    async def _greet(self, stream: trio.SocketStream, expected: PeerId | None) -> Connection:
        """TLS and greeting of a dial; closes the stream unless it becomes a connection."""
        tls = await self._shake_hands(stream, server_side=False)
        name = self._membership.authenticate(tls.certificate, self._clock())
        if name.peer_id == self._identity.peer_id:
            raise InvalidInputError("this is our own address")
        if expected is not None and name.peer_id != expected:
            raise UntrustedError(f"{name} answers there, not peer {expected.hex()}")
        link = self._links.to(name.peer_id)
        async with link.greeting:
            if link.connection is None:
                verdict = await self.refusals.greet(tls, name, self._instance)
                if verdict.answer is Answer.ACCEPTED:
                    connection = self._adopt(tls, name, verdict.instance, dialled=True)
                    self._nursery.start_soon(self._drive, connection)
                    return connection
        await trio.aclose_forcefully(stream)
        return await self._standing(link)

    async def _standing(self, link: Link) -> Connection:
        """Wait for the connection that the other side says there is: it may be on its way here.

        If the connection never comes, the other side holds a dead connection, which it now probes.
        """
        with trio.move_on_after(self._config.keep_alive.probe_s):
            while link.connection is None:
                await link.adopted.changed()
            return link.connection
        raise UnavailableError("it says that a connection stands, and none does")

    # -- accepting

    async def welcome(self, stream: trio.SocketStream, admit: Admit) -> None:
        """Serve an accepted connection to its end.

        Raises:
            MedusaError: it failed before it stood.
        """
        connection = await self._greeted(stream, admit)
        if connection is not None:
            await self._drive(connection)

    async def _greeted(self, stream: trio.SocketStream, admit: Admit) -> Connection | None:
        """TLS, greeting and verdict; None if another connection is kept."""
        tls = await self._shake_hands(stream, server_side=True)
        hello = await receive_hello(tls)
        try:
            name = self._membership.authenticate(tls.certificate, self._clock())
        except UntrustedError as error:
            await send_verdict(tls, Verdict(Answer.UNTRUSTED, self._instance, str(error)))
            raise
        link = self._links.to(name.peer_id)
        if self._is_duplicate(link, name, hello):
            await send_verdict(tls, Verdict(Answer.DUPLICATE, self._instance))
            return None
        try:
            admit(name.participant)
        except BusyError as error:
            await send_verdict(tls, Verdict(Answer.BUSY, self._instance, str(error)))
            raise
        connection = self._adopt(tls, name, hello, dialled=False)
        try:
            await send_verdict(tls, Verdict(Answer.ACCEPTED, self._instance))
        except BaseException:
            self._disown(connection)
            raise
        return connection

    def _is_duplicate(self, link: Link, name: PeerName, instance: bytes) -> bool:
        if link.connection is not None and link.instance == instance:
            link.connection.probe()  # the dialler may know already that the old connection is dead
            return True
        return link.greeting.locked() and self._identity.peer_id < name.peer_id

    # -- both

    async def _shake_hands(self, stream: trio.SocketStream, *, server_side: bool) -> TlsStream:
        roots = self._membership.roots()
        context = self._contexts.context(roots, server_side=server_side)
        return await shake_hands(
            stream, context, PEER_PROTOCOL, server_side=server_side, traffic=self.traffic
        )

    def _adopt(
        self, stream: trio.abc.Stream, name: PeerName, instance: bytes, *, dialled: bool
    ) -> Connection:
        """Make this the connection to that peer; an earlier one is closed."""
        connection = Connection(
            stream,
            Caller(name.participant, name.peer_id, own=self._is_own(name)),
            dialled=dialled,
            service=self._serving.service,
            events=self._serving.events,
            keep_alive=self._config.keep_alive,
            memory=self._serving.memory.share(name.participant),
        )
        connection.doubted.add(lambda: self._notify_doubt(name.peer_id))
        self.refusals.accepted(name.participant)
        link = self._links.to(name.peer_id)
        if link.connection is not None:
            link.connection.close("replaced by a newer one")
        link.instance, link.error = instance, None
        link.backoff.succeeded()
        link.adopted.set(connection)
        return connection

    def _is_own(self, name: PeerName) -> bool:
        return name.participant == self._identity.participant

    def _notify_doubt(self, peer_id: PeerId) -> None:
        self.doubted.notify(peer_id)

    async def _drive(self, connection: Connection) -> None:
        try:
            await connection.run()
        finally:
            self._disown(connection)

    def _disown(self, connection: Connection) -> None:
        link = self._links.to(connection.remote.peer_id)
        if link.adopted.value is connection:
            link.adopted.set(None)


def _next_try(error: MedusaError, wait_s: float) -> str:
    """Say in words when the next try takes place; empty for a refusal, which another try does not
    change."""
    return "" if isinstance(error, RefusedError) else f"; next try in {wait_s:.1f} s"


def _again(error: MedusaError, more: str = "") -> NoReturn:
    """Raise a fresh copy: many callers may get one failure."""
    raise type(error)(f"{error}{more}")


@asynccontextmanager
async def open_transport(  # noqa: PLR0917 - each a part of the composition root
    identity: Identity,
    membership: Membership,
    service: Service,
    listen: Address,
    address_of: Callable[[PeerId], Sequence[Address]],
    events: Events,
    config: TransportConfig | None = None,
    *,
    clock: Callable[[], float] = wall_clock,
    memory: Memory | None = None,
) -> AsyncIterator[Transport]:
    """Listen for peers and be ready to dial them, during the block.

    Args:
        address_of: the addresses of a peer, best first.
        clock: seconds since the epoch, for certificates.
        memory: the bound on memory that the connections share with all others.

    Raises:
        ConflictError: the port is in use.
        InvalidInputError: the address cannot be listened on.
    """
    config = config or TransportConfig()
    listener = await listen_tcp(listen)
    async with trio.open_nursery() as nursery:
        transport = Transport(
            identity=identity,
            membership=membership,
            serving=Serving(service, events, memory or Memory(MEMORY_BYTES)),
            address_of=address_of,
            config=config,
            clock=clock,
            nursery=nursery,
        )
        transport.address = bound_address(listener)
        listening = Listening(transport.welcome, config.limits, events, config.handshake_s)
        nursery.start_soon(listening.serve, listener)
        yield transport
        nursery.cancel_scope.cancel()
