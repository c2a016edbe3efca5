"""The overlay of a peer, composed: the peer table, the port for TCP and UDP, exchanges, and
files."""

from __future__ import annotations

import random  # noqa: TID251 - a composition; tests pass a seeded one
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio

from medusa.overlay.addresses import (
    Address,
    check_address,
    is_ipv6,
    is_unspecified,
    outward_host,
    shown,
)
from medusa.overlay.certificates import der
from medusa.overlay.clock import Clock, steady_clock
from medusa.overlay.clock import shown as moment
from medusa.overlay.concurrency import Bell
from medusa.overlay.connection import Connection
from medusa.overlay.datagrams import Datagrams, open_datagrams
from medusa.overlay.errors import (
    ConflictError,
    InvalidInputError,
    MedusaError,
    RefusedError,
    UntrustedError,
)
from medusa.overlay.events import Change, Events, wall_clock
from medusa.overlay.exchange import EXCHANGE_S, Clocks, Exchange, Exchanger
from medusa.overlay.files import storing, write_atomically
from medusa.overlay.gossip.config import GossipConfig
from medusa.overlay.gossip.driver import Gossip, open_gossip
from medusa.overlay.gossip.events import Health
from medusa.overlay.identity import Identity
from medusa.overlay.listeners import Listeners
from medusa.overlay.membership import Membership
from medusa.overlay.membership_file import store_statements
from medusa.overlay.memory import Budgets
from medusa.overlay.names import PeerId
from medusa.overlay.node.config import OverlayConfig
from medusa.overlay.peers import FILE as PEERS_FILE
from medusa.overlay.peers import PeerTable
from medusa.overlay.rpc import Service
from medusa.overlay.threads import Threads
from medusa.overlay.transport import Transport, open_transport
from medusa.overlay.troubles import Reason, Trouble, Troubles

PORT_TRIES: Final = 16
"""Ports tried when any is allowed: a free TCP port is almost never taken on UDP."""

WARN_S: Final = 30 * 86_400.0
"""Seconds before the end of this peer's certificate at which warnings begin: a month, so that the
keeper of the root's key can be asked."""

AWAY: Final = (
    "start it, or mend the way to it; if it is gone for good, `medusa-peer revoke` says so to all"
)

MAX_CALLED: Final = 16
"""Peers that a peer about to leave calls, to find out whether they accept it: one answer is
enough."""

DATA: Final = "data"
"""The folder of the home that has the peer table."""


