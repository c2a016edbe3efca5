"""The failure detector at work: it uses the peer's UDP socket, its connections and its peer
table."""

from __future__ import annotations

import random  # noqa: TID251 - the type only
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from medusa.overlay.addresses import Address
from medusa.overlay.clock import MICROS, latest_number
from medusa.overlay.concurrency import Bell
from medusa.overlay.datagrams import Channel, Datagrams
from medusa.overlay.errors import InvalidInputError, MedusaError
from medusa.overlay.events import Events, Level, wall_clock
from medusa.overlay.gossip.calls import Calls, Lines
from medusa.overlay.gossip.claims import RESERVE, PeerKeys
from medusa.overlay.gossip.config import GossipConfig
from medusa.overlay.gossip.detector import Detector, Start
from medusa.overlay.gossip.digests import MAX_DIGEST
from medusa.overlay.gossip.events import (
    Changed,
    DigestChanged,
    Doubt,
    Effect,
    Event,
    Health,
    Joined,
    Leave,
    Persist,
    PublishDigest,
    PushPull,
    Reach,
    Received,
    Removed,
    Send,
    Tick,
)
from medusa.overlay.gossip.incarnation import next_incarnation, store_incarnation
from medusa.overlay.gossip.members import Counters, Roster
from medusa.overlay.gossip.messages import decode_packet, encode_packet
from medusa.overlay.listeners import Listeners
from medusa.overlay.names import PeerId
from medusa.overlay.peers import PeerTable
from medusa.overlay.rpc import Service
from medusa.overlay.transport import Transport

ROSTER_GAP_S: Final = 0.05
"""Seconds between two readings of the peer table: many peers that join together are read in
once."""


class Gossip:
    """The health of the other peers, as this peer believes it.

    Attributes:
        changed: called with (peer id, health) at every change, within the detector's turn.
        said: called with (peer id, content) at every new digest of another peer.
        counters: what the detector did, in numbers.
    """

    def __init__(
        self,
        detector: Detector,
        roster: Roster,
        lines: Lines,
        config: GossipConfig,
        *,
        store: Callable[[int], None],
        nursery: trio.Nursery,
    ) -> None:
        self.changed: Listeners[[PeerId, Health]] = Listeners()
        self.digest_changed: Listeners[[PeerId, bytes]] = Listeners()
        self._detector = detector
        self._roster = roster
        self._lines = lines
        self._calls = Calls(detector, lines, config.probe_interval_s, self._handle)
        self._store = store
        self._nursery = nursery
        self._rearmed = Bell()
        self._news = Bell(rung=True)
        self._closed = False

    # -- for the packages above

    @property
    def counters(self) -> Counters:
        return self._detector.counters

    @property
    def awareness(self) -> int:
        """Return how slow this peer believes itself to be, from 0 (not at all) to 8."""
        return self._detector.awareness.score

    @property
    def incarnation(self) -> int:
        """Return this peer's own incarnation."""
        return self._detector.incarnation

    @property
    def digests(self) -> Mapping[PeerId, bytes]:
        """The newest digest of each peer, ours included, as its author published it."""
        return self._detector.digests

    def health(self, peer_id: PeerId) -> Health:
        """The believed health of that peer; an unknown peer is ALIVE."""
        return self._detector.health(peer_id)

    def counts(self) -> dict[Health, int]:
        """Other peers by health."""
        return self._detector.members.counts()

    def doubt(self, peer_id: PeerId) -> None:
        """Probe this peer now: there is evidence that it does not forward."""
        self._handle(Doubt(peer_id))

    def publish(self, digest: bytes) -> None:
        """Replace this peer's digest; all others get it within some rounds.

        Raises:
            InvalidInputError: it is longer than `MAX_DIGEST` bytes.
        """
        if len(digest) > MAX_DIGEST:
            raise InvalidInputError(f"digest: {len(digest)} bytes, at most {MAX_DIGEST} fit")
        self._handle(PublishDigest(digest))

    # -- for the overlay

    def roster_changed(self) -> None:
        """Read the peer table again: it, or the membership, has changed."""
        self._news.ring()

    def begin_anew(self, incarnation: int) -> None:
        """Use that incarnation, of our new record, even if it is lower than before."""
        me = self._lines.peers.identity.peer_id
        participant = self._roster.participant(me)
        self._roster.discard(me)
        self._roster.add(me, participant, incarnation)
        self._handle(Joined(me))

    def register(self, service: Service) -> None:
        """Serve pings and push-pulls to peers only."""
        self._calls.register(service)
        self._lines.datagrams.on(Channel.GOSSIP, self._on_datagram)
        self._lines.transport.doubted.add(self.doubt)

    async def leave(self) -> None:
        """Tell some peers that this peer leaves; they tell the others."""
        effects = self._detector.handle(Leave(), trio.current_time())
        self._carry_out(effects)
        with trio.CancelScope(shield=True):
            for _ in range(4 * len(effects)):  # datagrams leave one at each turn
                await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """Stop receiving and sending gossip."""
        self._closed = True

    # -- tasks

    async def run(self) -> None:
        """Send the detector its ticks."""
        while True:
            self._rearmed.clear()
            due = self._detector.next_due()
            with trio.move_on_at(due) as scope:
                await self._rearmed.wait()
            if scope.cancelled_caught:
                self._handle(Tick())

    async def follow_roster(self) -> None:
        """Read the members again whenever they change."""
        while True:
            await self._news.wait()
            self._news.clear()
            self.read_roster()
            await trio.sleep(ROSTER_GAP_S)

    def read_roster(self) -> None:
        """Report joined and removed members to the detector."""
        own = self._lines.peers.identity.peer_id
        records = {record.peer_id: record for record in self._lines.peers.all()}
        for peer in self._roster.peers():
            if peer not in records and peer != own and self._roster.discard(peer):
                self._handle(Removed(peer))
        for peer, record in records.items():
            if self._roster.add(peer, record.participant, record.incarnation):
                self._handle(Joined(peer))

    # -- events in, effects out

    def _handle(self, event: Event) -> None:
        if self._closed:
            return
        before = self._detector.next_due()
        self._carry_out(self._detector.handle(event, trio.current_time()))
        if self._detector.next_due() != before:
            self._rearmed.ring()

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Persist(incarnation):
                    self._persist(incarnation)
                case Send(peer, packet):
                    self._send(peer, encode_packet(packet))
                case Changed(peer, health):
                    self._on_change(peer, health)
                case DigestChanged(peer, content):
                    self.digest_changed.notify(peer, content)
                case Reach(peer, number):
                    if self._calls.may_reach(peer):
                        self._nursery.start_soon(self._calls.reach, peer, number)
                case PushPull(peer):
                    self._nursery.start_soon(self._calls.sync, peer)

    def _persist(self, incarnation: int) -> None:
        try:
            self._store(incarnation)
        except MedusaError as error:
            # the claim is sent all the same: without the refutation this peer would be dead now,
            # and after a restart the clock still makes a higher incarnation
            self._lines.events.note("error", f"could not save the incarnation: {error}")

    def _send(self, peer: PeerId, payload: bytes) -> None:
        addresses = self._lines.peers.addresses_of(peer)
        if addresses:
            self._lines.datagrams.send(Channel.GOSSIP, addresses[0], payload)

    def _on_change(self, peer: PeerId, health: Health) -> None:
        record = self._lines.peers.get(peer)
        name = str(record.name) if record is not None else peer.hex()
        if health is not Health.SUSPECT:  # suspicions are frequent, and only counted
            said = {Health.LEFT: "has left"}.get(health, f"is {health.value}")
            verb = "found" if health is Health.ALIVE else "lost"
            level: Level = "warning" if health is Health.DEAD else "info"
            self._lines.events.note(level, f"{verb} peer {name}: it {said}")
        if health is Health.DEAD:
            # a reader of that peer must not wait for a connection that nobody serves
            self._lines.transport.give_up(peer, "gossip says that it is dead")
        if health is Health.ALIVE:
            self._lines.transport.dial_again(peer)
        self.changed.notify(peer, health)

    # -- datagrams and calls

    def _on_datagram(self, sender: PeerId, _address: Address, payload: bytes) -> None:
        self._handle(Received(sender, decode_packet(payload)))


