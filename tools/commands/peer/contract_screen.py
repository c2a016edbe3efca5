"""Contracts and balances as text for people, and as JSON."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Final

import msgspec
from rich.table import Table
from rich.text import Text

from medusa.contracts.balances import Balances
from medusa.contracts.contract import SHORT_ID, Contract, State
from medusa.contracts.documents import Revocation, open_document
from medusa.contracts.terms import Terms
from medusa.tools.commands.peer.contract_calls import Office, Outcome
from medusa.tools.commands.peer.contract_terms import MICROS, in_full, in_short, kind_of, show_money
from medusa.tools.commands.plain_tables import lines_table
from medusa.tools.monitor.tables import add_row

_STYLES: Final = {
    State.IN_FORCE: "green",
    State.THEIR_PROPOSAL: "yellow",
    State.OUR_PROPOSAL: "yellow",
    State.LATER: "yellow",
    State.BARRED: "bold red",
    State.EXPIRED: "dim",
    State.REVOKED: "dim",
}


def contract_table(office: Office, contracts: Sequence[Contract]) -> Table:
    """A table with one line for each contract."""
    table = lines_table()
    table.add_column("contract", no_wrap=True)
    table.add_column("with", overflow="fold", min_width=8)
    table.add_column("state", no_wrap=True)
    table.add_column("until", no_wrap=True)
    table.add_column("terms", overflow="fold", ratio=1)
    for contract in contracts:
        state = office.book.state(contract, office.now)
        add_row(
            table,
            contract.id[:SHORT_ID],
            contract.counterparty(office.participant),
            Text(state, _STYLES[state]),
            _day(contract.proposal.valid_until),
            in_short(contract.proposal.terms),
        )
    return table


def contract_details(office: Office, contract: Contract) -> Table:
    """All terms of a contract, to be read before signing."""
    proposal = contract.proposal
    state = office.book.state(contract, office.now)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    add_row(table, "contract", contract.id)
    add_row(table, "state", Text(state, _STYLES[state]))
    add_row(table, "kind", kind_of(proposal.terms))
    add_row(table, "proposed by", f"{proposal.proposer} to {proposal.accepter}")
    if contract.revocation:
        add_row(table, "revoked by", _revoker(contract.revocation))
    add_row(table, "from", _moment(proposal.valid_from))
    add_row(table, "until", _moment(proposal.valid_until))
    for name, words in in_full(proposal.terms, *proposal.parties):
        add_row(table, name, words)
    return table


def in_words(outcome: Outcome, office: Office) -> str:
    """A sentence about the peers that hold a contract."""
    other = outcome.contract.counterparty(office.participant)
    if outcome.trouble:
        return (
            f"kept here, but the running peer could not be told ({outcome.trouble}); "
            "any later contract command that signs tells it"
        )
    if outcome.delivered is None:
        return f"not delivered: the peer here does not run; it tells {other} once it does"
    if outcome.delivered.refused:
        return f"not delivered: {outcome.delivered.refused[0]}"
    theirs = sum(1 for holder in outcome.delivered.holders if holder.participant == other)
    if not theirs:
        return f"not delivered: no peer of {other} was reached; this peer goes on trying"
    return f"delivered to {theirs} peer{'s' if theirs > 1 else ''} of {other}"


def balance_table(office: Office, found: Balances) -> Table:
    """A table with one line for each contract: the money that we earned and spent under it."""
    table = lines_table()
    table.add_column("contract", no_wrap=True)
    table.add_column("with", overflow="fold", ratio=1, min_width=8)
    for name in ("earned", "spent", "net", "tuples", "receipts", "disputes"):
        table.add_column(name, justify="right", overflow="fold")
    known = {contract.id: contract for contract in office.book.all()}
    for balance in found.contracts:
        contract = known.get(balance.contract)
        add_row(
            table,
            balance.contract[:SHORT_ID],
            contract.counterparty(office.participant) if contract else "-",
            _rounded(balance.earned),
            _rounded(balance.spent),
            Text(_rounded(balance.net), "red" if balance.net < 0 else "green"),
            str(balance.tuples),
            str(balance.receipts),
            Text(str(balance.disputes), "bold red" if balance.disputes else ""),
        )
    return table


def _rounded(micros: int) -> str:
    """An amount rounded for people, unless it is small; `--json` has all digits."""
    if abs(micros) < MICROS:
        return show_money(micros)
    return f"{micros / MICROS:,.2f}"


def as_json(office: Office, contract: Contract) -> dict[str, object]:
    """A contract; money in micros, times in seconds since the epoch."""
    proposal = contract.proposal
    return {
        "contract": contract.id,
        "state": office.book.state(contract, office.now).value,
        "with": contract.counterparty(office.participant),
        "proposer": proposal.proposer,
        "accepter": proposal.accepter,
        "kind": kind_of(proposal.terms),
        "terms": _terms_json(proposal.terms),
        "valid_from": proposal.valid_from,
        "valid_until": proposal.valid_until,
        "proposed_at": proposal.proposed_at,
    }


def outcome_json(office: Office, outcome: Outcome) -> dict[str, object]:
    """A contract, and the peers that hold it."""
    answer = outcome.delivered
    return as_json(office, outcome.contract) | {
        "holders": [msgspec.to_builtins(h) for h in answer.holders] if answer else [],
        "refused": list(answer.refused) if answer else [],
        "trouble": outcome.trouble,
    }


def balances_json(found: Balances, contract: str) -> dict[str, object]:
    """Balances; money in micros. contract: include it even if nothing was settled."""
    chosen = (found.of(contract),) if contract else found.contracts
    return {
        "peer": found.peer,
        "contracts": [msgspec.structs.asdict(b) | {"net": b.net} for b in chosen],
        "entries": found.entries,
        "head": found.head,
        "fault": found.fault,
    }


def _terms_json(terms: Terms) -> dict[str, object]:
    values = msgspec.structs.asdict(terms)
    return {
        name: msgspec.structs.asdict(value) if isinstance(value, msgspec.Struct) else value
        for name, value in values.items()
    }


def _revoker(revocation: bytes) -> str:
    body = open_document(revocation).body
    assert isinstance(body, Revocation)
    return f"{body.by}, {_moment(body.at)} by its clock"


def _day(seconds: float) -> str:
    return f"{_utc(seconds):%Y-%m-%d}"


def _moment(seconds: float) -> str:
    return f"{_utc(seconds):%Y-%m-%d %H:%M} UTC"


def _utc(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