@dataclass(frozen=True)
class Overlay:
    """The overlay that the packages above use: connections, members, gossip, clock and memory.

    Attributes:
        gossip: the believed health of the other peers.
        clock: the time that this peer goes by, seconds since the epoch.
        address: where others reach this peer.
        memory: the bound on this peer's memory.
        troubles: the troubles of the overlay, and of the parts above it that add their own.
        threads: runs long work that others ask for.
        renewed: called when this peer's certificate was renewed.
    """

    membership: Membership
    peers: PeerTable
    transport: Transport
    datagrams: Datagrams
    gossip: Gossip
    service: Service
    events: Events
    clock: Clock
    address: Address
    memory: Budgets
    troubles: Troubles
    _learned: Listeners[[]]
    _exchanger: Exchanger
    _keeper: _Keeper
    threads: Threads = field(default_factory=Threads)
    renewed: Listeners[[Identity]] = field(default_factory=Listeners)

    async def run(self, bootstrap: tuple[Address, ...], interval_s: float) -> None:
        """Exchange news with the others, save it, and watch the clock; for ever.

        Args:
            bootstrap: addresses of peers to join by.
            interval_s: the time between two exchanges, seconds.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                self._exchanger.run,
                self.transport.connection,
                self.transport.dial,
                bootstrap,
                interval_s,
            )
            nursery.start_soon(self._keeper.run, self._exchanger, self.events)
            nursery.start_soon(self.clock.run)

    def begin_anew(self) -> None:
        """Announce a new incarnation: the present one comes from a wrong clock, and others do not
        believe it."""
        record = self.peers.announce_anew([self.address], self.clock())
        self.gossip.begin_anew(record.incarnation)
        self._learned.notify()
        self._exchanger.hurry()

    @property
    def identity(self) -> Identity:
        """This peer's identity, with the certificate that it shows now."""
        return self.peers.identity

    def renew(self, identity: Identity) -> None:
        """Show this certificate, of the same key, from now on; existing connections stay.

        Raises:
            UntrustedError: the certificate does not count. InvalidInputError: it belongs to another
                peer.
        """
        if identity.peer_id != self.identity.peer_id:
            raise InvalidInputError(f"a certificate of {identity.name}, not {self.identity.name}")
        self.membership.authenticate(der(identity.certificate), self.clock())
        self.transport.renew(identity)
        self.peers.renew(identity)
        self.renewed.notify(identity)
        self._exchanger.notify()
        self.events.note(
            "info", f"renewed this peer's certificate: it lasts until {moment(identity.expires)}"
        )

    def own_troubles(self) -> Iterator[Trouble]:
        """The troubles with this peer's membership: others look gone, and are not."""
        fault, me = self._own_fault(), "this peer"
        if fault:
            yield Trouble(Reason.REFUSED, "the others", f"refuse this peer: {fault}")
        elif (left_s := self.identity.expires - self.clock()) <= WARN_S:
            ends = f"has a certificate that ends on {moment(self.identity.expires)}"
            in_days = f"in {left_s / 86_400:.0f} days"
            mend = "`medusa-peer renew` renews it"
            yield Trouble(Reason.CERTIFICATE_ENDS, me, f"{ends}, {in_days}", mend)
        for participant, reason in self.transport.refusals.reasons.items():
            yield Trouble(Reason.REFUSED, participant, f"refuses this peer: {reason}")

    def siblings_away(self) -> Iterator[Trouble]:
        """The peers of our own participant that are out of reach."""
        for record in self.peers.all():
            is_sibling = record.participant == self.identity.participant
            if not is_sibling or record.peer_id == self.identity.peer_id:
                continue
            at = shown(record.addresses[0]) if record.addresses else "no known address"
            health, why = self.gossip.health(record.peer_id), self.transport.failure(record.peer_id)
            if health is Health.LEFT or (health is not Health.DEAD and not why):
                continue
            what = f"at {at} does not answer{f' ({why})' if why else ''}"
            yield Trouble(Reason.SIBLING_AWAY, f"our peer {record.peer_id.hex()}", what, AWAY)

    def exclusion(self) -> str:
        """Why this peer is cut off: members refuse it, and it is connected to no other participant.
        "" if it is not cut off, or no reason is known."""
        own = self.identity.participant
        if any(each.remote.participant != own for each in self.transport.connections()):
            return ""
        refusals = (t for t in self.own_troubles() if t.reason is Reason.REFUSED)
        return "; ".join(trouble.sentence for trouble in refusals)

    def _own_fault(self) -> str:
        """The reason for which members must refuse this peer, by its own check; "" if there is
        none."""
        try:
            self.membership.authenticate(der(self.identity.certificate), self.clock())
        except UntrustedError as error:
            return str(error)
        return ""

    async def connect(self, peer_id: PeerId) -> Connection:
        """The connection to that peer, dialled if need be.

        Raises:
            UnavailableError: it cannot be reached, or is not known.
        """
        return await self.transport.connection(peer_id)

    async def exchange(self, connection: Connection) -> None:
        """Learn the members and peers that the remote knows, and tell it ours.

        Raises:
            MedusaError: the remote did not answer; the records that it sent before stay.
        """
        await self._exchanger.exchange(connection)

    async def save(self) -> None:
        """Write the members and peers learned so far to the home now.

        Raises:
            StorageError: the disk does not take them.
        """
        await self._keeper.save()

    def living_siblings(self) -> list[PeerId]:
        """The other peers of our participant, as far as they are not gone."""
        own = self.identity
        return [
            record.peer_id
            for record in self.peers.all()
            if record.participant == own.participant
            and record.peer_id != own.peer_id
            and not self.gossip.health(record.peer_id).gone
        ]

    def learn(self, statements: Iterable[bytes]) -> list[Change]:
        """Take in statements made at this home: save them, and spread them now."""
        return self._exchanger.take(tuple(statements), ())

    async def learn_and_notify(self, statements: Iterable[bytes]) -> tuple[str, ...]:
        """`learn`, then wait until the connected peers have received the statements or the time is
        over; returns the participants that have received them.

        Raises:
            RefusedError: this peer is cut off from the others, which say why.
        """
        await self._call_others()
        if exclusion := self.exclusion():
            raise RefusedError(exclusion)
        listeners = [connection.remote for connection in self.transport.connections()]
        self.learn(statements)
        return await self._exchanger.notify_all(listeners, self.connect)

    async def _call_others(self) -> None:
        """If no peer of another participant is connected, dial some: each accepts this peer, or
        tells its reason."""
        own = self.identity.participant
        if any(each.remote.participant != own for each in self.transport.connections()):
            return
        others = [each.peer_id for each in self.peers.all() if each.participant != own]

        async def call(peer_id: PeerId) -> None:
            self.transport.dial_again(peer_id)
            with suppress(MedusaError):  # refusals are remembered
                await self.connect(peer_id)

        with trio.move_on_after(EXCHANGE_S):
            async with trio.open_nursery() as nursery:
                for peer_id in others[:MAX_CALLED]:
                    nursery.start_soon(call, peer_id)


