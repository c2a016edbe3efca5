"""Settlement of work between peers: receipts are proposed, counted and countersigned. Sans IO.

How a driver uses it. Each peer has one: `Settlement(Desk(identity, ledger, agreements, key_of,
rng), config)`, and then

* `agree(deal, now)` on both sides before a move is committed (at a peer that passes a task on, for
  both of its deals); an exception stops the move.
* `handle(Ended(task, term, upto), now)` on every side when the placement is over, with the boundary
  from which the next one runs: at the owner in any case, elsewhere as soon as it is known (the
  payer's statement is believed).
* `handle(event, now)`, and carry out the effects in order. `Send` is a one-way call, which may be
  lost. `Counted` answers `Count`, now or later (`rows=None`: it cannot be counted yet). The worker
  counts the rows of its followers, the owner its own, and only up to its own output log's boundary.
  A worker makes the counts that `Ended` asks for before its followers are deleted.
* `handle(Tick(), now)` at `wake_at`, which changes with every call.

`now` is seconds since the epoch; after a leap of the clock, call `restart()`. It continues from the
ledger; no other state is kept.

Guarantees, even if messages are lost, doubled or late, or a peer crashes:

* an interval of a placement is paid at most once, and only if both have signed;
* the payer pays by its own count;
* a peer that passed a task on pays for exactly the tuples that it was paid for;
* once messages arrive again, both ledgers agree.
"""

from __future__ import annotations

from typing import Final

from medusa.contracts.config import ContractsConfig
from medusa.contracts.deals import Account, Deal, DealKey, check_rate
from medusa.contracts.desk import (
    MICROS,
    Agreements,
    Count,
    Counted,
    Desk,
    Disputed,
    Effect,
    Ended,
    Event,
    Note,
    Received,
    Send,
    Tick,
    described,
)
from medusa.contracts.ledger import Standing
from medusa.contracts.payee import Payee
from medusa.contracts.payer import Payer
from medusa.contracts.receipts import (
    Dispute,
    Proposal,
    Refusal,
    Settled,
    open_settled,
    read_receipt,
)
from medusa.overlay.errors import ConflictError, MedusaError
from medusa.overlay.names import PeerId

__all__ = [
    "Agreements",
    "Count",
    "Counted",
    "Desk",
    "Disputed",
    "Effect",
    "Ended",
    "Event",
    "Note",
    "Received",
    "Send",
    "Settlement",
    "Tick",
]

CLAIM_S: Final = 7 * 86_400.0
"""Seconds after its end in which a deal can be billed: a peer may be away for a holiday."""

PURGE_S: Final = 3_600.0
"""Seconds between purges of unclaimed deals."""


