"""The market's status for our own clients: contracts, prices, offers, moves, balances."""

from __future__ import annotations

import math
from typing import Final

import msgspec
import trio

from medusa.contracts.contract import Contract
from medusa.contracts.delivery import Contracts
from medusa.contracts.ledger import Ledger
from medusa.contracts.market.cost import unit_cost
from medusa.contracts.market.partners import PartnerState
from medusa.contracts.terms import ContentTerms, LoadTerms
from medusa.engine.replication.moves.messages import MoveRecord
from medusa.engine.replication.moves.mover import Mover
from medusa.overlay.node.node import Overlay
from medusa.overlay.rpc import Caller
from medusa.tools.home.messages import (
    MARKET_STATUS,
    AskMarket,
    ContractStatus,
    MarketStatus,
    MoveStatus,
    OfferStatus,
    TradedTask,
)
from medusa.tools.market.trader import Trader

SHOWN_MOVES: Final = 200
"""Moves in a status."""


class MarketCalls:
    """The calls of our own clients about the market; `register` puts them on the peer's service."""

    def __init__(
        self,
        overlay: Overlay,
        mover: Mover,
        contracts: Contracts,
        ledger: Ledger,
        trader: Trader,
    ) -> None:
        self._overlay = overlay
        self._mover = mover
        self._contracts = contracts
        self._ledger = ledger
        self._trader = trader
        self._participant = overlay.identity.participant

    def register(self) -> None:
        service = self._overlay.service
        service.unary(MARKET_STATUS, AskMarket, self.market_status, clients=True, peers=False)

    async def market_status(self, _: Caller, __: AskMarket, ___: bytes) -> MarketStatus:
        await trio.lowlevel.checkpoint()
        trader, held = self._trader, self._trader.brain.held
        marginal = unit_cost(trader.cost, held.level, 1.0)
        return MarketStatus(
            peer=self._overlay.identity.peer_id.hex(),
            capacity=trader.capacity,
            load=held.level,
            marginal_cost=None if math.isinf(marginal) else marginal,
            contracts=self._contract_lines(),
            offer=self._offer(),
            taken=tuple(
                TradedTask(task, guest.key[0], guest.key[1], guest.item.load, guest.price)
                for task, guest in held.guests.items()
            ),
            given=tuple(
                TradedTask(task, out.key[0], out.key[1], out.item.load, out.price)
                for task, out in held.outs.items()
            ),
            moves=tuple(
                MoveStatus(
                    at=record.at,
                    task=record.task,
                    source=record.source,
                    target=record.target,
                    price=record.price,
                    stall_ms=record.stall_ms,
                    carry_bytes=record.carry_bytes,
                )
                for record in self._moves()
            ),
        )

    def _moves(self) -> list[MoveRecord]:
        """The moves of our own tasks, and of others' tasks that we passed on."""
        moves = [*self._mover.records, *self._trader.passed]
        return sorted(moves, key=lambda record: record.at)[-SHOWN_MOVES:]

    def _contract_lines(self) -> tuple[ContractStatus, ...]:
        now = self._overlay.clock()
        lines = [
            self._line(contract, str(self._contracts.book.state(contract, now)))
            for contract in self._contracts.book.all()
        ]
        siblings = [s for s in self._trader.brain.partners.values() if s.sibling]
        if siblings:
            lines.append(self._shared(siblings))
        return tuple(lines)

    def _line(self, contract: Contract, state: str) -> ContractStatus:
        terms, balance = contract.proposal.terms, self._ledger.balance(contract.id)
        states = [s for s in self._trader.brain.partners.values() if s.key[1] == contract.id]
        held = self._trader.brain.held
        if states and all(s.broken for s in states):
            state = "unreachable"
        low, high = (terms.min_price, terms.max_price) if isinstance(terms, LoadTerms) else (0, 0)
        line = ContractStatus(
            partner=contract.counterparty(self._participant),
            id=contract.id,
            state=state,
            min_price=low,
            max_price=high,
            last_price=max((max(0, s.price) for s in states), default=0),
            given=sum(held.given.get(s.key, 0.0) for s in states),
            taken=sum(held.taken.get(s.key, 0.0) for s in states),
            balance=balance.net,
        )
        if not isinstance(terms, ContentTerms):
            return line
        return msgspec.structs.replace(
            line,
            per_message=terms.per_message,
            per_period=terms.per_period,
            period_s=terms.period_s,
        )

    def _shared(self, siblings: list[PartnerState]) -> ContractStatus:
        held = self._trader.brain.held
        return ContractStatus(
            partner=self._participant,
            given=sum(held.given.get(s.key, 0.0) for s in siblings),
            taken=sum(held.taken.get(s.key, 0.0) for s in siblings),
        )

    def _offer(self) -> OfferStatus | None:
        offer = self._trader.brain.offer
        if offer is None:
            return None
        return OfferStatus(
            to=offer.state.key[0],
            contract=offer.state.key[1],
            price=offer.offer.price,
            tasks=len(offer.items),
            load=sum(item.load for item in offer.items.values()),
            age_s=max(0.0, trio.current_time() - self._trader.offered_at),
        )
