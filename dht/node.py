"""A node of the DHT, as the catalog's `Directory`: silence becomes a typed error."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random  # noqa: TID251 -- the type only: the generator is passed in
from typing import Final

import trio

from medusa.dht.config import DhtConfig
from medusa.dht.directory import Contacts, Replicas, Wire
from medusa.dht.kademlia_bridge import Bridge, open_bridge
from medusa.dht.records import KEY_BYTES
from medusa.dht.shares import chosen
from medusa.overlay.backoff import Backoff
from medusa.overlay.concurrency import next_beat
from medusa.overlay.errors import ConflictError, MedusaError, UnavailableError
from medusa.overlay.events import Events
from medusa.overlay.names import PeerId

FIRST_WAIT_S: Final = 1.0
"""Seconds after the first unanswered greeting, at most."""

MAX_WAIT_S: Final = 60.0
"""Seconds between greetings of a silent peer: a returning peer is met within a minute."""

MAX_AT_ONCE: Final = 8
"""Greetings in a round: a large peer table is met over some rounds, not in one burst, and the peers
of one large participant do not keep the others waiting."""


@dataclass(slots=True)
class _Greeted:
    next_at: float
    backoff: Backoff


class NewContacts:
    """Chooses the peers to greet: those of the peer table that are not neighbours yet.

    A new peer is greeted soon, a silent one ever more rarely. Times are seconds of any one clock.
    """

    def __init__(self, rng: Random, participant_of: Callable[[PeerId], str]) -> None:
        self._rng = rng
        self._participant_of = participant_of
        self._greeted: dict[PeerId, _Greeted] = {}

    def due(self, known: Iterable[PeerId], met: Collection[PeerId], now: float) -> list[PeerId]:
        """Some of the unmet peers whose time has come; they count as greeted."""
        strangers = [peer for peer in known if peer not in met]
        self._greeted = {peer: self._greeted[peer] for peer in strangers if peer in self._greeted}
        ready = [peer for peer in strangers if self._is_due(peer, now)]
        self._rng.shuffle(ready)
        greeted = chosen(ready, self._participant_of, MAX_AT_ONCE)
        for peer in greeted:
            entry = self._greeted.setdefault(peer, _Greeted(now, Backoff(FIRST_WAIT_S, MAX_WAIT_S)))
            entry.next_at = now + entry.backoff.failed(self._rng)
        return greeted

    def any_due(self, strangers: Iterable[PeerId], now: float) -> bool:
        """Whether there is a peer to greet now."""
        return any(self._is_due(peer, now) for peer in strangers)

    def begins(self, strangers: Iterable[PeerId], now: float) -> bool:
        """Whether any of them has not been greeted yet, or still has time to answer its first
        greeting."""
        return any(
            greeted is None or (greeted.backoff.failures == 1 and now < greeted.next_at)
            for greeted in map(self._greeted.get, strangers)
        )

    def _is_due(self, peer: PeerId, now: float) -> bool:
        greeted = self._greeted.get(peer)
        return greeted is None or greeted.next_at <= now


class Node:
    """Implements `medusa.dht.directory.Directory`. Made by `open_node`."""

    def __init__(
        self,
        bridge: Bridge,
        contacts: Contacts,
        replicas: Replicas,
        config: DhtConfig,
        rng: Random,
    ) -> None:
        self._bridge = bridge
        self._contacts = contacts
        self._replicas = replicas
        self._config = config
        self._rng = rng
        self._strangers = NewContacts(rng, contacts.participant_of)
        self._greeting = 0

    @property
    def counts(self) -> Counter[str]:
        """Datagrams dropped and records refused or handed over, by reason."""
        return self._bridge.counts

    def neighbours(self) -> list[PeerId]:
        return self._bridge.neighbours()

    async def put(self, key: bytes, value: bytes) -> int:
        await self._be_ready()
        placed = await self._bridge.place(key, value)
        answers = placed.own + placed.others
        refusals = [MedusaError.from_wire(a.code, a.reason) for a in answers if a.code]
        for refusal in refusals:
            if isinstance(refusal, ConflictError):
                raise refusal
        # if other nodes should hold it too, this node's own copy is not enough
        lonely = not any(not answer.code for answer in placed.others)
        if lonely and (placed.asked or (not self.neighbours() and self._contacts.are_expected())):
            alone = UnavailableError(f"no other peer answers; {key.hex()} is stored here alone")
            raise refusals[0] if refusals else alone
        if len(refusals) == len(answers):
            raise refusals[0]
        return len(answers) - len(refusals)

    async def get(self, key: bytes) -> list[bytes]:
        await self._be_ready()
        found = await self._bridge.collect(key)
        if not found.values and not self._replicas.held(key) and self._is_joining():
            await self._greet_others()  # one of those peers may have the value
            found = await self._bridge.collect(key)
        values = found.values | frozenset(self._replicas.held(key))
        # this node counts as asked and answering: the answers, its own included, must be a majority
        certain = 2 * (found.answered + 1) > found.asked + 1 and found.asked > 0
        if not values and self._contacts.are_expected() and not certain:
            raise UnavailableError(
                f"{found.answered} of the {found.asked} peers that were asked have answered"
            )
        return sorted(values)

    async def joined(self, count: int) -> None:
        """Wait until there are that many neighbours."""
        await trio.lowlevel.checkpoint()
        while len(self.neighbours()) < count:
            await self._bridge.met()

    async def keep_up(self) -> None:
        """Meet new peers and keep the routing table full, for ever."""
        refresh_at = trio.current_time()
        async with trio.open_nursery() as nursery:
            while True:
                if due := self._due():
                    self._greeting += 1
                    nursery.start_soon(self._greet, due)
                if trio.current_time() >= refresh_at and self.neighbours():
                    refresh_at = trio.current_time() + self._config.refresh_s
                    nursery.start_soon(self._refresh)
                await trio.sleep_until(next_beat(self._config.meet_s))

    def _due(self) -> list[PeerId]:
        """The peers to greet now; they count as greeted."""
        known, met = self._contacts.known(), set(self.neighbours())
        return self._strangers.due(known, met, trio.current_time())

    async def _greet(self, due: list[PeerId]) -> None:
        try:
            await self._bridge.greet(due)
        finally:
            self._greeting -= 1

    async def _refresh(self) -> None:
        for _ in range(2):
            await self._bridge.crawl(self._rng.randbytes(KEY_BYTES))

    async def _be_ready(self) -> None:
        """Without neighbours, wait for the first greeted peer to answer."""
        await trio.lowlevel.checkpoint()
        if self.neighbours():
            return
        if self._greeting or self._strangers.any_due(self._contacts.known(), trio.current_time()):
            config = self._config
            with trio.move_on_after(config.meet_s + config.attempts * config.attempt_s):
                await self._bridge.met()

    def _is_joining(self) -> bool:
        """Whether this node has so few neighbours yet that an unmet peer may be nearest to a
        key."""
        neighbours = self.neighbours()
        strangers = set(self._contacts.known()).difference(neighbours)
        few = len(neighbours) < self._config.copies
        return few and self._strangers.begins(strangers, trio.current_time())

    async def _greet_others(self) -> None:
        with trio.move_on_after(self._config.meet_s + FIRST_WAIT_S):
            while self._is_joining():
                with trio.move_on_after(self._config.meet_s):
                    await self._bridge.met()


@asynccontextmanager
async def open_node(
    node_id: PeerId,
    out: Wire,
    contacts: Contacts,
    replicas: Replicas,
    *,
    config: DhtConfig,
    events: Events,
    rng: Random,
) -> AsyncIterator[Node]:
    """Run a node of the DHT. `node_id` is the peer's id, which its datagrams' signatures prove."""
    async with (
        open_bridge(node_id, out, contacts, replicas, config=config, events=events) as bridge,
        trio.open_nursery() as nursery,
    ):
        node = Node(bridge, contacts, replicas, config, rng)
        nursery.start_soon(node.keep_up)
        try:
            yield node
        finally:
            nursery.cancel_scope.cancel()
