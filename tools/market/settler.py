"""Drives the settlement: both sides count the work of a task, and sign receipts for it.

A deal begins and ends with a placement, at boundaries that the owner decides. This module notifies
both sides of them, and peers in between that passed the task on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio
from msgspec import Struct

from medusa.contracts.balances import BalanceQuery, Balances
from medusa.contracts.config import MarketTiming
from medusa.contracts.deals import Account, ContentRate, LoadRate, Rate
from medusa.contracts.deals import Deal as Agreement
from medusa.contracts.desk import MICROS
from medusa.contracts.ledger import Ledger, read_balances
from medusa.contracts.receipts import Letter
from medusa.contracts.settlement import (
    Count,
    Counted,
    Disputed,
    Effect,
    Ended,
    Event,
    Note,
    Received,
    Send,
    Settlement,
    Tick,
)
from medusa.engine.replication.moves.guest import StoredAssignment
from medusa.engine.replication.moves.messages import MoveRecord
from medusa.engine.replication.records.placements import Deal, Placement
from medusa.engine.streams.messages import Done
from medusa.overlay.concurrency import next_beat
from medusa.overlay.errors import MedusaError, NotFoundError
from medusa.overlay.identity import parse_peer_id
from medusa.overlay.names import PeerId
from medusa.overlay.node.node import Overlay
from medusa.overlay.rpc import Caller
from medusa.tools.home.messages import BALANCE
from medusa.tools.market.arrears import Arrears
from medusa.tools.market.boundaries import clamped, stime_of
from medusa.tools.market.meters import Meter
from medusa.tools.market.open_deals import OpenDeals
from medusa.tools.market.passing import CALL_S, Passed, Passing, rate_of_deal
from medusa.tools.market.tasks import Tasks

SETTLE: Final = "contract.settle"


class Settler:
    """The driver of a peer's settlement: it begins and ends deals as tasks are placed, counts work,
    and exchanges receipts with partners.

    Args:
        nursery: sends the messages.
        content_meter: the meter of a paid stream; raises NotFoundError if the stream is not here.

    Attributes:
        passing: the news of tasks that were passed on.
    """

    def __init__(
        self,
        *,
        overlay: Overlay,
        tasks: Tasks,
        settlement: Settlement,
        ledger: Ledger,
        content_meter: Callable[[Agreement], Meter],
        timing: MarketTiming,
        nursery: trio.Nursery,
    ) -> None:
        self._overlay = overlay
        self._tasks = tasks
        self._settlement = settlement
        self.ledger = ledger
        self._timing = timing
        self._nursery = nursery
        self._own = overlay.identity.peer_id
        self.passing = Passing(overlay, self, ledger, timing, nursery)
        self._open_deals = OpenDeals(tasks, ledger, self._own, timing)
        self._arrears = Arrears(
            overlay=overlay,
            tasks=tasks,
            settlement=settlement,
            ledger=ledger,
            timing=timing,
            nursery=nursery,
        )
        self._content_meter = content_meter

    def register(self) -> None:
        """Serve partners, and our own clients' requests."""
        service = self._overlay.service
        service.unary(SETTLE, Letter, self._on_letter)
        self.passing.register()
        service.unary(BALANCE, BalanceQuery, self._on_balance, clients=True, peers=False)

    def now_us(self) -> int:
        """Microseconds UTC."""
        return int(self._overlay.clock() * MICROS)

    async def run(self) -> None:
        """Bill all due amounts, for ever."""
        with self._overlay.clock.set.listening(self._settlement.restart):
            while True:
                if self._overlay.clock() >= self._settlement.wake_at:
                    self.handle(Tick())
                for ended in list(self._open_deals.over()):
                    self.handle(ended)
                self._open_deals.hold_inputs(trio.current_time())
                self._arrears.look(trio.current_time())
                await trio.sleep_until(next_beat(self._timing.settle_look_s))

    # -- placements ---------------------------------------------------------------------------

    def agree(self, task: str, placement: Placement) -> None:
        """Agree to a deal because the owner is about to place a task.

        Raises:
            MedusaError: the contract does not (or no longer) allow it.
        """
        if placement.owed.contract:
            owed = placement.owed
            account = Account(owed.contract, self._own, placement.payee)
            term = placement.term
            self.agree_on(
                account, rate_of_deal(owed), task, term_number=term.number, since=term.since
            )
            self._open_deals.hold_inputs(trio.current_time())  # before the output continues

    def changed(self, task: str, before: Placement, now: Placement) -> None:
        """End the former deal because the owner has placed the task anew."""
        if not before.owed.contract:
            return
        self.handle(Ended(task, before.term.number, clamped(now.term.since)))
        stays = now.payee == before.payee
        if before.payee != before.term.holder or (stays and now.term.holder != now.payee):
            number, worker = (now.term.number, now.term.holder.hex()) if stays else (None, "")
            news = Passed(task, before.term.number, now.term.since, number, worker)
            self.passing.notify(before.payee, news)

    def activated(self, stored: StoredAssignment, since: int) -> None:
        """Begin the deal of a task that we run for another peer, from that boundary on."""
        deal = stored.assignment.deal
        if not deal.contract:
            return
        task, term_number = stored.key
        try:
            account = Account(deal.contract, parse_peer_id(deal.giver), self._own)
            self.agree_on(account, rate_of_deal(deal), task, term_number=term_number, since=since)
        except MedusaError as error:
            self._overlay.events.note("warning", f"runs {task} without pay: {error}")

    def ended(self, stored: StoredAssignment, until: int) -> None:
        """End the deal of a task that no longer runs here, at that boundary; its last tuples are
        counted now."""
        if stored.assignment.deal.contract:
            self.handle(Ended(*stored.key, clamped(until)))

    def passed_on(self, stored: StoredAssignment, record: MoveRecord, deal: Deal) -> None:
        """Begin both deals of a task that another peer now runs for us: we are paid, and pay.

        Raises:
            MedusaError: one of the two contracts no longer allows its deal.
        """
        ours = stored.assignment.deal
        if not ours.contract:
            return  # the owner, a peer of our participant, pays the worker that we found
        accounts = (
            (ours, Account(ours.contract, parse_peer_id(ours.giver), self._own)),
            (deal, Account(deal.contract, self._own, parse_peer_id(record.target))),
        )
        for terms, account in accounts:
            if terms.contract:
                self.agree_on(
                    account,
                    rate_of_deal(terms),
                    record.task,
                    term_number=record.term_number,
                    since=record.since,
                )

    def agree_on(
        self, account: Account, rate: Rate, task: str, *, term_number: int, since: int
    ) -> None:
        """Store a deal from that boundary on.

        Raises:
            MedusaError: see `Settlement.agree`.
        """
        now = self._overlay.clock()
        deal = Agreement(
            *account,
            task=task,
            term_number=term_number,
            start=clamped(since),
            rate=rate,
            agreed_at=int(now * MICROS),
        )
        self._settlement.agree(deal, now)

    def owing(self, contract: str) -> bool:
        """See `Arrears.owing`."""
        return self._arrears.owing(contract)

    def passes_on(self, task: str) -> bool:
        """Whether we pay another peer for a task for which we are paid."""
        return any(
            standing.end is None
            and standing.deal.task == task
            and standing.deal.payer == self._own
            and isinstance(standing.deal.rate, LoadRate)
            for standing in self.ledger.deals()
        )

    # -- the settlement -----------------------------------------------------------------------

    async def _on_letter(self, caller: Caller, request: Letter, _: bytes) -> Done:
        await trio.lowlevel.checkpoint()
        assert caller.peer_id is not None, "clients may not call this"
        self.handle(Received(caller.peer_id, request.message))
        return Done()

    async def _on_balance(self, _: Caller, request: BalanceQuery, __: bytes) -> Balances:
        # the whole chain is walked: not in the thread that everything else waits for
        return await trio.to_thread.run_sync(
            read_balances, self.ledger.path, self._own, self.ledger.federation, request.contract
        )

    def handle(self, event: Event) -> None:
        """Carry out the effects of an event."""
        pending = [event]
        while pending:
            for effect in self._settlement.handle(pending.pop(), self._overlay.clock()):
                answer = self._perform(effect)
                if answer is not None:
                    pending.append(answer)

    def _perform(self, effect: Effect) -> Counted | None:
        match effect:
            case Send(peer, message):
                self._nursery.start_soon(self._send, peer, Letter(message))
            case Count():
                return self._count(effect)
            case Disputed():
                pass  # an event reports it, too
            case Note(level, text):
                self._overlay.events.note("warning" if level == "warning" else "info", text)
        return None

    async def _send(self, peer: PeerId, letter: Letter) -> None:
        with suppress(MedusaError):  # a lost message is sent again
            await self._call(peer, SETTLE, letter)

    async def _call(self, peer: PeerId, method: str, request: Struct) -> None:
        connection = await self._overlay.connect(peer)
        await connection.call(method, request, Done, timeout_s=CALL_S)

    def _count(self, effect: Count) -> Counted:
        """Count up to our own output's boundary: only computed tuples are paid."""
        deal = effect.deal
        nothing = Counted(effect.number, effect.after if effect.upto is None else effect.upto, None)
        try:
            counted = self._meter(deal)
            upto = clamped(counted.boundary) if effect.upto is None else effect.upto
            if upto > clamped(counted.boundary):
                return Counted(effect.number, clamped(counted.boundary), None)
            if upto <= effect.after:
                return nothing
            rows = counted.count(stime_of(effect.after), stime_of(upto))
        except (NotFoundError, MedusaError):
            return nothing
        return Counted(effect.number, upto, rows)

    def _meter(self, deal: Agreement) -> Meter:
        """
        Raises:
            NotFoundError: the deal's task or stream is not here.
        """
        if isinstance(deal.rate, ContentRate):
            return self._content_meter(deal)
        if deal.payee == self._own:
            return self._tasks.assignments.find(deal.task, deal.term_number)
        return self._tasks.queries.find(deal.task)[1]
