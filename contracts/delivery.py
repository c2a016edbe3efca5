"""Delivers contract documents to the peers of both parties, and to no other.

A new document, from a command of this home or from another peer, is sent to every peer of our
participant and of the counterparty, until they say that they hold it. A second delivery does no
harm, so deliveries are remembered in memory only.
"""

from __future__ import annotations

import random  # noqa: TID251 - a driver; tests pass a seeded one
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import trio
from msgspec import Struct

from medusa.contracts.book import Book
from medusa.contracts.config import MarketTiming
from medusa.contracts.contract import SHORT_ID, Contract, State
from medusa.contracts.documents import MAX_DOCUMENT, open_document
from medusa.contracts.outbox import Outbox
from medusa.overlay.concurrency import Bell
from medusa.overlay.errors import DecodeError, MedusaError, UntrustedError, printable
from medusa.overlay.listeners import Listeners
from medusa.overlay.names import NO_PEER
from medusa.overlay.node.node import Overlay
from medusa.overlay.peer_records import PeerRecord
from medusa.overlay.rpc import Caller

DELIVER: Final = "contract.deliver"

MAX_DOCUMENTS: Final = 32
"""Documents of one call: with the largest, half a message's limit of 1 MiB."""

CALL_S: Final = 10.0
"""Seconds for one call; the other side checks a signature or two for each document."""

PASS_ON_S: Final = 3.0
"""Seconds that a command waits until its document reaches other peers; the peer goes on trying."""

AT_ONCE: Final = 4
"""Peers called at a time: the time-out of a dead one must not delay the others."""

MAX_HURRIED: Final = 32
"""Peers called at once for a command: those of two participants. More follow in turn."""

MAX_REASON: Final = 300
"""The most characters of the reason for which another participant's peer refuses a document: the
reason is untrusted text, shown on a screen."""


class Deliver(Struct, frozen=True):
    """Delivers documents to keep (contracts/documents.py). From a client: to be passed on as
    well."""

    documents: tuple[bytes, ...]


class Holder(Struct, frozen=True):
    """A peer that holds the delivered documents. peer: its id (hex)."""

    participant: str
    peer: str


class Delivered(Struct, frozen=True):
    """The answer to `Deliver`: the documents that are now held, and the other peers that hold them.

    Attributes:
        reasons: for each document, why it is not held; "": it is held.
        news: for clients: the news in words.
        holders: for clients: the other peers that hold the documents by now.
        refused: for clients: the other peers' refusals, with reasons.
    """

    reasons: tuple[str, ...]
    news: tuple[str, ...] = ()
    holders: tuple[Holder, ...] = ()
    refused: tuple[str, ...] = ()


