"""Push-pull: two peers compare their statements and records, and each sends the missing ones.

Exchanges take place with random peers, repeatedly, and at once after news. So every peer learns all
admissions, revocations and addresses in about log2(peers) rounds (Demers et al., Epidemic
Algorithms for Replicated Database Maintenance, 1987).
"""

from __future__ import annotations

import random  # noqa: TID251 - a driver; tests pass a seeded one
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import trio
from msgspec import Struct

from medusa.overlay.addresses import Address, shown
from medusa.overlay.certificates import PeerName
from medusa.overlay.concurrency import Bell, Locks
from medusa.overlay.connection import Connection
from medusa.overlay.errors import MedusaError, RefusedError
from medusa.overlay.events import Change, Events, wall_clock
from medusa.overlay.membership import Membership
from medusa.overlay.names import PeerId
from medusa.overlay.peer_records import Stamp
from medusa.overlay.peers import PeerTable
from medusa.overlay.rpc import MAX_STRUCT_BYTES, Caller, Service
from medusa.overlay.streams import Buffer

EXCHANGE: Final = "overlay.exchange"
PUSH: Final = "overlay.push"

MAX_SENT: Final = 192 * 2**10
"""Bytes of each of the four lists in an answer: a message must stay below 1 MiB. The rest is part
of the next exchange, which follows at once."""

TAKEN_AT_ONCE: Final = 8
"""Statements or records that are verified before other tasks have their turn: some milliseconds."""

MAX_TOLD: Final = 10
"""Refused items of one message that get an event each: a hostile peer sends many."""

EXCHANGE_S: Final = 10.0
"""Seconds for one call, including dialling over a slow line."""

AT_ONCE: Final = 4
"""Exchanges under way at a time: the time-out of a dead peer must not delay the others."""

SPREAD: Final = 0.2
"""Part of the interval by which rounds are scattered, so that peers do not fall into step."""

FAIR: Final = 0.5
"""Part of the exchanges that choose a random participant first, and then one of its peers."""

MIN_GAP_S: Final = 0.05
"""Seconds between the starts of two of our exchanges: a peer with constant news must not keep all
others busy."""


Item = TypeVar("Item", bound=bytes)


class Offer(Struct, frozen=True):
    """The caller's inventory: digests of statements, stamps of peer records.

    Attributes:
        now: the time of its machine's clock, seconds since the epoch; None: not sent.
    """

    statements: tuple[bytes, ...]
    records: tuple[Stamp, ...]
    now: float | None = None


class Answer(Struct, frozen=True):
    """The statements and records that the caller lacks, and those that the callee asks for. now: as
    in `Offer`."""

    statements: tuple[bytes, ...]
    records: tuple[bytes, ...]
    wanted_statements: tuple[bytes, ...]
    wanted_records: tuple[PeerId, ...]
    now: float | None = None


class Push(Struct, frozen=True):
    """The statements and records that the callee asked for."""

    statements: tuple[bytes, ...]
    records: tuple[bytes, ...]


class Pushed(Struct, frozen=True):
    """The answer to `Push`. new: number of items that were new."""

    new: int


class Exchange:
    """Both sides' logic, sans-IO: it reads and changes the membership and the peer table."""

    def __init__(self, membership: Membership, peers: PeerTable) -> None:
        self._membership = membership
        self._peers = peers

    def welcome(self, participant: str, now: float) -> bytes | None:
        """Our statement that an invited participant has entered, after we have met a peer of it."""
        return self._membership.welcome(self._peers.identity, participant, now)

    def offer(self, now: float | None = None) -> Offer:
        return Offer(self._membership.have(), self._peers.have(), now)

    def answer(self, offer: Offer, now: float | None = None) -> Answer:
        ours = frozenset(self._membership.have())
        stamps = {stamp.peer_id: stamp for stamp in self._peers.have()}
        return Answer(
            _within(self._membership.missing(offer.statements)),
            _within(self._peers.missing(offer.records)),
            _within(tuple(digest for digest in offer.statements if digest not in ours)),
            _within(
                tuple(
                    stamp.peer_id
                    for stamp in offer.records
                    if stamp.peer_id not in stamps or stamps[stamp.peer_id] < stamp
                )
            ),
            now,
        )

    def push(self, answer: Answer) -> Push | None:
        """The items that the callee asked for, as far as we have them; None if we have none."""
        statements = _within(self._membership.pick(answer.wanted_statements))
        wanted = (self._peers.get(peer_id) for peer_id in answer.wanted_records)
        records = _within(tuple(record.data for record in wanted if record is not None))
        return Push(statements, records) if statements or records else None

    def take(
        self, statements: Sequence[bytes], records: Sequence[bytes], now: float
    ) -> list[Change]:
        """Take in statements first: the records are checked against the members that they admit."""
        return [*self._membership.merge(statements, now), *self._peers.merge(records, now)]