@asynccontextmanager
async def open_gossip(
    peers: PeerTable,
    transport: Transport,
    datagrams: Datagrams,
    service: Service,
    config: GossipConfig,
    *,
    folder: Path,
    events: Events,
    clock: Callable[[], float] = wall_clock,
    rng: random.Random,
) -> AsyncIterator[Gossip]:
    """Run the detector during the block. Our own record must be announced.

    If the block ends in good order, other peers are told that this peer leaves; if it ends by an
    exception, they detect it.

    Raises:
        DecodeError: the file of incarnations in `folder` is damaged.
        StorageError: it cannot be written.
    """
    me = peers.identity.peer_id
    record = peers.get(me)
    assert record is not None, "announce first"
    incarnation = next_incarnation(folder, record.incarnation)
    roster = Roster()
    roster.add(me, record.participant, record.incarnation)
    keys = PeerKeys(peers)
    detector = Detector(
        me,
        roster,
        config,
        keys,
        rng,
        start=Start(trio.current_time(), incarnation, reserved=incarnation + RESERVE),
        latest=lambda: latest_number(clock(), MICROS),
    )
    async with trio.open_nursery() as nursery:
        gossip = Gossip(
            detector,
            roster,
            Lines(peers, transport, datagrams, events),
            config,
            store=lambda incarnation: store_incarnation(folder, incarnation),
            nursery=nursery,
        )
        gossip.read_roster()
        gossip.register(service)
        nursery.start_soon(gossip.run)
        nursery.start_soon(gossip.follow_roster)
        try:
            yield gossip
        except BaseException as error:
            if _only_cancelled(error):
                await gossip.leave()
            raise
        else:
            await gossip.leave()
        finally:
            gossip.close()
            nursery.cancel_scope.cancel()


def _only_cancelled(error: BaseException) -> bool:
    """Whether the block was cancelled, and did not fail."""
    if isinstance(error, BaseExceptionGroup):
        return all(_only_cancelled(part) for part in error.exceptions)
    return isinstance(error, trio.Cancelled)