@asynccontextmanager
async def open_overlay(
    identity: Identity,
    membership: Membership,
    home: Path,
    config: OverlayConfig,
    service: Service,
    *,
    events: Events | None = None,
    wall: Callable[[], float] = wall_clock,
    steady: Callable[[], float] = steady_clock,
    rng: random.Random | None = None,
) -> AsyncIterator[Overlay]:
    """Listen, announce ourselves, and exchange news with the others while open.

    Args:
        wall, steady: see `Clock`.

    Raises:
        UntrustedError: our own certificate does not count (expired, revoked, not admitted).
        ConflictError: the port is in use. InvalidInputError: an address in the config is wrong.
        DecodeError: a file of the home is damaged.
    """
    events = events or Events(wall, f"{identity.participant}/{identity.peer_id.hex()[:8]}")
    clock = Clock(events, config.timing, wall, steady)
    membership.authenticate(der(identity.certificate), clock())
    peers = _known_peers(identity, membership, home, clock())
    memory = Budgets.of_process(config.memory_bytes)
    keeper = _Keeper(home, membership, peers, config.timing.save_gap_s)
    learned: Listeners[[]] = Listeners()
    learned.add(keeper.notify)
    exchanger = Exchanger(
        Exchange(membership, peers),
        peers,
        events=events,
        learned=learned.notify,
        clocks=Clocks(clock, wall, clock.receive),
        rng=rng,
    )
    exchanger.register(service)
    # errors of the config are found before anything is opened
    bootstrap = tuple(check_address(at) for at in config.bootstrap)
    host, port = await _reachable(config)
    async with AsyncExitStack() as stack:
        stack.callback(keeper.close, events)
        listening = _Listening(peers, membership, service, events, clock, memory)
        transport, datagrams = await listening.open(stack, config.listen)
        learned.add(transport.drop_revoked)
        address = (host, port or transport.address[1])
        peers.announce([address], clock())
        events.note("info", f"listens on {shown(transport.address)} as {identity.name}")
        gossip = await stack.enter_async_context(
            open_gossip(
                peers,
                transport,
                datagrams,
                service,
                GossipConfig.of(config.preset),
                folder=home / DATA,
                events=events,
                clock=clock,
                rng=rng or random.SystemRandom(),
            )
        )
        learned.add(gossip.roster_changed)
        overlay = Overlay(
            membership,
            peers,
            transport,
            datagrams,
            gossip,
            service,
            events,
            clock,
            address,
            memory,
            Troubles(clock),
            learned,
            exchanger,
            keeper,
        )
        clock.set.add(overlay.begin_anew)
        for look in (overlay.own_troubles, clock.troubles, overlay.siblings_away):
            overlay.troubles.add(look)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(overlay.run, bootstrap, config.preset.interval_s)
            try:
                yield overlay
            finally:
                nursery.cancel_scope.cancel()


