"""The payer's side of settlements: signs receipts by its own count, and no tuple twice.

A countersigned receipt is in the ledger before it is on the wire. So the same proposal, or any
other with its number, always gets the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from medusa.contracts.config import MarketTiming
from medusa.contracts.deals import Account, ContentRate, DealKey
from medusa.contracts.desk import MICROS, Count, Counted, Desk, Effect, Note, Send, described
from medusa.contracts.ledger import Standing
from medusa.contracts.payee import Payee, disputed_effects
from medusa.contracts.receipts import (
    Dispute,
    Proposal,
    Receipt,
    Refusal,
    countersign,
    dispute,
    open_dispute,
    open_proposal,
)
from medusa.overlay.errors import MedusaError, UntrustedError
from medusa.overlay.names import PeerId

SKEW_S: Final = 600.0
"""Seconds by which two peers' clocks may differ in a settlement: receipts carry times."""

DRAIN_S: Final = 600.0
"""Seconds after a contract's end in which its work may still be paid: it takes time until every
task is home."""

MAX_REASON: Final = 300
"""Characters of a refusal's reason: it is shown on a screen."""


class _RefusedError(Exception):
    """The reason of a refusal; becomes a `Refusal`."""

    def __init__(
        self, reason: str, upto: int | None = None, *, final: bool = False, rows: int | None = None
    ) -> None:
        super().__init__(reason)
        self.upto = upto
        self.final = final
        self.rows = rows


@dataclass(frozen=True, slots=True)
class _Checking:
    """A proposal that is being counted. since: seconds of `now`."""

    number: int
    proposal: Proposal
    receipt: Receipt
    since: float


def _shorter(receipt: Receipt, upto: int) -> int | None:
    """The boundary `upto` if the receipt can be shortened to it, else None. A receipt for load
    cannot: only the owner of the task may shorten it."""
    content = isinstance(receipt.rate, ContentRate)
    return upto if content and receipt.after < upto < receipt.upto else None


