"""Clients of a testnet: posters of numbered rows and subscribers, which survive all faults."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import trio

from medusa.contracts.delivery import DELIVER, Deliver, Delivered
from medusa.contracts.documents import (
    NONCE_BYTES,
    Proposal,
    accept,
    contract_id,
    propose,
    revoke,
)
from medusa.contracts.terms import LoadTerms, Menu
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.streams.revisions.corrections import Corrections, Kind
from medusa.overlay.concurrency import one_error
from medusa.overlay.errors import BusyError, InternalError, MedusaError, UnavailableError
from medusa.overlay.events import wall_clock
from medusa.overlay.identity import Root
from medusa.overlay.membership_file import load_membership
from medusa.testnet.kit.answers import Fold
from medusa.testnet.simulation.faults import Fault
from medusa.testnet.simulation.history import (
    Acknowledged,
    Attempted,
    Covered,
    Failed,
    History,
    PeerView,
    Posted,
    Reached,
    Received,
    Row,
    Tentative,
    rows_of,
    table_of,
)
from medusa.testnet.simulation.manifest import ContractTable, PosterTable, SubscriberTable
from medusa.tools.client.async_client import AsyncMedusaClient
from medusa.tools.home.folder import Home


class Place(Protocol):
    """The place of one peer's home, whether or not the peer runs."""

    @property
    def id(self) -> str: ...

    @property
    def participant(self) -> str: ...

    @property
    def home(self) -> Home: ...

    @property
    def up(self) -> bool: ...


