"""Describes the effects of ending a membership or a contract to the person who must confirm it."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Final

from medusa.contracts.book import Book
from medusa.contracts.contract import SHORT_ID, Contract
from medusa.engine.replication.records.status import Snapshot
from medusa.engine.streams.store.stream_state import Role
from medusa.overlay.errors import MedusaError
from medusa.overlay.membership import Membership
from medusa.overlay.names import SCHEME
from medusa.tools.client.at_prompt import ask_daemon
from medusa.tools.client.calls import ClientCalls
from medusa.tools.commands.peer.contract_terms import in_short
from medusa.tools.home.folder import Home
from medusa.tools.home.messages import MarketStatus

NAMED: Final = 8
"""Names listed in a line; the others are counted."""

UNKNOWN: Final = "streams and tasks: not known, since this home's peer does not answer"


@dataclass(frozen=True)
class Running:
    """The answers of a home's daemon; None: it does not run, or does not answer."""

    snapshot: Snapshot | None
    market: MarketStatus | None


def ask(home: Home) -> Running:
    """Ask for the tasks that run at this home and at its known peers."""
    if not home.is_locked():
        return Running(None, None)

    async def status(client: ClientCalls) -> Running:
        return Running(await client.status(), await client.market_status())

    try:
        return ask_daemon(home, status)
    except MedusaError:
        return Running(None, None)


def of_membership(home: Home, book: Book, name: str, peer_id: str, now: float) -> list[str]:
    """The consequences of the end of that participant's membership, or of one peer's.

    Args:
        peer_id: hex; "": all its peers. now: seconds since the epoch.
    """
    running = ask(home)
    said = [] if peer_id else _contracts(book, name, now)
    if running.snapshot is None:
        return [*said, UNKNOWN]
    ids = {
        peer.peer
        for peer in running.snapshot.peers
        if peer.participant == name and peer_id in {"", peer.peer}
    }
    ours = [p for p in running.snapshot.peers if p.participant == book.participant]
    read = {
        stream.name
        for peer in ours
        for stream in peer.streams
        if stream.producer in ids or (not peer_id and stream.name.startswith(f"{SCHEME}{name}/"))
    }
    waiting = {t.query for peer in ours for t in peer.tasks if not read.isdisjoint(t.inputs)}
    said += _line("streams that are read from it no more", read)
    said += _line("our queries that wait for these from then on", waiting)
    said += _line("tasks that go home", _traded(running.market, ids))
    return said or ["nothing that is known here depends on it"]


def of_sponsor(membership: Membership, name: str) -> list[str]:
    """The consequence for the admission policy of the end of that participant's membership."""
    policy = membership.tally.policy.policy
    left = [each for each in policy.sponsors if each != name and membership.root_of(each)]
    if name not in policy.sponsors or len(left) >= policy.needed:
        return []
    return [
        f"nobody can admit others, nor change that, any more: {policy.who} may, and "
        f"{len(left)} of these are left; `medusa-peer policy` changes it before"
    ]


def of_contract(home: Home, contract: Contract) -> list[str]:
    """The consequences of the end of a contract."""
    market = ask(home).market
    if market is None:
        return ["tasks under it: not known, since this home's peer does not answer"]
    tasks = {
        task.task
        for task in (*market.taken, *market.given)
        if task.contract and contract.id.startswith(task.contract)
    }
    return _line("tasks that go home", tasks) or ["no task runs under it"]


def of_leaving(home: Home, book: Book, now: float, *, whole: bool) -> list[str]:
    """The consequences when this peer, or its participant with all its peers, leaves."""
    running = ask(home)
    partners = {each.counterparty(book.participant) for each in book.in_force(now)}
    said = _line("contracts that end, with", partners) if whole else []
    if running.snapshot is None:
        return [*said, UNKNOWN]
    leaving = [
        peer
        for peer in running.snapshot.peers
        if peer.peer == running.snapshot.by or (whole and peer.participant == book.participant)
    ]
    streams = {s.name for p in leaving for s in p.streams if s.role == Role.SOURCE}
    queries = {t.query for p in leaving for t in p.tasks if not t.owner}
    said += _line("peers that all others refuse from then on", {p.peer[:SHORT_ID] for p in leaving})
    said += _line("source streams whose home leaves", streams)
    said += _line("queries that run no more, unless a standby goes on", queries)
    said += _line("tasks that go home", _traded(running.market, None))
    return said


def _contracts(book: Book, name: str, now: float) -> list[str]:
    return _line(
        "contracts that end",
        {
            f"{each.id[:SHORT_ID]} ({in_short(each.proposal.terms)})"
            for each in book.in_force(now)
            if each.counterparty(book.participant) == name
        },
    )


def _traded(market: MarketStatus | None, ids: Set[str] | None) -> set[str]:
    """The tasks that run for, or at, one of these peers; None: any."""
    if market is None:
        return set()
    tasks = (*market.taken, *market.given)
    return {task.task for task in tasks if ids is None or task.peer in ids}


def _line(what: str, names: Set[str]) -> list[str]:
    if not names:
        return []
    listed = sorted(names)
    more = f" and {len(listed) - NAMED} more" if len(listed) > NAMED else ""
    return [f"{what}: {', '.join(listed[:NAMED])}{more}"]