class Payer:
    def __init__(self, desk: Desk, payee: Payee, timing: MarketTiming) -> None:
        self._desk = desk
        self._timing = timing
        self._payee = payee
        self._checking: dict[Account, _Checking] = {}
        self._waiting: dict[DealKey, Proposal] = {}

    def proposed(self, peer: PeerId, proposal: Proposal, now: float) -> list[Effect]:
        """The answer to a receipt that `peer` proposes.

        Raises:
            DecodeError, UntrustedError: the receipt is not between that peer and us, or its
            signature is wrong; the payer sends no answer.
        """
        desk = self._desk
        receipt = open_proposal(proposal, desk.federation, desk.key_of)
        if (receipt.payee, receipt.payer) != (peer, desk.own):
            raise UntrustedError(f"receipt of {receipt.task[:80]!a}: between others")
        stored = desk.ledger.find(receipt.account, receipt.number)
        if stored is not None:
            return [Send(peer, stored)]
        try:
            return self._examine(proposal, receipt, now)
        except _RefusedError as refused:
            return self._refuse(receipt, refused)

    def _examine(self, proposal: Proposal, receipt: Receipt, now: float) -> list[Effect]:
        standing = self._agreed(receipt, now)
        earlier = self._desk.ledger.find_dispute(receipt.key, receipt.after)
        if earlier is not None:
            return self._after_dispute(proposal, receipt, earlier, now)
        upstream = self._desk.resold(standing)
        if upstream is not None:
            return self._pass_on(proposal, receipt, upstream, now)
        busy = self._checking.get(receipt.account)
        if busy is not None and now < busy.since + self._timing.count_s:
            if busy.proposal == proposal:
                return []
            raise _RefusedError("another receipt of this account is being counted")
        number = self._desk.numbers()
        self._checking[receipt.account] = _Checking(number, proposal, receipt, now)
        return [Count(number, standing.deal, receipt.after, receipt.upto)]

    def _agreed(self, receipt: Receipt, now: float) -> Standing:
        """The deal of a receipt that matches the agreement and continues where the paid part
        ends."""
        standing = self._desk.ledger.deal(receipt.key)
        if standing is None:
            paid = self._desk.ledger.billed(receipt.key)
            if paid is not None:
                raise _RefusedError("the placement ended", paid, final=True)
            raise _RefusedError("no such placement was agreed here")
        if receipt.rate != standing.deal.rate:
            raise _RefusedError("price or cost are not those agreed")
        number, digest = self._desk.ledger.last(receipt.account)
        if (receipt.number, receipt.previous) != (number + 1, digest):
            raise _RefusedError(f"it does not continue the account, which has {number} receipts")
        end = standing.end
        if end is not None and receipt.upto > end:
            raise _RefusedError("the placement ended", end, final=True)
        if receipt.after != standing.billed:
            raise _RefusedError(f"it starts at {receipt.after}, paid is up to {standing.billed}")
        # the deal may have been agreed while our clock was ahead
        agreed_at = min(standing.deal.agreed_at / MICROS, now)
        if not agreed_at - SKEW_S <= receipt.at / MICROS <= now + SKEW_S:
            raise _RefusedError("it is dated before the placement, or in the future")
        # a payee that was away at the end dates the receipt later than the end that we know
        at = min(receipt.at, standing.ended_at or receipt.at)
        self._check_contract(receipt.account, at / MICROS, agreed_at)
        return standing

    def _check_contract(self, account: Account, at: float, agreed_at: float) -> None:
        """Check that the contract was in force then, or at most `DRAIN_S` before, but not before
        the deal."""
        try:
            self._desk.agreements.terms(*account, at)
        except MedusaError as error:
            try:
                self._desk.agreements.terms(*account, max(at - DRAIN_S, agreed_at))
            except MedusaError:
                raise _RefusedError(str(error)) from None

    # -- the count ---------------------------------------------------------------------------------

    def counted(self, event: Counted, now: float) -> list[Effect]:
        found = [c for c in self._checking.values() if c.number == event.number]
        if not found:
            return []
        proposal, receipt = found[0].proposal, found[0].receipt
        del self._checking[receipt.account]
        try:
            self._agreed(receipt, now)  # the deal may have ended, or been paid, meanwhile
            if event.rows is None or event.upto != receipt.upto:
                reason = "the payer has not got as far yet, or cannot count it"
                raise _RefusedError(reason, _shorter(receipt, event.upto))
        except _RefusedError as refused:
            return self._refuse(receipt, refused)
        return self._decide(proposal, receipt, event.rows, now)

    def _decide(self, proposal: Proposal, receipt: Receipt, rows: int, now: float) -> list[Effect]:
        desk = self._desk
        if rows == receipt.rows:
            settled = countersign(desk.identity.private_key, proposal)
            desk.ledger.append(settled)
            self._waiting.pop(receipt.key, None)
            return [Send(receipt.payee, settled)]
        said = dispute(desk.identity.private_key, proposal, rows, int(now * MICROS))
        desk.ledger.append(said)
        self._waiting.pop(receipt.key, None)
        return [Send(receipt.payee, said), *disputed_effects(receipt, rows)]

    def _after_dispute(
        self, proposal: Proposal, receipt: Receipt, earlier: Dispute, now: float
    ) -> list[Effect]:
        """Answer with the dispute in the ledger about the same start: the payer pays that count,
        without counting again."""
        desk = self._desk
        disputed, objection = open_dispute(earlier, desk.federation, desk.key_of)
        if (disputed.upto, objection.rows) == (receipt.upto, receipt.rows):
            return self._decide(proposal, receipt, objection.rows, now)
        return [Send(receipt.payee, earlier)]

    # -- tasks passed on ---------------------------------------------------------------------------

    def _pass_on(
        self, proposal: Proposal, receipt: Receipt, upstream: Standing, now: float
    ) -> list[Effect]:
        """Settle a receipt of a task that we passed on: our own payer counts it, and we pay exactly
        the tuples that it has paid us for."""
        paid = self._desk.ledger.paid_from(upstream.deal.key, receipt.after)
        if paid is not None:
            if paid.upto != receipt.upto:
                raise _RefusedError("another interval is paid for", paid.upto, rows=paid.rows)
            return self._decide(proposal, receipt, paid.rows, now)
        if upstream.end is not None and receipt.upto > upstream.end:
            raise _RefusedError("the placement ended", upstream.end, final=True)
        if upstream.billed != receipt.after:
            raise _RefusedError("its owner has not paid for what comes before")
        cut = self._payee.cut(upstream.deal.key)
        if cut is not None and receipt.after < cut[0] < receipt.upto:
            raise _RefusedError("its owner bills another interval first", cut[0], rows=cut[1])
        self._waiting[receipt.key] = proposal
        return self._payee.forward(upstream, receipt.upto, receipt.rows, now)

    def look_again(self, key: DealKey, now: float) -> list[Effect]:
        """Our payer for the task of `key` has answered: answer the worker's proposal."""
        proposal = self._waiting.pop(key, None)
        return [] if proposal is None else self.proposed(key.account.payee, proposal, now)

    def refuse_waiting(self, key: DealKey, reason: str) -> list[Effect]:
        """Our payer for the task refuses now, so we refuse the worker's proposal."""
        proposal = self._waiting.pop(key, None)
        if proposal is None:
            return []
        receipt = open_proposal(proposal, self._desk.federation, self._desk.key_of)
        return self._refuse(receipt, _RefusedError(reason))

    def _refuse(self, receipt: Receipt, refused: _RefusedError) -> list[Effect]:
        reason = str(refused)[:MAX_REASON]
        have, _ = self._desk.ledger.last(receipt.account)
        message = Refusal(
            contract=receipt.contract,
            task=receipt.task,
            term_number=receipt.term_number,
            have=have,
            reason=reason,
            upto=refused.upto,
            final=refused.final,
            rows=refused.rows,
        )
        effects: list[Effect] = [Send(receipt.payee, message)]
        if refused.upto is None:
            text = f"did not pay {described(receipt.account, receipt.task)}: {reason}"
            effects.append(Note("warning", text))
        return effects
