"""The payee's side of settlements: bills work, one receipt at a time for each account.

A receipt is proposed again and again until it is settled or the payer refuses it. None of this
state needs to survive a crash: the ledger has the paid boundary of each deal, and if we forgot a
receipt that the payer has signed, the payer sends it as the answer to the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Final

from medusa.contracts.config import ContractsConfig
from medusa.contracts.deals import Account, DealKey
from medusa.contracts.desk import (
    MICROS,
    Count,
    Counted,
    Desk,
    Disputed,
    Effect,
    Note,
    Send,
    described,
)
from medusa.contracts.ledger import Standing
from medusa.contracts.receipts import (
    Dispute,
    Objection,
    Proposal,
    Receipt,
    Refusal,
    make_receipt,
    open_dispute,
    propose,
    read_dispute,
)
from medusa.overlay.backoff import Backoff
from medusa.overlay.errors import InvalidInputError, UntrustedError
from medusa.overlay.names import PeerId

TOLERATED: Final = 0.01
"""Share of our count by which an honest payer's count may be lower. Both count the same tuples, so
every difference is reported, and a person should look at it."""


@dataclass(frozen=True, slots=True)
class _Want:
    """The next receipt of a deal must end exactly at this boundary.

    Attributes:
        rows: the tuples to bill; None: count them.
        offered: the payer's count, used if ours is no longer possible.
    """

    upto: int
    rows: int | None
    offered: int | None = None


@dataclass(slots=True)
class _Bill:
    """A deal still to be paid: its next billing, and the payer's answers.

    Attributes:
        backoff: the waits while the payer refuses.
        want: the required next receipt.
        due: see `Payee.unpaid_upto`.
        cut: for a task that was passed on: the boundary that the payer wants billed first, and the
            payer's count.
    """

    at: float
    backoff: Backoff
    want: _Want | None = None
    due: int | None = None
    cut: tuple[int, int | None] | None = None


@dataclass(slots=True)
class _Line:
    """One account. Attributes: out: the proposal under way. counting: the `Count` under way: its
    number, its deal, and the boundary after which it counts. backoff: the waits until a proposal is
    sent again."""

    backoff: Backoff
    bills: dict[DealKey, _Bill] = field(default_factory=dict)
    out: tuple[Proposal, Receipt] | None = None
    counting: tuple[int, DealKey, int] | None = None
    retry_at: float = inf

    def busy(self) -> bool:
        """Whether a receipt, or a count, is under way."""
        return self.out is not None or self.counting is not None

    @property
    def wake_at(self) -> float:
        if self.busy():
            return self.retry_at
        return min((bill.at for bill in self.bills.values()), default=inf)

    def drop(self, key: DealKey) -> None:
        """Stop billing that deal. Its receipt under way must not delay the others."""
        self.bills.pop(key, None)
        if self.about(key):
            self.free()

    def about(self, key: DealKey) -> bool:
        """Whether the receipt or count under way belongs to that deal."""
        if self.out is not None:
            return self.out[1].key == key
        return self.counting is not None and self.counting[1] == key

    def free(self) -> None:
        """End the receipt or count under way."""
        self.out = self.counting = None
        self.retry_at = inf


class Payee:
    def __init__(self, desk: Desk, config: ContractsConfig) -> None:
        self._desk = desk
        self._settle_s = config.settle_s
        self._timing = config.timing
        self._lines: dict[Account, _Line] = {}
        self._tails: dict[int, tuple[Standing, int]] = {}
        self._disputed: dict[str, float] = {}
        for dispute in desk.ledger.disputes():
            self._note_dispute(*read_dispute(dispute))
        for standing in desk.ledger.deals():
            self.start(standing, 0.0)

    @property
    def wake_at(self) -> float:
        """When `tick` is due; inf: never, in the present state."""
        return min((line.wake_at for line in self._lines.values()), default=inf)

    def unpaid_upto(self, key: DealKey) -> int | None:
        """The boundary of the oldest receipt proposed for that deal, if the payer has signed
        neither it nor a later one; None: nothing proposed is unsigned."""
        line = self._lines.get(key.account)
        bill = None if line is None else line.bills.get(key)
        return None if bill is None else bill.due

    def disputed_since(self, at: float) -> frozenset[str]:
        """The contracts under which a payer's count was much lower than ours. at: seconds."""
        return frozenset(contract for contract, when in self._disputed.items() if when >= at)

    def start(self, standing: Standing, at: float) -> None:
        """Bill this deal from that time on, if we are its payee."""
        deal = standing.deal
        if deal.payee == self._desk.own and not standing.paid:
            line = self._lines.setdefault(deal.account, _Line(self._backoff()))
            line.bills.setdefault(deal.key, _Bill(at, self._backoff()))

    def stop(self, standing: Standing) -> None:
        """Stop billing the deal."""
        line = self._lines.get(standing.deal.account)
        if line is not None:
            line.drop(standing.deal.key)
            if not line.bills:
                del self._lines[standing.deal.account]

    def tick(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for account in [a for a, line in self._lines.items() if line.wake_at <= now]:
            effects += self._step(account, now)
        return effects

    def ended(self, standing: Standing, now: float) -> list[Effect]:
        """The deal has ended: count the rest before the inputs are deleted, and bill it."""
        line = self._lines.get(standing.deal.account)
        bill = None if line is None else line.bills.get(standing.deal.key)
        if line is None or bill is None or standing.end is None:
            return []
        if standing.paid:
            return self._paid(line, standing, now)
        bill.at = now
        bill.backoff.succeeded()
        if self._desk.resold(standing) is not None:
            return self._step(standing.deal.account, now)
        if line.counting is not None and line.counting[1] == standing.deal.key:
            line.free()  # the count does not match the tuples that are to be billed now
        if standing.tail is not None:
            return self._step(standing.deal.account, now)
        number = self._desk.numbers()
        self._tails[number] = (standing, standing.billed)
        bill.at = now + self._timing.count_s
        count = Count(number, standing.deal, standing.billed, standing.end)
        return [count, *self._step(standing.deal.account, now)]

    def forward(self, standing: Standing, upto: int, rows: int, now: float) -> list[Effect]:
        """Bill the payer for an interval that our own worker bills us, of a task that we passed
        on."""
        line = self._lines.get(standing.deal.account)
        bill = None if line is None else line.bills.get(standing.deal.key)
        if line is None or bill is None or bill.want is not None:
            return []
        if line.out is not None and line.out[1].key == standing.deal.key:
            return []
        bill.want, bill.at = _Want(upto, rows), now
        return self._step(standing.deal.account, now)

    def cut(self, key: DealKey) -> tuple[int, int | None] | None:
        """The boundary up to which the payer wants this deal billed first, and its count."""
        line = self._lines.get(key.account)
        bill = None if line is None else line.bills.get(key)
        return None if bill is None else bill.cut

    # -- answers -----------------------------------------------------------------------------------

    def counted(self, event: Counted, now: float) -> list[Effect]:
        tail = self._tails.pop(event.number, None)
        if tail is not None:
            standing, after = tail
            if event.rows is not None and event.upto == standing.end:
                self._desk.ledger.keep_tail(standing, after, event.rows)
            self.start(standing, now)
            self._lines[standing.deal.account].bills[standing.deal.key].at = now
            return self._step(standing.deal.account, now)
        for account, line in self._lines.items():
            if line.counting is not None and line.counting[0] == event.number:
                _, key, after = line.counting
                line.free()
                return self._counted(account, key, after, event, now)
        return []

    def _counted(
        self, account: Account, key: DealKey, after: int, event: Counted, now: float
    ) -> list[Effect]:
        standing = self._desk.ledger.deal(key)
        bill = self._lines[account].bills.get(key)
        if standing is None or bill is None or after != standing.billed:
            return self._step(account, now)
        if event.rows is None and bill.want is not None and bill.want.offered is not None:
            bill.want = _Want(bill.want.upto, bill.want.offered)
            return self._step(account, now)
        if event.rows is None or event.upto <= after:
            self._later(bill, now)
            return self._step(account, now)
        final = event.upto == standing.end or bill.want is not None
        if not final and standing.deal.rate.amount(after, event.upto, event.rows) == 0:
            bill.at = now + self._settle_s
            return self._step(account, now)
        bill.want = _Want(event.upto, event.rows)
        return self._step(account, now)

    def settled(self, receipt: Receipt, now: float) -> list[Effect]:
        """A receipt of ours is in the ledger, signed by both."""
        line = self._lines.get(receipt.account)
        if line is None:
            return []
        line.free()
        standing = self._desk.ledger.deal(receipt.key)
        bill = line.bills.get(receipt.key)
        if standing is not None and bill is not None:
            bill.want, bill.cut = None, None
            bill.backoff.succeeded()
            if bill.due is not None and receipt.upto >= bill.due:
                bill.due = None
            bill.at = now if standing.end is not None else now + self._settle_s
            if standing.paid:
                return self._paid(line, standing, now)
        return self._step(receipt.account, now)

    def disputed(self, peer: PeerId, message: Dispute, now: float) -> list[Effect]:
        """Record the payer's different count, and bill that count next.

        Raises:
            DecodeError, UntrustedError: the payer did not sign it.
        """
        desk = self._desk
        receipt, objection = open_dispute(message, desk.federation, desk.key_of)
        if (receipt.payee, receipt.payer) != (desk.own, peer):
            raise UntrustedError("dispute: between others")
        line = self._lines.get(receipt.account)
        standing = desk.ledger.deal(receipt.key)
        if line is None or standing is None or receipt.after != standing.billed:
            return []
        bill = line.bills.get(receipt.key)
        if bill is None:
            return []
        effects: list[Effect] = []
        if desk.ledger.find_dispute(receipt.key, receipt.after) is None:
            desk.ledger.append(message)
            effects = disputed_effects(receipt, objection.rows)
            self._note_dispute(receipt, objection)
        line.free()
        bill.want, bill.at = _Want(receipt.upto, objection.rows), now
        return effects + self._step(receipt.account, now)

    def refused(self, peer: PeerId, refusal: Refusal, now: float) -> list[Effect]:
        """Take in the payer's refusal of the proposal under way."""
        account = Account(refusal.contract, peer, self._desk.own)
        line = self._lines.get(account)
        if line is None or line.out is None:
            return []
        receipt = line.out[1]
        key = receipt.key
        standing, bill = self._desk.ledger.deal(key), line.bills.get(key)
        if (key.task, key.term_number) != (refusal.task, refusal.term_number):
            return []
        if standing is None or bill is None:
            return []
        healing = self._desk.ledger.find(account, refusal.have + 1)
        if healing is not None:
            # the payer lost the end of its ledger, with a receipt that it had signed
            line.retry_at = now + self._timing.retry_s
            return [Send(peer, healing)]
        line.free()
        bill.want = None
        if refusal.upto is not None and refusal.upto < receipt.upto:
            return self._shortened(account, standing, refusal, now)
        self._later(bill, now)
        note = f"waits for the payment of {described(account, key.task)}: {refusal.reason}"
        return [Note("warning", note), *self._step(account, now)]

    def _shortened(
        self, account: Account, standing: Standing, refusal: Refusal, now: float
    ) -> list[Effect]:
        upto = refusal.upto
        assert upto is not None
        line = self._lines[account]
        bill = line.bills[standing.deal.key]
        bill.at = now
        if refusal.final:
            at = standing.ended_at or int(now * MICROS)
            self._desk.ledger.end_deal(standing, upto, at)
            return self.ended(standing, now)
        if upto > standing.billed:
            if self._desk.resold(standing) is None:
                bill.want = _Want(upto, None, refusal.rows)
            else:
                bill.cut, bill.at = (upto, refusal.rows), inf
        return self._step(account, now)

    # -- the next receipt --------------------------------------------------------------------------

    def _step(self, account: Account, now: float) -> list[Effect]:
        line = self._lines.get(account)
        if line is None:
            return []
        if line.busy():
            return self._again(line, account, now)
        due = [(bill.at, key) for key, bill in line.bills.items() if bill.at <= now]
        effects: list[Effect] = []
        for _, key in sorted(due, key=lambda pair: pair[0]):
            effects += self._bill(line, key, now)
            if line.busy():
                break
        return effects

    def _again(self, line: _Line, account: Account, now: float) -> list[Effect]:
        if now < line.retry_at:
            return []
        if line.out is None:
            line.free()
            return self._step(account, now)
        line.retry_at = now + line.backoff.failed(self._desk.rng)
        return [Send(account.payer, line.out[0])]

    def _bill(self, line: _Line, key: DealKey, now: float) -> list[Effect]:
        bill, standing = line.bills[key], self._desk.ledger.deal(key)
        if standing is None or standing.paid:
            del line.bills[key]
            return []
        end, after = standing.end, standing.billed
        want = bill.want
        if want is not None and (want.upto <= after or (end is not None and want.upto > end)):
            want = bill.want = None
        if want is None and end is not None and standing.tail is not None:
            since, rows = standing.tail
            want = _Want(end, max(0, rows - self._desk.ledger.rows_paid(key, since)))
        if want is not None and want.rows is not None:
            return self._propose(line, standing, want.upto, want.rows, now)
        if self._desk.resold(standing) is not None:
            bill.at = inf  # until the task's worker bills us
            return []
        upto = end if want is None else want.upto
        line.counting = (self._desk.numbers(), key, after)
        line.retry_at = now + self._timing.count_s
        return [Count(line.counting[0], standing.deal, after, upto)]

    def _propose(
        self, line: _Line, standing: Standing, upto: int, rows: int, now: float
    ) -> list[Effect]:
        desk, deal = self._desk, standing.deal
        last = desk.ledger.last(deal.account)
        at = standing.ended_at or int(now * MICROS)
        try:
            receipt = make_receipt(
                deal, desk.federation, last, upto, rows, after=standing.billed, at=at
            )
        except InvalidInputError as error:
            line.bills[deal.key].want = None
            self._later(line.bills[deal.key], now)
            return [Note("warning", f"cannot bill {described(deal.account, deal.task)}: {error}")]
        bill = line.bills[deal.key]
        if bill.due is None:
            bill.due = upto
        line.out = (propose(desk.identity.private_key, receipt), receipt)
        line.backoff.succeeded()
        line.retry_at = now + line.backoff.failed(self._desk.rng)
        return [Send(deal.payer, line.out[0])]

    def _paid(self, line: _Line, standing: Standing, now: float) -> list[Effect]:
        line.drop(standing.deal.key)
        return self._step(standing.deal.account, now)

    def _note_dispute(self, receipt: Receipt, objection: Objection) -> None:
        if receipt.payee == self._desk.own and objection.rows < receipt.rows * (1 - TOLERATED):
            known = self._disputed.get(receipt.contract, -inf)
            self._disputed[receipt.contract] = max(known, receipt.at / MICROS)

    def _later(self, bill: _Bill, now: float) -> None:
        bill.at = now + bill.backoff.failed(self._desk.rng)

    def _backoff(self) -> Backoff:
        return Backoff(self._timing.retry_s, self._timing.retry_most_s)


def disputed_effects(receipt: Receipt, counted: int) -> list[Effect]:
    """The effects of different counts, the same on both sides."""
    text = (
        f"differs on {described(receipt.account, receipt.task)}: {receipt.rows} tuples are claimed "
        f"by {receipt.payee.hex()[:8]}, {receipt.payer.hex()[:8]} counts {counted}"
    )
    return [Disputed(receipt, counted), Note("warning", text)]
