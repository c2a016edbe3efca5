"""The payer's side of content contracts: declares the streams that its queries read, and the
intervals.

A deal begins before its subscription does, at the requested boundary. It ends when no query of ours
reads the stream any more, or the contract has ended. The payee is the peer that keeps the stream,
even while another peer computes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from random import SystemRandom
from typing import Final

import trio
from msgspec import Struct

from medusa.contracts.config import MarketTiming
from medusa.contracts.contract import Contract
from medusa.contracts.deals import Account, DealKey, content_rate
from medusa.contracts.delivery import Contracts
from medusa.contracts.ledger import Standing
from medusa.contracts.terms import ContentTerms
from medusa.engine.objects.schema import END
from medusa.engine.replication.directory.directory import Directory
from medusa.engine.streams.messages import Done
from medusa.engine.streams.store.stream_state import StreamState
from medusa.overlay.backoff import Backoff
from medusa.overlay.errors import (
    BusyError,
    ConflictError,
    InvalidInputError,
    MedusaError,
    NotFoundError,
    UnavailableError,
)
from medusa.overlay.names import PeerId
from medusa.overlay.node.node import Overlay
from medusa.tools.market.boundaries import clamped, stime_of
from medusa.tools.market.content_deals import (
    Begin,
    Over,
    content_contracts,
    deals_in,
    ended,
    period_start,
    rate_of,
)
from medusa.tools.market.content_sender import BEGIN, OVER
from medusa.tools.market.meters import PaidStreams, StreamMeter
from medusa.tools.market.settler import Settler
from medusa.tools.market.standstill import Standstills

CALL_S: Final = 5.0
"""Seconds for a call to the sender: a subscription waits for it."""


@dataclass(slots=True)
class _Try:
    """The tries to begin a deal.

    Attributes:
        start: the boundary from which on to pay. backoff: the waits between two tries. at: when to
        try again, on trio's clock, seconds. told: the number of the deal's term that the sender has
        received.
    """

    start: int
    backoff: Backoff
    at: float = 0.0
    told: int | None = None


class ContentReceiver:
    """Begins and ends the deals for the streams that this peer reads under content contracts.

    Args:
        nursery: runs the calls to senders.
    """

    def __init__(
        self,
        *,
        overlay: Overlay,
        directory: Directory,
        contracts: Contracts,
        settler: Settler,
        streams: PaidStreams,
        timing: MarketTiming,
        nursery: trio.Nursery,
    ) -> None:
        self._overlay = overlay
        self._directory = directory
        self._contracts = contracts
        self._settler = settler
        self._streams = streams
        self._again_s = timing.content_again_s
        self._random = SystemRandom()
        self._nursery = nursery
        self._own = overlay.identity.peer_id
        self._participant = overlay.identity.participant
        self._tries: dict[str, _Try] = {}
        self._over: dict[DealKey, float] = {}
        self._one_at_a_time = trio.Lock()
        self._standstills = Standstills(overlay.events)

    def resume(self) -> None:
        """End the deals of the last run whose streams are no longer read."""
        for standing in self._paying():
            task = standing.deal.task
            if self._streams.received(task) is None:
                self._end(standing, self._streams.state(task))

    async def look(self, in_force: set[str]) -> None:
        """Begin and end deals as contracts come and go. in_force: the ids of the contracts in
        force."""
        ours = self._ours()
        for standing in ours:
            self._say_over(standing)
            if standing.end is None and standing.deal.contract not in in_force:
                self._end(standing, self._streams.received(standing.deal.task))
        for contract, terms in self._receiving():
            state = self._streams.received(terms.stream)
            self._standstills.look(contract, terms, state, trio.current_time())
            if state is not None:
                await self._ensure(contract, terms, state.log.boundary)
        self._tries = {key: each for key, each in self._tries.items() if key in in_force}
        kept_deals = {standing.deal.key for standing in ours}
        self._over = {key: at for key, at in self._over.items() if key in kept_deals}

    async def opening(self, mirror: str, read_as: str, after: int) -> None:
        """A local copy is about to be read under that name, from that boundary on: begin its
        deal."""
        if after == END:
            return  # only the final acknowledgement follows
        before = self._streams.name_of(mirror)
        if before != read_as:
            self._end_all(before, self._streams.state(mirror))
        self._streams.read_as(mirror, read_as)
        for contract, terms in self._receiving():
            if terms.stream == read_as:
                await self._ensure(contract, terms, after, hurry=True)

    def left(self, state: StreamState) -> None:
        """End the deal of a copy that no query of ours reads any more."""
        self._end_all(self._streams.read_no_more(state.name), state)

    # -- deals ----------------------------------------------------------------------------------

    async def _ensure(
        self, contract: Contract, terms: ContentTerms, start: int, *, hurry: bool = False
    ) -> None:
        """Make sure that there is a deal from that boundary on, and that the sender knows it."""
        async with self._one_at_a_time:
            attempt = self._tries.setdefault(contract.id, _Try(start, Backoff(*self._again_s)))
            standing = self._deal_under(contract)
            known = standing is not None and standing.deal.term_number == attempt.told
            if not hurry and (known or trio.current_time() < attempt.at):
                return
            try:
                if standing is None:
                    standing = await self._begin(contract, terms, attempt.start)
                await self._notify(standing)
            except MedusaError as error:
                attempt.at = trio.current_time() + attempt.backoff.failed(self._random)
                text = f"cannot pay for {terms.stream} (contract {contract.short_id}): {error}"
                self._overlay.events.note("warning", text)
            else:
                attempt.told = standing.deal.term_number
                attempt.backoff.succeeded()

    async def _begin(self, contract: Contract, terms: ContentTerms, start: int) -> Standing:
        account = Account(contract.id, self._own, await self._payee(terms))
        now = self._settler.now_us()
        # greater than any before, whatever the clock says
        term_number = max(
            [now, *(1 + each.deal.term_number for each in deals_in(self._settler.ledger))]
        )
        rate = content_rate(terms, period_start(contract, terms, now))
        self._settler.agree_on(account, rate, terms.stream, term_number=term_number, since=start)
        self._streams.hold_for_bills()
        text = f"pays for {terms.stream}: contract {contract.short_id}"
        self._overlay.events.note("info", text)
        standing = self._deal_under(contract)
        assert standing is not None, "it was agreed on just now"
        return standing

    async def _payee(self, terms: ContentTerms) -> PeerId:
        """
        Raises:
            NotFoundError: the sender does not produce the stream.
            UnavailableError: the catalog does not answer.
        """
        for peer in await self._directory.publishers(terms.stream):
            record = self._overlay.peers.get(peer)
            if record is not None and record.participant == terms.sender:
                return peer
        raise NotFoundError(f"no peer of {terms.sender} produces it")

    async def _notify(self, standing: Standing) -> None:
        deal = standing.deal
        since = rate_of(standing).since
        request = Begin(deal.contract, deal.task, deal.term_number, deal.start, since)
        try:
            await self._call(deal.payee, BEGIN, request)
        except (NotFoundError, InvalidInputError, ConflictError):
            # the sender cannot have this deal: the next one begins where this one is paid
            self._tries[deal.contract].start = standing.billed
            self._settler.ledger.forget_deal(standing)
            raise

    def _end_all(self, stream: str, state: StreamState | None) -> None:
        for standing in self._paying():
            if standing.deal.task == stream:
                self._end(standing, state)
        for contract, terms in self._receiving():
            if terms.stream == stream:
                self._tries.pop(contract.id, None)

    def _end(self, standing: Standing, state: StreamState | None) -> None:
        """End a deal: count the unbilled tuples while they are here.

        Args:
            state: the local copy of the stream; None: it is gone.
        """
        billed = standing.billed
        upto, rows = billed, 0
        if state is not None:
            meter = StreamMeter(state, rate_of(standing), self._settler.now_us(), bills=True)
            upto = max(billed, clamped(meter.boundary))
            rows = meter.count(stime_of(billed), stime_of(upto))
        self._settler.handle(ended(standing, upto))
        self._settler.ledger.keep_tail(standing, billed, rows)
        self._say_over(standing)

    def _say_over(self, standing: Standing) -> None:
        """Tell the sender the end of its deal, repeatedly until it answers."""
        deal = standing.deal
        if standing.end is not None and self._over.get(deal.key, 0.0) <= trio.current_time():
            self._over[deal.key] = trio.current_time() + self._again_s[1]
            over = Over(deal.contract, deal.task, deal.term_number, standing.end)
            self._nursery.start_soon(self._carry_over, deal.key, over)

    async def _carry_over(self, key: DealKey, over: Over) -> None:
        try:
            await self._call(key.account.payee, OVER, over)
        except (UnavailableError, BusyError):
            return
        except MedusaError:
            pass  # the sender knows no such deal
        self._over[key] = inf

    def _ours(self) -> list[Standing]:
        """The deals that we pay, ended ones too."""
        return [each for each in deals_in(self._settler.ledger) if each.deal.payer == self._own]

    def _paying(self) -> list[Standing]:
        """The deals that we pay and that have not ended."""
        return [each for each in self._ours() if each.end is None]

    def _deal_under(self, contract: Contract) -> Standing | None:
        return next((each for each in self._paying() if each.deal.contract == contract.id), None)

    def _receiving(self) -> list[tuple[Contract, ContentTerms]]:
        """The contracts in force under which we pay."""
        return [
            (contract, terms)
            for contract, terms in content_contracts(self._contracts)
            if terms.sender != self._participant
        ]

    async def _call(self, peer: PeerId, method: str, request: Struct) -> None:
        connection = await self._overlay.connect(peer)
        await connection.call(method, request, Done, timeout_s=CALL_S)