class Testbed(Protocol):
    """Running peers that faults can be applied to."""

    @property
    def rng(self) -> random.Random: ...

    @property
    def peers(self) -> Mapping[str, Place]: ...

    def now(self) -> float:
        """Seconds since it began."""

    def note(self, kind: str, text: str, peer: str = "") -> None:
        """Add a line to the trace."""

    def client(
        self, name: str, *, producer: str | None = None, patience_s: float = 60.0
    ) -> AbstractAsyncContextManager[AsyncMedusaClient]:
        """A client of that peer."""

    async def inflict(self, fault: Fault) -> None:
        """Begin a fault.

        Raises:
            InvalidInputError: this kind of fault cannot be made here.
        """

    async def heal(self, fault: Fault) -> None:
        """End a fault that `inflict` began."""

    def look(self, *, books: bool = False) -> tuple[PeerView, ...]:
        """The internal states of the running peers, if visible. books: whether to include the
        content of their ledgers."""

    def covered(self, look: int) -> Iterable[Covered]:
        """The queries whose consumers may have no tuple that the secondary does not have; none if
        the peers do not show them."""

    def reached(self, look: int) -> Iterable[Reached]:
        """The tasks with a bound; none if the peers do not show them."""

    async def look_up(self, streams: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        """For each running peer that can be asked: the producer of each stream, as the peer's
        catalog names it. See `PeerView.producers`."""


PATIENCE_S: Final = 4.0
"""Seconds for which a client tries one peer before it goes to the next."""

RETRY_S: Final = 0.5
"""Seconds between two clients of one poster or subscriber."""

HURRIED: Final = 0.1
"""The factor by which a poster's pauses are multiplied after the heal."""

VALUES: Final = 1000


class PosterClient:
    """Posts until all rows are acknowledged: with one client after the other under one producer's
    name, each of which begins again with the first post. By `post_event`'s promise each post is
    stored once.

    Args:
        producer: the producer's name; a poster of another participant may have the same name.

    Attributes:
        hurried: whether its later pauses are multiplied by `HURRIED`.
        done: every row is acknowledged, or the poster has failed for good.
    """

    def __init__(
        self,
        bed: Testbed,
        history: History,
        table: PosterTable,
        producer: str,
        rng: random.Random,
    ) -> None:
        self._bed = bed
        self._history = history
        self._table = table
        self._producer = producer
        self._rng = rng
        self._posts: list[tuple[Posted, ...]] = []
        self._acknowledged = 0
        self._crashes_left = table.crashes
        self.hurried = False
        self.done = trio.Event()

    async def run(self) -> None:
        peers = itertools.cycle(self._table.at)
        try:
            while self._acknowledged < self._table.posts:
                try:
                    with one_error(), trio.move_on_after(self._life_s()) as life:
                        await self._post_by(next(peers))
                    if life.cancelled_caught:
                        self._bed.note("poster", f"{self._table.name} crashes")
                except (UnavailableError, BusyError) as error:
                    self._bed.note("poster", f"{self._table.name}: {error}")
                await trio.sleep(RETRY_S * self._rng.uniform(0.5, 1.5))
        except MedusaError as error:
            self._history.add(Failed(self._bed.now(), self._table.name, f"{error.code}: {error}"))
        finally:
            self.done.set()

    def _life_s(self) -> float:
        if not self._crashes_left:
            return float("inf")
        self._crashes_left -= 1
        return self._rng.uniform(0.2, 1.0) * self._table.posts * self._table.every_s

    async def _post_by(self, peer: str) -> None:
        stream, producer = self._table.stream, self._producer
        async with self._bed.client(peer, producer=producer, patience_s=PATIENCE_S) as client:
            for number in range(self._table.posts):
                if number == len(self._posts):
                    pause_s = self._rng.expovariate(1 / self._table.every_s)
                    await trio.sleep(pause_s * (HURRIED if self.hurried else 1.0))
                    self._make()
                await client.post_event(stream, table_of(self._posts[number]))
                if number >= self._acknowledged and self._rng.random() < 0.3:
                    await client.flush()
                    self._acknowledge(number + 1)
            await client.flush()
            self._acknowledge(self._table.posts)

    def _make(self) -> None:
        """Make the next post: from now on its rows may be stored."""
        now_us = int(self._bed.now() * 1e6)
        first = len(self._posts) * self._table.rows
        rows = tuple(
            Posted(
                now_us + offset,
                self._table.name,
                first + offset + 1,
                self._rng.randrange(self._table.keys),
                self._rng.randrange(VALUES),
            )
            for offset in range(self._table.rows)
        )
        self._posts.append(rows)
        self._history.add(Attempted(self._bed.now(), self._table.name, self._table.stream, rows))

    def _acknowledge(self, posts: int) -> None:
        if posts <= self._acknowledged:
            return
        self._acknowledged = posts
        upto = self._posts[posts - 1][-1].number if self._table.rows else 0
        self._history.add(Acknowledged(self._bed.now(), self._table.name, self._table.stream, upto))


def producer_names(posters: Sequence[PosterTable]) -> list[str]:
    """Names for the producers, distinct only for one stream and within one participant."""
    names, taken = [], Counter[tuple[str, str]]()
    for poster in posters:
        whose = poster.stream, poster.participant
        names.append(f"producer {taken[whose]}")
        taken[whose] += 1
    return names


class Reader:
    """A subscriber that goes from peer to peer with its boundary.

    Attributes:
        boundary: the boundary of its last epoch, microseconds.
        ended: the stream has ended, or the reader has failed for good.
    """

    def __init__(
        self, bed: Testbed, history: History, table: SubscriberTable, rng: random.Random
    ) -> None:
        self._bed = bed
        self._history = history
        self.table = table
        self._rng = rng
        self.boundary = BEGINNING
        self.ended = trio.Event()

    async def run(self) -> None:
        peers = itertools.cycle(self.table.at)
        try:
            while self.boundary < END:
                try:
                    with one_error(), trio.move_on_after(self._stay_s()):
                        await self._read_at(next(peers))
                except (UnavailableError, BusyError) as error:
                    self._bed.note("reader", f"{self.table.name}: {error}")
                await trio.sleep(RETRY_S * self._rng.uniform(0.5, 1.5))
        except MedusaError as error:
            self._history.add(Failed(self._bed.now(), self.table.name, f"{error.code}: {error}"))
        finally:
            self.ended.set()

    def _stay_s(self) -> float:
        return self._rng.uniform(0.5, 1.5) * self.table.stay_s

    async def _read_at(self, peer: str) -> None:
        if self.table.corrections is not None:
            await self._follow_at(peer, self.table.corrections)
            return
        async with (
            self._bed.client(peer, patience_s=PATIENCE_S) as client,
            client.subscribe(self.table.stream, self.boundary, self.table.name) as epochs,
        ):
            while self.boundary < END:
                epoch = await anext(epochs)
                self._history.add(
                    Received(
                        self._bed.now(),
                        self.table.name,
                        peer,
                        self.table.stream,
                        epoch.after,
                        epoch.upto,
                        rows_of(epoch.table),
                    )
                )
                self.boundary = epoch.upto

    async def _follow_at(self, peer: str, corrections: Corrections) -> None:
        """Follow with corrections: the tuples that become final count as received."""
        stream, name = self.table.stream, self.table.name
        async with (
            self._bed.client(peer, patience_s=PATIENCE_S) as client,
            client.follow(stream, corrections, self.boundary, name) as changes,
        ):
            key = (await client.stream_entry(stream)).schema.key
            fold = Fold(corrections, rows_of, _key_of(key), self.boundary)
            while self.boundary < END:
                change = await anext(changes)
                if change.kind is Kind.TENTATIVE:
                    given = Tentative(self._bed.now(), name, change.table.num_rows)
                    self._history.add(given)
                final = fold.apply(change)
                if final is not None:
                    rows = tuple(sorted(final.rows, key=_order))
                    self._history.add(
                        Received(self._bed.now(), name, peer, stream, final.after, final.upto, rows)
                    )
                if fault := fold.fault:
                    self._history.add(Failed(self._bed.now(), name, fault))
                self.boundary = fold.boundary


def _order(row: Row) -> list[tuple[bool, object]]:
    """The place of a row among others; nulls come last."""
    return [(value is None, value) for value in row.values()]


def _key_of(names: Sequence[str]) -> Callable[[Row], Hashable] | None:
    """The key of a row by the fields of a stream's key; None: the stream has none."""
    return (lambda row: tuple(row[name] for name in names)) if names else None


async def end_stream(bed: Testbed, stream: str, peers: tuple[str, ...]) -> None:
    """End a stream, through any peer that accepts it; tries for ever."""
    await persist(bed, peers, lambda peer: _end_by(bed, stream, peer))


async def _end_by(bed: Testbed, stream: str, peer: str) -> None:
    producer = f"end of {stream}"
    async with bed.client(peer, producer=producer, patience_s=PATIENCE_S) as client:
        await client.post_event(stream, None, end=True)
        await client.flush()


async def persist(
    bed: Testbed, peers: tuple[str, ...], attempt: Callable[[str], Awaitable[None]]
) -> None:
    """Try an action at one peer after the other until one can be reached.

    Raises:
        MedusaError: an error that retries cannot solve.
    """
    for peer in itertools.cycle(peers):
        try:
            with one_error():
                await attempt(peer)
        except (UnavailableError, BusyError) as error:
            bed.note("client", f"{peer}: {error}")
            await trio.sleep(RETRY_S)
        else:
            return


EARLIER_S: Final = 60.0
"""Seconds for which a new contract is already in force, because clocks differ."""

VALID_S: Final = 86_400.0


async def conclude(bed: Testbed, table: ContractTable, rng: random.Random) -> str:
    """Make a contract, and pass it to a peer of either party; returns its id.

    Raises:
        MedusaError: a peer does not take it.
    """
    one, other = (_root(bed, name) for name in (table.one, table.other))
    menu, now = Menu(most_load=table.most_load), wall_clock()
    proposal = propose(
        one,
        Proposal(
            federation=_federation(bed, table.one),
            proposer=table.one,
            accepter=table.other,
            terms=LoadTerms(*table.price, menu, menu, sublet=table.sublet),
            valid_from=now - EARLIER_S,
            valid_until=now + VALID_S,
            proposed_at=now,
            nonce=rng.randbytes(NONCE_BYTES),
        ),
    )
    acceptance = accept(other, proposal)
    for participant in (table.one, table.other):
        await _deliver(bed, f"{participant}/0", acceptance)
    return contract_id(proposal)


async def end_contract(bed: Testbed, table: ContractTable, contract: str) -> None:
    """Let `one` revoke the contract, through any of its peers; tries for ever."""
    document = revoke(_root(bed, table.one), _federation(bed, table.one), contract, wall_clock())
    peers = tuple(name for name, place in bed.peers.items() if place.participant == table.one)
    await persist(bed, peers, lambda peer: _deliver(bed, peer, document))
    bed.note("contract", f"{table.one} revokes {contract[:8]} with {table.other}")


async def _deliver(bed: Testbed, peer: str, document: bytes) -> None:
    async with bed.client(peer, patience_s=PATIENCE_S) as client:
        answer = await client._ask(DELIVER, Deliver((document,)), Delivered)
    if any(answer.reasons):
        raise InternalError(f"{peer} does not take a contract: {answer.reasons[0]}")


def _root(bed: Testbed, participant: str) -> Root:
    return Root.load(bed.peers[f"{participant}/0"].home.folder)


def _federation(bed: Testbed, participant: str) -> str:
    return load_membership(bed.peers[f"{participant}/0"].home.folder).federation