@dataclass(frozen=True)
class Clocks:
    """The clocks that an exchange uses; seconds since the epoch.

    Attributes:
        clock: the time that this peer goes by.
        shows: the reading of this machine's clock, which the peer may not believe. It is the time
            that others receive: if all clocks were set at once, no peer would otherwise ever
            believe the others.
        received: called with the reading of another participant's machine.
    """

    clock: Callable[[], float] = wall_clock
    shows: Callable[[], float] = wall_clock
    received: Callable[[str, float], None] = lambda _participant, _now: None


class Exchanger:
    """The driver: serves others' exchanges and starts our own.

    Args:
        learned: called after any news.
    """

    def __init__(
        self,
        core: Exchange,
        peers: PeerTable,
        *,
        events: Events,
        learned: Callable[[], None],
        clocks: Clocks | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._core = core
        self._peers = peers
        self._events = events
        self._learned = learned
        clocks = clocks or Clocks()
        self._received = clocks.received
        self._shows = clocks.shows
        self._clock = clocks.clock
        self._rng = rng or random.SystemRandom()
        self._wake = Bell()
        self._busy: set[PeerId | Address] = set()
        self._taking = Locks()

    def register(self, service: Service) -> None:
        """Serve exchanges to peers only."""
        service.unary(EXCHANGE, Offer, self._on_offer, limit=MAX_STRUCT_BYTES)
        service.unary(PUSH, Push, self._on_push, limit=3 * MAX_SENT)

    def notify(self) -> None:
        """Save our own news, and exchange at once."""
        self._learned()
        self.hurry()

    def hurry(self) -> None:
        """Exchange at once: there is news."""
        self._wake.ring()

    def take(self, statements: Sequence[bytes], records: Sequence[bytes]) -> list[Change]:
        """Take in items, note events, and pass on the news."""
        changes = self._core.take(statements, records, self._clock())
        refused = [change for change in changes if change.error is not None]
        for change in [c for c in changes if c.error is None] + refused[:MAX_TOLD]:
            self._events.note(change.level, change.text)
        if len(refused) > MAX_TOLD:
            self._events.note("warning", f"refused {len(refused) - MAX_TOLD} more with it")
        if any(change.error is None for change in changes):
            self.notify()
        return changes

    async def exchange(self, connection: Connection) -> None:
        """One push-pull with the peer at the other end.

        Raises:
            MedusaError: the exchange failed; the items learned so far stay.
        """
        self._welcome(connection.remote.participant)
        offer = self._core.offer(self._shows())
        answer = await connection.call(EXCHANGE, offer, Answer, timeout_s=EXCHANGE_S)
        self._compare(connection.remote.participant, answer.now)
        await self._take_from(connection.remote.participant, answer)
        push = self._core.push(answer)
        if push is not None:
            await connection.call(PUSH, push, Pushed, timeout_s=EXCHANGE_S)

    async def notify_all(
        self, peers: Sequence[PeerName], connect: Callable[[PeerId], Awaitable[Connection]]
    ) -> tuple[str, ...]:
        """Exchange with all of them at once; returns the participants that have received our
        news."""
        told: set[str] = set()

        async def notify(peer: PeerName) -> None:
            reason = ""
            for _ in range(2):  # a peer that has received the news may hang up before it answers
                try:
                    await self.exchange(await connect(peer.peer_id))
                except RefusedError:
                    pass  # the peer has received the news, and excludes this peer now
                except MedusaError as error:
                    reason = str(error)
                    continue
                told.add(peer.participant)
                return
            self._events.note("warning", f"could not tell {peer}: {reason}")

        async with trio.open_nursery() as nursery:
            for peer in peers:
                nursery.start_soon(notify, peer)
        return tuple(sorted(told))

    async def run(
        self,
        connect: Callable[[PeerId], Awaitable[Connection]],
        dial: Callable[[Address], Awaitable[Connection]],
        bootstrap: Sequence[Address],
        interval_s: float,
    ) -> None:
        """Exchange with a random peer every interval, and at once after news."""
        async with trio.open_nursery() as nursery:
            while True:
                self._wake.clear()
                partner = self._choose(bootstrap)
                if partner is not None and len(self._busy) < AT_ONCE:
                    self._busy.add(partner)
                    nursery.start_soon(self._round, partner, connect, dial)
                await trio.sleep(MIN_GAP_S)
                pause = interval_s * self._rng.uniform(1 - SPREAD, 1 + SPREAD)
                with trio.move_on_after(pause):
                    await self._wake.wait()

    def _choose(self, bootstrap: Sequence[Address]) -> PeerId | Address | None:
        """A random peer, or a bootstrap address whose peer is unknown.

        Every other time a peer of a random participant is chosen: one participant with many peers
        must not be the only source of news.
        """
        own = self._peers.identity.peer_id
        of: dict[str, list[PeerId | Address]] = {}
        for record in self._peers.all():
            if record.peer_id != own and record.peer_id not in self._busy:
                of.setdefault(record.participant, []).append(record.peer_id)
        unknown = [address for address in bootstrap if self._peers.by_address(address) is None]
        of["an address"] = [address for address in unknown if address not in self._busy]
        groups = [partners for partners in of.values() if partners]
        if not groups:
            return None
        if self._rng.random() < FAIR:
            return self._rng.choice(self._rng.choice(groups))
        return self._rng.choice([partner for partners in groups for partner in partners])

    async def _round(
        self,
        partner: PeerId | Address,
        connect: Callable[[PeerId], Awaitable[Connection]],
        dial: Callable[[Address], Awaitable[Connection]],
    ) -> None:
        try:
            with trio.fail_after(2 * EXCHANGE_S):
                if isinstance(partner, bytes):
                    connection = await connect(partner)
                else:
                    connection = await dial(partner)
                await self.exchange(connection)
        except trio.TooSlowError:
            self._failed(partner, "no answer in time")
        except MedusaError as error:
            self._failed(partner, str(error))
        finally:
            self._busy.discard(partner)

    def _failed(self, partner: PeerId | Address, reason: str) -> None:
        # a known peer that is away is no event; an address that refuses this peer is one
        if not isinstance(partner, bytes):
            self._events.note("warning", f"cannot join by {shown(partner)}: {reason}")

    async def _on_offer(self, caller: Caller, offer: Offer, _body: Buffer) -> Answer:
        self._compare(caller.participant, offer.now)
        self._welcome(caller.participant)
        return self._core.answer(offer, self._shows())

    async def _on_push(self, caller: Caller, push: Push, _body: Buffer) -> Pushed:
        return Pushed(await self._take_from(caller.participant, push))

    async def _take_from(self, participant: str, said: Push | Answer) -> int:
        """Take in another peer's items, a few signatures at a time. Other tasks have their turn in
        between, and further messages of the same participant wait. Returns the number of new items.
        """
        statements, records = _within(said.statements), _within(said.records)
        new = 0
        async with self._taking.of(participant):
            for at in range(0, len(statements), TAKEN_AT_ONCE):
                new += _news(self.take(statements[at : at + TAKEN_AT_ONCE], ()))
                await trio.lowlevel.checkpoint()
            for at in range(0, len(records), TAKEN_AT_ONCE):
                new += _news(self.take((), records[at : at + TAKEN_AT_ONCE]))
                await trio.lowlevel.checkpoint()
        return new

    def _welcome(self, participant: str) -> None:
        statement = self._core.welcome(participant, self._clock())
        if statement is not None:
            self.take((statement,), ())

    def _compare(self, participant: str, now: float | None) -> None:
        if now is not None:
            self._received(participant, now)


def _news(changes: Iterable[Change]) -> int:
    return sum(1 for change in changes if change.error is None)


def _within(items: Sequence[Item]) -> tuple[Item, ...]:
    """The first items, up to the limit of one message."""
    taken: list[Item] = []
    room = MAX_SENT
    for item in items:
        room -= len(item)
        if room < 0:
            break
        taken.append(item)
    return tuple(taken)