def _known_peers(identity: Identity, membership: Membership, home: Path, now: float) -> PeerTable:
    """Load the peer table of the home, and create its folder. now: seconds since the epoch."""
    peers = PeerTable(identity, membership)
    with storing(home / DATA):
        (home / DATA).mkdir(parents=True, exist_ok=True)
    peers.load(home / DATA, now)
    return peers


@dataclass(frozen=True)
class _Listening:
    """Opens the peer's port for TCP and UDP."""

    peers: PeerTable
    membership: Membership
    service: Service
    events: Events
    clock: Clock
    memory: Budgets

    async def open(self, stack: AsyncExitStack, listen: Address) -> tuple[Transport, Datagrams]:
        """Listen on TCP and UDP on one port. If a free TCP port is taken on UDP, another is
        tried."""
        for attempt in range(1, PORT_TRIES + 1):
            both = AsyncExitStack()
            try:
                transport = await both.enter_async_context(self._tcp(listen))
                port = transport.address[1]
                datagrams = await both.enter_async_context(self._udp((listen[0], port)))
            except ConflictError:
                await both.aclose()
                if listen[1] != 0 or attempt == PORT_TRIES:
                    raise
            else:
                await stack.enter_async_context(both)
                return transport, datagrams
        raise AssertionError("the last attempt returns or raises")

    def _tcp(self, at: Address) -> AbstractAsyncContextManager[Transport]:
        return open_transport(
            self.peers.identity,
            self.membership,
            self.service,
            at,
            self.peers.addresses_of,
            self.events,
            clock=self.clock,
            memory=self.memory.messages,
        )

    def _udp(self, at: Address) -> AbstractAsyncContextManager[Datagrams]:
        return open_datagrams(self.peers.identity, self.peers, at, self.events, self.clock)


async def _reachable(config: OverlayConfig) -> Address:
    """The address to announce: the configured one, or this machine's own as far as it can tell;
    port 0: the listening port."""
    host, port = config.advertise or config.listen
    if is_unspecified(host):
        host = "::1" if is_ipv6(host) else outward_host() or "127.0.0.1"
    try:
        found = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_DGRAM)
    except OSError as error:
        raise InvalidInputError(
            f"cannot announce {shown((host, port))}: {error.strerror}; set overlay.advertise"
        ) from None
    return str(found[0][4][0]), int(found[0][4][1])


class _Keeper:
    """Saves news in the home. `notify` starts a write.

    Args:
        gap_s: the time between two writes; see `OverlayTiming.save_gap_s`.
    """

    def __init__(self, home: Path, membership: Membership, peers: PeerTable, gap_s: float) -> None:
        self._home = home
        self._gap_s = gap_s
        self._membership = membership
        self._peers = peers
        self._news = Bell(rung=True)  # the news of the start must be saved too
        self._writing = trio.Lock()

    def notify(self) -> None:
        self._news.ring()

    async def run(self, exchanger: Exchanger, events: Events) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                stored = await self.save()
            except MedusaError as error:
                events.note("error", f"could not save members and peers learned: {error}")
            else:
                exchanger.take(stored, ())  # statements that a command put into the file
            await trio.sleep(self._gap_s)

    async def save(self) -> tuple[bytes, ...]:
        """Write both files; returns all statements that are then in the file.

        Raises:
            StorageError: the disk does not take them.
        """
        async with self._writing:
            records, held = self._peers.saved(), self._membership.statements()
            return await trio.to_thread.run_sync(self._write, records, held)

    def close(self, events: Events) -> None:
        """Write the news since the last write."""
        if not self._news.is_rung:
            return
        try:
            self._write(self._peers.saved(), self._membership.statements())
        except MedusaError as error:
            events.note("error", f"could not save members and peers learned: {error}")

    def _write(self, records: bytes, statements: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Write both files; returns all statements that are then in the file."""
        write_atomically(self._home / DATA / PEERS_FILE, records)
        return store_statements(self._home, self._membership.charter, statements)
