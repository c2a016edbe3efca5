"""The detector at work: over the peer's UDP socket and its connections, beside its peer table."""

from __future__ import annotations

import random  # noqa: TID251 - the type only
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from overlay.addresses import Address
from overlay.clock import MICROS, latest_number
from overlay.concurrency import Locks
from overlay.datagrams import Channel, Datagrams
from overlay.errors import DecodeError, InvalidInputError, MedusaError, UnavailableError
from overlay.events import Events, Level, wall_clock
from overlay.gossip.config import GossipConfig
from overlay.gossip.counters import Counters
from overlay.gossip.detector import Detector
from overlay.gossip.digests import MAX_DIGEST
from overlay.gossip.events import (
    Changed,
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
    Reached,
    Received,
    Removed,
    Said,
    Send,
    Synced,
    Tick,
)
from overlay.gossip.incarnation import next_incarnation, store_incarnation
from overlay.gossip.keys import PeerKeys
from overlay.gossip.messages import (
    MAX_STATE,
    PING_METHOD,
    SYNC_METHOD,
    Here,
    Knock,
    State,
    decode_packet,
    encode_packet,
)
from overlay.gossip.refusal import refuses_all
from overlay.gossip.roster import Roster
from overlay.gossip.standing import RESERVE
from overlay.listeners import Listeners
from overlay.peers import PeerTable
from overlay.rpc import Caller, Service
from overlay.streams import Buffer
from overlay.transport import Transport

ROSTER_GAP_S: Final = 0.05
"""Seconds between two readings of the peer table: a crowd that joins is read in once, not once a
peer."""

SYNC_S: Final = 10.0
"""Seconds a push-pull may take: dialling included, over a slow line."""

LEARNT_AT_ONCE: Final = 32
"""Claims or digests of a push-pull that are looked at before others have their turn: some
milliseconds, where each is news."""

MAX_REACHING: Final = 16
"""Peers tried over the stream at once."""