class Contracts:
    """The contracts of a running peer.

    Attributes:
        book: the contracts held here.
        changed: called whenever a document arrived, or the contracts in force changed (also by
            time, or because a member left).
    """

    def __init__(
        self,
        overlay: Overlay,
        book: Book,
        clock: Callable[[], float],
        rng: random.Random,
        timing: MarketTiming,
    ) -> None:
        self.book = book
        self._overlay = overlay
        self._clock = clock
        self._timing = timing
        self._outbox = Outbox(rng)
        self._merging = threading.Lock()
        self._wake = Bell()
        self.changed: Listeners[[]] = Listeners()
        self._in_force: frozenset[str] | None = None
        self._damaged: tuple[str, ...] = ()

    def in_force(self) -> tuple[Contract, ...]:
        """The contracts that bind now."""
        return self.book.in_force(self._clock())

    def register(self) -> None:
        """Serve deliveries to peers and to our own clients."""
        limit = MAX_DOCUMENTS * (MAX_DOCUMENT + 64)
        self._overlay.service.unary(DELIVER, Deliver, self._on_deliver, clients=True, limit=limit)

    async def run(self) -> None:
        """Deliver missing documents and watch the contracts in force, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                self._wake.clear()
                self._review()
                now = trio.current_time()
                for record in self._outbox.due(self._wanted(), now, AT_ONCE):
                    nursery.start_soon(self._deliver, record, [])
                with trio.move_on_after(self._pause(now)):
                    await self._wake.wait()

    # -- arriving documents -----------------------------------------------------------------------

    async def _on_deliver(self, caller: Caller, request: Deliver, _: bytes) -> Delivered:
        if len(request.documents) > MAX_DOCUMENTS:
            raise DecodeError(
                f"{DELIVER}: {len(request.documents)} documents, at most {MAX_DOCUMENTS} at once"
            )
        own = caller.peer_id is None
        if own:  # a command has written to the folder
            await trio.to_thread.run_sync(self._reload)
        taking = partial(self._take, request.documents, caller.participant)
        reasons, news = await self._overlay.threads.run(caller.participant, taking)
        for text in news:
            self._overlay.events.note("info", text)
        if news or own:
            self._changed()
        if own:
            holders, refused = await self._pass_on(request.documents)
            return Delivered(reasons, news, holders, refused)
        self._brought(caller, request.documents)
        for reason in filter(None, reasons):
            self._overlay.events.note(
                "warning", f"refused a document of {caller.participant}: {reason}"
            )
        return Delivered(reasons)

    def _brought(self, caller: Caller, documents: Iterable[bytes]) -> None:
        """Note that the caller holds the documents that it delivered: they are not sent back."""
        record = self._overlay.peers.get(caller.peer_id or NO_PEER)
        brought = set(documents)
        if record is not None:
            contracts = self._wanted().get(record, ())
            self._outbox.holds(record, [c for c in contracts if brought >= set(c.documents)])

    def _reload(self) -> None:
        with self._merging:
            self.book.reload()

    def _take(
        self, documents: Sequence[bytes], participant: str
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Merge the documents that the participant may deliver; returns refusals and news."""
        reasons: list[str] = []
        news: list[str] = []
        now = self._clock()
        for data in documents:
            try:
                self._check_party(data, participant)
                with self._merging:
                    text = self.book.merge(data, now)
            except MedusaError as error:
                reasons.append(str(error))
            else:
                reasons.append("")
                news += [text] if text else []
        return tuple(reasons), tuple(news)

    def _check_party(self, data: bytes, participant: str) -> None:
        """
        Raises:
            DecodeError: no document.
            UntrustedError: the caller is not a party of the contract.
        """
        document = open_document(data)
        if participant not in self.book.parties_of(document):
            raise UntrustedError(f"contract {document.contract}: {participant} is no party to it")

    # -- delivering -------------------------------------------------------------------------------

    async def _pass_on(
        self, documents: Iterable[bytes]
    ) -> tuple[tuple[Holder, ...], tuple[str, ...]]:
        """Deliver these at once, for `PASS_ON_S`; returns the peers that then hold them all, and
        the refusals."""
        meant = set(documents)
        wanted: dict[PeerRecord, tuple[Contract, ...]] = {}
        for record, contracts in self._wanted().items():
            brought = tuple(c for c in contracts if meant.intersection(c.documents))
            if brought:
                wanted[record] = brought
        now = trio.current_time()
        refusals: list[str] = []
        with trio.move_on_after(PASS_ON_S):
            async with trio.open_nursery() as nursery:
                for record in self._outbox.due(wanted, now, MAX_HURRIED, hurry=True):
                    nursery.start_soon(self._deliver, record, refusals)
        holders = tuple(
            Holder(record.participant, record.peer_id.hex())
            for record, contracts in wanted.items()
            if not self._outbox.missing(record, contracts)
        )
        return holders, tuple(refusals)

    def _wanted(self) -> dict[PeerRecord, tuple[Contract, ...]]:
        """The contracts that each other peer should hold."""
        now, own = self._clock(), self._overlay.identity
        live: dict[str, list[Contract]] = {}
        for contract in self.book.all():
            if now < contract.proposal.valid_until:
                for party in contract.proposal.parties:
                    live.setdefault(party, []).append(contract)
        return {
            record: tuple(live[record.participant])
            for record in self._overlay.peers.all()
            if record.participant in live and record.peer_id != own.peer_id
        }

    async def _deliver(self, record: PeerRecord, refusals: list[str]) -> None:
        """Deliver a peer's missing documents. Failures are tried again later.

        Args:
            refusals: the peer's refusals and reasons are added to it.
        """
        complete = False
        try:
            connection = await self._overlay.connect(record.peer_id)
            for batch in _batches(self._outbox.missing(record, self._wanted().get(record, ()))):
                documents = tuple(data for contract in batch for data in contract.documents)
                answer = await connection.call(
                    DELIVER, Deliver(documents), Delivered, timeout_s=CALL_S
                )
                held = _held(batch, answer.reasons)
                self._outbox.holds(record, held)
                refusals += [
                    f"{record.name}: {printable(reason[:MAX_REASON])}"
                    for reason in answer.reasons[: len(documents)]
                    if reason
                ]
            complete = not self._outbox.missing(record, self._wanted().get(record, ()))
        except MedusaError:
            pass  # the peer is away; it is tried again
        finally:
            self._outbox.done(record, trio.current_time(), ok=complete)
            self._wake.ring()
        for text in refusals:
            self._overlay.events.note("warning", f"could not deliver to {text}")

    # -- contracts in force -----------------------------------------------------------------------

    def _changed(self) -> None:
        self.changed.notify()
        self._wake.ring()

    def _review(self) -> None:
        """Note contracts that came into force or ended since the last time."""
        now = self._clock()
        before, after = self._in_force, frozenset(c.id for c in self.book.in_force(now))
        for problem in set(self.book.problems) - set(self._damaged):
            self._overlay.events.note("warning", f"cannot believe a contract: {problem}")
        self._damaged = self.book.problems
        self._in_force = after
        if before is None or before == after:
            return
        for contract in self.book.all():
            if contract.id in before ^ after:
                self._notify(contract, self.book.state(contract, now))
        self.changed.notify()

    def _notify(self, contract: Contract, state: State) -> None:
        other = contract.counterparty(self.book.participant)
        text = f"finds contract {contract.id[:SHORT_ID]} with {other} {state}"
        self._overlay.events.note("warning" if state is State.BARRED else "info", text)

    def _pause(self, now: float) -> float:
        """Seconds until the next check, unless something happens."""
        clock = self._clock()
        until = self.book.next_change(clock) - clock
        return max(0.0, min(self._timing.review_s, until, self._outbox.wake_at - now))


