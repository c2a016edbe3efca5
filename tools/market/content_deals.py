"""Deals for streams: the receiver's messages to the sender, and the deals in the ledger."""

from __future__ import annotations

from msgspec import Struct

from medusa.contracts.contract import Contract
from medusa.contracts.deals import ContentRate, ContractId, TaskName, TermNumber, Time
from medusa.contracts.delivery import Contracts
from medusa.contracts.desk import MICROS
from medusa.contracts.ledger import Ledger, Standing
from medusa.contracts.settlement import Ended
from medusa.contracts.terms import ContentTerms


class Begin(Struct, frozen=True):
    """The request of "content.begin": the caller receives a stream, and pays.

    Attributes:
        start: the boundary from which on. since: the begin of the first counted period. Both
            microseconds of stime.
    """

    contract: ContractId
    stream: TaskName
    term_number: TermNumber
    start: Time
    since: Time


class Over(Struct, frozen=True):
    """The request of "content.over": the caller no longer receives the stream, from that boundary
    on."""

    contract: ContractId
    stream: TaskName
    term_number: TermNumber
    upto: Time


def deals_in(ledger: Ledger) -> list[Standing]:
    """The deals for streams in a ledger, ended ones too."""
    return [each for each in ledger.deals() if isinstance(each.deal.rate, ContentRate)]


def rate_of(standing: Standing) -> ContentRate:
    rate = standing.deal.rate
    assert isinstance(rate, ContentRate), "it is a deal for a stream"
    return rate


def ended(standing: Standing, upto: int) -> Ended:
    """The event that ends a deal, which is paid up to `billed` already."""
    return Ended(standing.deal.task, standing.deal.term_number, max(upto, standing.billed))


def content_contracts(contracts: Contracts) -> list[tuple[Contract, ContentTerms]]:
    """The content contracts in force."""
    return [
        (contract, contract.proposal.terms)
        for contract in contracts.in_force()
        if isinstance(contract.proposal.terms, ContentTerms)
    ]


def period_start(contract: Contract, terms: ContentTerms, at: int) -> int:
    """The start of the period that contains `at`. at, result: microseconds UTC, and of stime.

    Periods follow one another from the contract's beginning, so that leaving a stream and coming
    back makes none of them longer, and none is paid twice.
    """
    begin = int(contract.proposal.valid_from * MICROS)
    period_us = terms.period_s * MICROS
    return begin + max(0, at - begin) // period_us * period_us if period_us else 0