class Settlement:
    """Both sides of all deals of one peer."""

    def __init__(self, desk: Desk, config: ContractsConfig) -> None:
        self._desk = desk
        self._config = config
        self.restart()

    def restart(self) -> None:
        """Drop all plans and continue from the ledger: the times in the plans were read from
        another clock."""
        self._payee = Payee(self._desk, self._config)
        self._payer = Payer(self._desk, self._payee, self._config.timing)
        self._purge_at = 0.0

    @property
    def wake_at(self) -> float:
        """When the next `Tick` is due, seconds since the epoch."""
        return min(self._payee.wake_at, self._purge_at)

    def unpaid_upto(self, key: DealKey) -> int | None:
        """See `Payee.unpaid_upto`."""
        return self._payee.unpaid_upto(key)

    def disputed_since(self, at: float) -> frozenset[str]:
        """See `Payee.disputed_since`."""
        return self._payee.disputed_since(at)

    def agree(self, deal: Deal, now: float) -> None:
        """Agree to a task's move (or a subscription) on these conditions; a repetition changes
        nothing.

        Raises:
            NotFoundError, UntrustedError: the contract is not in force between these two peers.
            InvalidInputError: it does not allow that price.
            ConflictError: another deal was agreed for that placement.
            BusyError: too many deals are open.
        """
        check_rate(deal.rate, self._desk.agreements.terms(*deal.account, now), deal.task)
        standing = self._desk.ledger.open_deal(deal)
        self._payee.start(standing, now + self._config.settle_s)

    def handle(self, event: Event, now: float) -> list[Effect]:
        """The effects of an event. No message, nor a full disk, makes this raise."""
        try:
            return self._handle(event, now)
        except MedusaError as error:
            return [Note("warning", f"could not settle: {error}")]

    def _handle(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Tick():
                return self._purge(now) + self._payee.tick(now)
            case Ended():
                return self._ended(event, now)
            case Counted():
                return self._payee.counted(event, now) + self._payer.counted(event, now)
            case Received(peer, Proposal() as message):
                return self._payer.proposed(peer, message, now)
            case Received(peer, Settled() as message):
                return self._settled(peer, message, now)
            case Received(peer, Dispute() as message):
                return self._payee.disputed(peer, message, now)
            case Received(peer, Refusal() as message):
                return self._refused(peer, message, now)
            case _:
                raise AssertionError(event)

    def _ended(self, event: Ended, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for standing in self._desk.ledger.deals_of(event.task, event.term_number):
            self._desk.ledger.end_deal(standing, event.upto, int(now * MICROS))
            effects += self._payee.ended(standing, now)
        return effects

    def _settled(self, peer: PeerId, message: Settled, now: float) -> list[Effect]:
        """Take in a countersigned receipt: the answer to a proposal, or one that our ledger
        lost."""
        desk = self._desk
        receipt = read_receipt(message.payload)
        if receipt.number <= desk.ledger.last(receipt.account)[0]:
            return []
        open_settled(message, desk.federation, desk.key_of)
        if {receipt.payer, receipt.payee} != {desk.own, peer}:
            raise ConflictError(f"receipt of {receipt.task[:80]!a}: between others")
        desk.ledger.append(message)
        if receipt.payee != desk.own:
            return [Note("warning", f"got back receipt {receipt.number}: the ledger was cut")]
        effects = self._payee.settled(receipt, now)
        standing = desk.ledger.deal(receipt.key)
        other = None if standing is None else desk.resold(standing)
        return effects if other is None else effects + self._payer.look_again(other.deal.key, now)

    def _refused(self, peer: PeerId, message: Refusal, now: float) -> list[Effect]:
        effects = self._payee.refused(peer, message, now)
        account = Account(message.contract, peer, self._desk.own)
        standing = self._desk.ledger.deal(DealKey(account, message.task, message.term_number))
        other = None if standing is None else self._desk.resold(standing)
        if standing is None or other is None:
            return effects
        if standing.end is not None:
            self._desk.ledger.end_deal(other, standing.end, int(now * MICROS))
        if message.upto is None:
            return effects + self._payer.refuse_waiting(other.deal.key, message.reason)
        return effects + self._payer.look_again(other.deal.key, now)

    def _purge(self, now: float) -> list[Effect]:
        if now < self._purge_at:
            return []
        self._purge_at = now + PURGE_S
        old = [standing for standing in self._desk.ledger.deals() if _over(standing, now)]
        return [effect for standing in old for effect in self._forget(standing)]

    def _forget(self, standing: Standing) -> list[Effect]:
        self._payee.stop(standing)
        self._desk.ledger.forget_deal(standing)
        if standing.paid or standing.deal.payee != self._desk.own:
            return []
        name = described(standing.deal.account, standing.deal.task)
        return [Note("warning", f"gave up {name}: never paid beyond {standing.billed}")]


def _over(standing: Standing, now: float) -> bool:
    """Whether a deal can be deleted: paid in full a while ago, or never claimed."""
    if standing.end is None:
        return False
    # a deal without any payment stays: the ledger has no receipt to answer with
    quick = standing.paid and standing.billed > standing.deal.start
    return now - standing.ended_at / MICROS > (PURGE_S if quick else CLAIM_S)
