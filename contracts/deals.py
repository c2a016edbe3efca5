"""Deals: the terms that two peers agreed for one task (or one subscription) under a contract."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple, assert_never

from msgspec import Meta, Struct

from medusa.contracts.market.messages import MAX_CONTRACT
from medusa.contracts.terms import (
    MAX_PRICE,
    ContentTerms,
    LoadTerms,
    SuggestedTerms,
    Terms,
    amount_of,
)
from medusa.overlay.errors import InvalidInputError
from medusa.overlay.names import MAX_NAME, PEER_ID_BYTES, PeerId

MAX_COST_NS: Final = 2**40
"""CPU nanoseconds for a tuple: 18 minutes."""

MAX_ROWS: Final = 2**40
"""Tuples of one receipt: amounts stay within 64 bits."""

MAX_TIME: Final = 2**62
"""Microseconds UTC, either sign: differences of two fit 64 bits."""

PartyId = Annotated[PeerId, Meta(min_length=PEER_ID_BYTES, max_length=PEER_ID_BYTES)]
Price = Annotated[int, Meta(ge=0, le=MAX_PRICE)]
Rows = Annotated[int, Meta(ge=0, le=MAX_ROWS)]
Time = Annotated[int, Meta(ge=-MAX_TIME, le=MAX_TIME)]
TermNumber = Annotated[int, Meta(ge=0, le=MAX_TIME)]
TaskName = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
ContractId = Annotated[str, Meta(min_length=1, max_length=MAX_CONTRACT)]


class Account(NamedTuple):
    """The receipts of one payer to one payee under one contract: numbered and chained."""

    contract: str
    payer: PeerId
    payee: PeerId


class DealKey(NamedTuple):
    account: Account
    task: str
    term_number: int


class LoadRate(Struct, frozen=True, array_like=True, tag="load_rate"):
    """The rate of a load contract: payment for a task's input tuples.

    Attributes:
        cost_ns: CPU nanoseconds for a tuple. price: micros per unit of load and second.
    """

    cost_ns: Annotated[int, Meta(ge=0, le=MAX_COST_NS)]
    price: Price

    def amount(self, after: int, upto: int, rows: int) -> int:
        """Micros owed for that many tuples of (after, upto], microseconds of stime."""
        del after, upto
        return amount_of(rows, self.cost_ns, self.price)


class ContentRate(Struct, frozen=True, array_like=True, tag="content_rate"):
    """The rate of a content contract: payment for a stream's tuples, and for periods.

    A period is due when the stream's boundary passes its end. So the price of an interval depends
    on the interval alone, however it is cut into receipts, and a stream that stands still costs
    nothing.

    Attributes:
        per_message: micros for a tuple. per_period: micros for each full period.
        period_us: its length, microseconds of stime; 0: there are no periods.
        since: the boundary at which the first period begins.
    """

    per_message: Price
    per_period: Price = 0
    period_us: Annotated[int, Meta(ge=0, le=MAX_TIME)] = 0
    since: Time = 0

    def amount(self, after: int, upto: int, rows: int) -> int:
        """Micros owed for that many tuples of (after, upto], microseconds of stime."""
        full = self._periods(upto) - self._periods(after)
        return rows * self.per_message + full * self.per_period

    def _periods(self, at: int) -> int:
        return max(0, at - self.since) // self.period_us if self.period_us else 0


Rate = LoadRate | ContentRate


class Deal(Struct, frozen=True, array_like=True):
    """The agreement of two peers when a task moves, or a subscription begins. Peer ids: bytes.

    Attributes:
        task: the name of the task, which is the name of its output stream; in a deal of a content
            contract the name of the stream. term_number: the number of this placement, unique for
            one task (or, chosen by the payer, for the subscriptions to one stream).
        start: boundary from which the payee runs (delivers) it, microseconds of stime.
        agreed_at: microseconds UTC, by the peer's own clock.
    """

    contract: ContractId
    payer: PartyId
    payee: PartyId
    task: TaskName
    term_number: TermNumber
    start: Time
    rate: Rate
    agreed_at: Time

    @property
    def account(self) -> Account:
        return Account(self.contract, self.payer, self.payee)

    @property
    def key(self) -> DealKey:
        return DealKey(self.account, self.task, self.term_number)


def check_rate(rate: Rate, terms: Terms, task: str) -> None:
    """Check a rate against the contract's terms.

    Raises:
        InvalidInputError: these terms do not allow that rate for that task (or stream).
    """
    match terms:
        case LoadTerms():
            if not isinstance(rate, LoadRate):
                raise InvalidInputError(f"{task}: this contract is for load, not for streams")
            if not terms.min_price <= rate.price <= terms.max_price:
                raise InvalidInputError(
                    f"{task}: a price of {rate.price} micros is outside the contract's range, "
                    f"{terms.min_price} to {terms.max_price}"
                )
        case ContentTerms():
            if terms.stream != task:
                raise InvalidInputError(f"{task}: this contract is for {terms.stream}")
            if not isinstance(rate, ContentRate) or _charges(rate) != _charges_of(terms):
                raise InvalidInputError(f"{task}: not what this contract charges for the stream")
        case SuggestedTerms():
            raise InvalidInputError(f"{task}: nobody pays under a suggested contract")
        case _:
            assert_never(terms)


def content_rate(terms: ContentTerms, since: int) -> ContentRate:
    """The rate of a stream under these terms, with periods from `since` (microseconds)."""
    return ContentRate(*_charges_of(terms), since)


def _charges(rate: ContentRate) -> tuple[int, int, int]:
    return rate.per_message, rate.per_period, rate.period_us


def _charges_of(terms: ContentTerms) -> tuple[int, int, int]:
    return terms.per_message, terms.per_period, terms.period_s * 1_000_000