def _batches(contracts: Sequence[Contract]) -> list[list[Contract]]:
    """Batches for as few calls as the limit allows; a contract's documents stay together."""
    most = MAX_DOCUMENTS // 2
    return [list(contracts[at : at + most]) for at in range(0, len(contracts), most)]


def _held(contracts: Iterable[Contract], reasons: Sequence[str]) -> list[Contract]:
    """The contracts all of whose documents were taken. A missing reason counts as a refusal."""
    held: list[Contract] = []
    at = 0
    for contract in contracts:
        end = at + len(contract.documents)
        if reasons[at:end] and len(reasons) >= end and not any(reasons[at:end]):
            held.append(contract)
        at = end
    return held


@asynccontextmanager
async def open_contracts(
    overlay: Overlay,
    home: Path,
    timing: MarketTiming,
    *,
    rng: random.Random | None = None,
) -> AsyncIterator[Contracts]:
    """Deliver and watch the contracts of the peer in `home`, during the block.

    Raises:
        InvalidInputError: the folder of the contracts cannot be made or read.
    """
    book = Book(home, overlay.membership, overlay.identity.participant)
    contracts = Contracts(overlay, book, overlay.clock, rng or random.SystemRandom(), timing)
    contracts.register()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(contracts.run)
        try:
            yield contracts
        finally:
            nursery.cancel_scope.cancel()