class Gossip:
    """What this peer believes of the health of the others.

    Attributes:
        changed: told of (peer id, health) at every change, within the detector's turn. said: told
            of (peer id, content) at every new digest of another.
        counters: what the detector did.
    """

    def __init__(
        self,
        detector: Detector,
        roster: Roster,
        peers: PeerTable,
        transport: Transport,
        datagrams: Datagrams,
        *,
        config: GossipConfig,
        store: Callable[[int], None],
        events: Events,
        nursery: trio.Nursery,
    ) -> None:
        self.changed: Listeners[[bytes, Health]] = Listeners()
        self.said: Listeners[[bytes, bytes]] = Listeners()
        self._detector = detector
        self._roster = roster
        self._peers = peers
        self._transport = transport
        self._datagrams = datagrams
        self._config = config
        self._store = store
        self._events = events
        self._nursery = nursery
        self._rearmed = trio.Event()
        self._news = trio.Event()
        self._news.set()
        self._reaching: set[bytes] = set()
        self._learning = Locks()
        self._closed = False

    # -- for the packages above

    @property
    def counters(self) -> Counters:
        return self._detector.counters

    @property
    def awareness(self) -> int:
        """How slow this peer feels itself, 0 (not at all) to 8."""
        return self._detector.awareness.score

    @property
    def incarnation(self) -> int:
        """This peer's own."""
        return self._detector.incarnation

    @property
    def digests(self) -> Mapping[bytes, bytes]:
        """The newest digest of each peer, ours included, as it published it."""
        return self._detector.digests

    def health(self, peer_id: bytes) -> Health:
        """What we believe of that peer; one that is not known is ALIVE."""
        return self._detector.health(peer_id)

    def counts(self) -> dict[Health, int]:
        """Other peers by health."""
        return self._detector.members.counts()

    def doubt(self, peer_id: bytes) -> None:
        """There is evidence that this peer does not forward: probe it now."""
        self._handle(Doubt(peer_id))

    def publish(self, digest: bytes) -> None:
        """Say this of ourselves from now on, to all, within some rounds.

        Raises:
            InvalidInputError: it is longer than `MAX_DIGEST` bytes.
        """
        if len(digest) > MAX_DIGEST:
            raise InvalidInputError(f"digest: {len(digest)} bytes, at most {MAX_DIGEST} fit")
        self._handle(PublishDigest(digest))

    # -- for the overlay

    def roster_changed(self) -> None:
        """The peer table, or the membership, has changed."""
        self._news.set()

    def begin_anew(self, incarnation: int) -> None:
        """Our record is of that incarnation from now on, whatever it was before."""
        me = self._peers.identity.peer_id
        participant = self._roster.participant(me)
        self._roster.discard(me)
        self._roster.add(me, participant, incarnation)
        self._handle(Joined(me))

    def register(self, service: Service) -> None:
        """Serve pings and push-pulls to peers, and to nobody else."""
        service.unary(PING_METHOD, Knock, self._on_knock)
        service.unary(SYNC_METHOD, State, self._on_state, limit=2 * MAX_STATE)
        self._datagrams.on(Channel.GOSSIP, self._on_datagram)
        self._transport.doubted.add(self.doubt)

    async def leave(self) -> None:
        """Tell some peers that we stop; the others hear it from them."""
        effects = self._detector.handle(Leave(), trio.current_time())
        self._carry_out(effects)
        with trio.CancelScope(shield=True):
            for _ in range(4 * len(effects)):  # datagrams go out one a turn
                await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """Hear and say nothing more."""
        self._closed = True

    # -- tasks

    async def run(self) -> None:
        """Keep the detector's time."""
        while True:
            self._rearmed = trio.Event()
            due = self._detector.next_due()
            with trio.move_on_at(due) as scope:
                await self._rearmed.wait()
            if scope.cancelled_caught:
                self._handle(Tick())

    async def follow_roster(self) -> None:
        """Take over who is a member, whenever that changes."""
        while True:
            await self._news.wait()
            self._news = trio.Event()
            self.read_roster()
            await trio.sleep(ROSTER_GAP_S)

    def read_roster(self) -> None:
        """Take over who is a member now."""
        own = self._peers.identity.peer_id
        records = {record.peer_id: record for record in self._peers.all()}
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
            self._rearmed.set()

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Persist(incarnation):
                    self._persist(incarnation)
                case Send(peer, packet):
                    self._send(peer, encode_packet(packet))
                case Changed(peer, health):
                    self._on_change(peer, health)
                case Said(peer, content):
                    self.said.tell(peer, content)
                case Reach(peer, number):
                    if len(self._reaching) < MAX_REACHING and peer not in self._reaching:
                        self._reaching.add(peer)
                        self._nursery.start_soon(self._reach, peer, number)
                case PushPull(peer):
                    self._nursery.start_soon(self._sync, peer)

    def _persist(self, incarnation: int) -> None:
        try:
            self._store(incarnation)
        except MedusaError as error:
            # said all the same: unrefuted we would be dead now, and after a restart the clock
            # still makes an incarnation that is higher
            self._events.note("error", f"could not save the incarnation: {error}")

    def _send(self, peer: bytes, payload: bytes) -> None:
        addresses = self._peers.addresses_of(peer)
        if addresses:
            self._datagrams.send(Channel.GOSSIP, addresses[0], payload)

    def _on_change(self, peer: bytes, health: Health) -> None:
        record = self._peers.get(peer)
        name = str(record.name) if record is not None else peer.hex()
        if health is not Health.SUSPECT:  # suspicions come and go, and are counted
            said = {Health.LEFT: "has left"}.get(health, f"is {health.value}")
            verb = "found" if health is Health.ALIVE else "lost"
            level: Level = "warning" if health is Health.DEAD else "info"
            self._events.note(level, f"{verb} peer {name}: it {said}")
        if health is Health.DEAD:
            # whoever reads from it must not wait for a connection that nobody serves
            self._transport.give_up(peer, "gossip says that it is dead")
        if health is Health.ALIVE:
            self._transport.dial_again(peer)
        self.changed.tell(peer, health)

    # -- datagrams and calls

    def _on_datagram(self, sender: bytes, _address: Address, payload: bytes) -> None:
        self._handle(Received(sender, decode_packet(payload)))

    async def _on_knock(self, _caller: Caller, _knock: Knock, _body: Buffer) -> Here:
        return Here()

    async def _on_state(self, caller: Caller, state: State, _body: Buffer) -> State:
        assert caller.peer_id is not None
        await self._learn(caller.peer_id, state)
        return self._detector.state()

    async def _learn(self, peer: bytes, state: State) -> None:
        """Take in what another peer holds, a few signatures at a time: others have their turn in
        between, its own further states come after.

        Raises:
            DecodeError: it is larger than a peer sends.
        """
        if sum(len(item) for item in (*state.claims, *state.digests)) > MAX_STATE:
            raise DecodeError(f"gossip state: more than {MAX_STATE} bytes")
        async with self._learning.of(peer.hex()):
            for at in range(0, len(state.claims), LEARNT_AT_ONCE):
                part = State(state.claims[at : at + LEARNT_AT_ONCE], ())
                self._handle(Synced(peer, part))
                await trio.lowlevel.checkpoint()
            for at in range(0, len(state.digests), LEARNT_AT_ONCE):
                part = State((), state.digests[at : at + LEARNT_AT_ONCE])
                self._handle(Synced(peer, part))
                await trio.lowlevel.checkpoint()

    async def _sync(self, peer: bytes) -> None:
        with trio.move_on_after(SYNC_S):
            try:
                connection = await self._transport.connection(peer)
                state = await connection.call(
                    SYNC_METHOD, self._detector.state(), State, timeout_s=SYNC_S
                )
                await self._learn(peer, state)
            except MedusaError:
                pass  # probes will find out what is wrong with it; the next time is another's turn

    async def _reach(self, peer: bytes, number: int) -> None:
        """Over the stream, and if it cannot be reached, ask its machine whether it is gone."""
        try:
            with trio.move_on_after(self._config.probe_interval_s):
                try:
                    connection = await self._transport.connection(peer)
                    await connection.call(PING_METHOD, Knock(), Here, timeout_s=SYNC_S)
                except UnavailableError:
                    if await refuses_all(self._peers.addresses_of(peer)):
                        self._handle(Doubt(peer, gone=True))
                except MedusaError:
                    pass
                else:
                    self._handle(Reached(peer, number))
        finally:
            self._reaching.discard(peer)


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
    """The detector at work while open. Our own record must be announced. Left in good order, the
    others hear that we left; left by an exception of the block, they find out.

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
        incarnation=incarnation,
        reserved=incarnation + RESERVE,
        latest=lambda: latest_number(clock(), MICROS),
        now=trio.current_time(),
    )
    async with trio.open_nursery() as nursery:
        gossip = Gossip(
            detector,
            roster,
            peers,
            transport,
            datagrams,
            config=config,
            store=lambda incarnation: store_incarnation(folder, incarnation),
            events=events,
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
    """Whether the block was told to stop, and did not fail."""
    if isinstance(error, BaseExceptionGroup):
        return all(_only_cancelled(part) for part in error.exceptions)
    return isinstance(error, trio.Cancelled)
