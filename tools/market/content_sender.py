"""The payee's side of content contracts: it believes a receiver's declarations of its reading.

A receiver does not pay for undeclared reading; but it signed the contract, and the sender sees all
readers among the stream's subscribers.
"""

from __future__ import annotations

from typing import Final

import trio

from medusa.contracts.contract import Contract
from medusa.contracts.deals import Account, content_rate
from medusa.contracts.delivery import Contracts
from medusa.contracts.terms import ContentTerms
from medusa.engine.streams.messages import Done
from medusa.overlay.errors import (
    BusyError,
    ConflictError,
    InvalidInputError,
    NotAuthorisedError,
    NotFoundError,
)
from medusa.overlay.node.node import Overlay
from medusa.overlay.rpc import Caller
from medusa.tools.market.boundaries import clamped
from medusa.tools.market.content_deals import (
    Begin,
    Over,
    content_contracts,
    deals_in,
    ended,
    period_start,
    rate_of,
)
from medusa.tools.market.meters import SKEW_US, PaidStreams, StreamMeter
from medusa.tools.market.settler import Settler

BEGIN: Final = "content.begin"
OVER: Final = "content.over"

MAX_KEPT: Final = 64
"""Unsettled deals of one receiving peer under one contract, ended ones too. A receiver begins one
when it begins to read, so more are a mistake, or meant to fill the ledger."""


class ContentSender:
    """Takes the deals that receivers declare for the streams of this peer."""

    def __init__(
        self,
        overlay: Overlay,
        contracts: Contracts,
        settler: Settler,
        streams: PaidStreams,
    ) -> None:
        self._overlay = overlay
        self._contracts = contracts
        self._settler = settler
        self._streams = streams
        self._own = overlay.identity.peer_id

    def register(self) -> None:
        """Serve receivers."""
        service = self._overlay.service
        service.unary(BEGIN, Begin, self._on_begin)
        service.unary(OVER, Over, self._on_over)

    def look(self, in_force: set[str]) -> None:
        """End the deals whose contract or stream no longer exists. in_force: ids of contracts."""
        for standing in deals_in(self._settler.ledger):
            deal = standing.deal
            if deal.payee != self._own or standing.end is not None:
                continue
            state = self._streams.sold(deal.task)
            if state is None:
                self._settler.handle(ended(standing, standing.billed))
            elif deal.contract not in in_force:
                meter = StreamMeter(state, rate_of(standing), self._settler.now_us(), bills=True)
                self._settler.handle(ended(standing, clamped(meter.boundary)))

    async def _on_begin(self, caller: Caller, request: Begin, _: bytes) -> Done:
        await trio.lowlevel.checkpoint()
        assert caller.peer_id is not None, "clients may not call this"
        contract, terms = self._contract(request)
        account = Account(request.contract, caller.peer_id, self._own)
        ledger = self._settler.ledger
        mine = [s for s in deals_in(ledger) if s.deal.account == account]
        if any(s not in mine for s in ledger.deals_of(request.stream, request.term_number)):
            raise ConflictError(f"{request.stream}: term {request.term_number} is another deal's")
        new = all(s.deal.term_number != request.term_number for s in mine)
        if new:
            self._check(request, contract, terms)
            if len(mine) >= MAX_KEPT:
                raise BusyError(f"{request.stream}: {len(mine)} deals of yours are not settled yet")
        rate = content_rate(terms, request.since)
        self._settler.agree_on(
            account, rate, request.stream, term_number=request.term_number, since=request.start
        )
        for earlier in mine:  # the message about its end was lost
            if earlier.end is None and earlier.deal.term_number < request.term_number:
                self._settler.handle(ended(earlier, request.start))
        if new:
            self._streams.hold_for_bills()
            text = f"sells {request.stream} to {caller.participant}: contract {contract.short_id}"
            self._overlay.events.note("info", text)
        return Done()

    def _contract(self, request: Begin) -> tuple[Contract, ContentTerms]:
        """
        Raises:
            NotAuthorisedError: no such contract is in force, or we are its payer.
        """
        own = self._overlay.identity.participant
        for contract, terms in content_contracts(self._contracts):
            if (contract.id, terms.stream, terms.sender) == (request.contract, request.stream, own):
                return contract, terms
        raise NotAuthorisedError(f"{request.stream}: no such contract is in force for it")

    def _check(self, request: Begin, contract: Contract, terms: ContentTerms) -> None:
        """
        Raises:
            NotFoundError: the stream is not here.
            InvalidInputError: the start, or the first period, is not allowed.
        """
        state = self._streams.sold(request.stream)
        if state is None:
            raise NotFoundError(f"{request.stream} is not kept by this peer")
        boundary = clamped(state.log.boundary)
        if request.start > boundary:
            raise InvalidInputError(f"{request.stream} is at {boundary}, not at {request.start}")
        now, since = self._settler.now_us(), request.since
        near = abs(since - period_start(contract, terms, now)) <= SKEW_US
        if not near or since != period_start(contract, terms, since):
            raise InvalidInputError(f"{request.stream}: no period begins at {request.since}")

    async def _on_over(self, caller: Caller, request: Over, _: bytes) -> Done:
        await trio.lowlevel.checkpoint()
        assert caller.peer_id is not None, "clients may not call this"
        account = Account(request.contract, caller.peer_id, self._own)
        for standing in self._settler.ledger.deals_of(request.stream, request.term_number):
            if standing.deal.account == account and standing in deals_in(self._settler.ledger):
                self._settler.handle(ended(standing, request.upto))
                return Done()
        raise NotFoundError(f"{request.stream}: we have no such deal with you")
