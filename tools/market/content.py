"""Content contracts at work: both sides count the tuples of a stream in their own logs, and settle
as for load."""

from __future__ import annotations

from typing import Final

import trio

from contracts.deals import Deal, DealKey
from contracts.delivery import Contracts
from contracts.ledger import Standing
from engine.engine import Engine
from engine.streams.kept import KeptStream
from overlay.errors import NotFoundError
from overlay.names import ObjectName
from tools.market.boundaries import stime_of
from tools.market.content_deals import content_contracts, deals_in, rate_of
from tools.market.content_receiver import ContentReceiver
from tools.market.content_sender import ContentSender
from tools.market.meters import StreamMeter, Tail
from tools.market.settler import Meter, Settler

LOOK_S: Final = 1.0
"""How often it is looked what is read and what is in force, seconds."""


class Content:
    """
    Args:
        nursery: carries words to other peers.
    """

    def __init__(
        self, engine: Engine, contracts: Contracts, settler: Settler, nursery: trio.Nursery
    ) -> None:
        self._engine = engine
        self._contracts = contracts
        self._settler = settler
        self._receiver = ContentReceiver(engine, contracts, settler, self._hold, nursery)
        self._sender = ContentSender(engine, contracts, settler, self._hold)
        self._own = engine.overlay.identity.peer_id
        self._billed: dict[DealKey, tuple[int, float]] = {}
        self._changed = trio.Event()
        self._in_force: set[str] | None = None

    def register(self) -> None:
        """Count for the settlement, serve receivers, hear what is read, and say who may read what
        is for those who have a contract."""
        self._engine.readers.pays = self.pays
        self._settler.content_meter = self.meter
        self._receiver.register()
        self._sender.register()
        self._contracts.changed.add(self._wake)
        self._hold()  # before the first look at what retention may drop
        self._receiver.resume()

    def _wake(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Begin and end deals as contracts come and go, for ever."""
        await self._engine.mirrors.drop_unused()
        while True:
            self._changed = trio.Event()
            in_force = {contract.id for contract, _ in content_contracts(self._contracts)}
            if in_force != self._in_force:
                self._in_force = in_force
                self._engine.readers.changed()
            self._sender.look(in_force)
            await self._receiver.look(in_force)
            self._hold()
            with trio.move_on_after(LOOK_S):
                await self._changed.wait()

    def pays(self, participant: str, stream: str) -> bool:
        """Whether that participant has a contract in force with the owner of a stream, for it. One
        between two others is not known here."""
        owner = ObjectName.parse(stream).participant
        return any(
            (terms.stream, terms.sender) == (stream, owner)
            and contract.counterparty(owner) == participant
            for contract, terms in content_contracts(self._contracts)
        )

    def meter(self, deal: Deal) -> Meter:
        """What counts a stream's tuples.

        Raises:
            NotFoundError: it is not here.
        """
        standing = self._settler.ledger.deal(deal.key)
        kept = self._log_of(deal)
        if standing is not None and deal.payer == self._own and standing.end is not None:
            return Tail(standing, self._settler.ledger)
        if standing is None or kept is None:
            raise NotFoundError(f"{deal.task} is not kept here")
        bills = deal.payee == self._own
        return StreamMeter(kept, rate_of(standing), self._settler.now_us(), bills=bills)

    def _log_of(self, deal: Deal) -> KeptStream | None:
        side = self._sender if deal.payee == self._own else self._receiver
        return side.log_of(deal.task)

    def _hold(self) -> None:
        """Keep what is still to be counted, as long as a reader that went away is waited for."""
        for standing in deals_in(self._settler.ledger):
            deal, kept = standing.deal, self._log_of(standing.deal)
            if kept is None:
                continue
            consumer = f"bill {deal.contract} {deal.payer.hex()} {deal.fence}"
            if self._counted(standing):
                kept.log.release(consumer)
                self._billed.pop(deal.key, None)
                continue
            billed, at = self._billed.get(deal.key, (None, 0.0))
            if billed != standing.billed:
                at = trio.current_time()
                self._billed[deal.key] = standing.billed, at
            expires = at + self._engine.config.lease_s
            kept.log.hold(consumer, stime_of(standing.billed), expires)

    def _counted(self, standing: Standing) -> bool:
        """Whether no more of it will be."""
        return standing.end is not None and (standing.paid or standing.tail is not None)
