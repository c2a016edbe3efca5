"""Checks of the peers' internal states: owners, members, money, and health."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from medusa.engine.objects.query import Query
from medusa.overlay.clock import MAX_AHEAD_S, MICROS, latest_number
from medusa.testnet.simulation.faults import Drift
from medusa.testnet.simulation.history import (
    AccountView,
    History,
    Invited,
    Paid,
    PeerView,
    Quiescent,
    Violation,
    found,
)
from medusa.testnet.simulation.manifest import Check, Manifest
from medusa.testnet.virtual.hosts import EPOCH_S

ALIVE: Final = "alive"


def _last(history: History) -> Quiescent | None:
    moments = list(history.of(Quiescent))
    return moments[-1] if moments else None


# -- owners ----------------------------------------------------------------------------------------


def check_owners(history: History, manifest: Manifest) -> list[Violation]:
    """Check that no two peers ever hold one term. At rest a query has one primary, and a task at
    most one worker, which is the one that its owner names."""
    wrong = list(_two_of_one_term(history.of(PeerView)))
    at_rest = _last(history)
    return wrong + (owners_of(at_rest, manifest) if at_rest else [])


def _two_of_one_term(views: Iterable[PeerView]) -> Iterator[Violation]:
    holders: dict[tuple[str, int], PeerView] = {}
    for view in views:
        held = [(each.query, each.term_number) for each in view.primaries]
        held += [(each.task, each.term_number) for each in view.works]
        for what in held:
            first = holders.setdefault(what, view)
            if first.peer != view.peer:
                yield found(
                    Check.OWNERS,
                    f"{what[0]}: two peers under term {what[1]}",
                    [f"{each.peer} at {each.at:.3f} s" for each in (first, view)],
                )
                holders[what] = view


def owners_of(now: Quiescent, manifest: Manifest) -> list[Violation]:
    wrong: list[Violation] = []
    for table in manifest.queries:
        name = table.query().name
        primaries = [v.peer for v in now.peers if any(p.query == name for p in v.primaries)]
        if len(primaries) != 1:
            text = f"{name} has {len(primaries)} primaries at rest"
            wrong.append(found(Check.OWNERS, text, primaries))
    workers: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    for view in now.peers:
        for work in view.works:
            workers[work.task].append((view.id, work.term_number))
    named = {give.task: (give.peer, give.term_number) for view in now.peers for give in view.gives}
    for task in workers.keys() | named.keys():
        says = [named[task]] if task in named else []
        if workers[task] != says:
            text = f"{task}: its owner names {says}, the workers are {workers[task]}"
            wrong.append(found(Check.OWNERS, text))
    return wrong


# -- members and catalog ---------------------------------------------------------------------------


def check_membership(history: History, manifest: Manifest) -> list[Violation]:
    """Check that every member was invited. At rest all peers hold the same statements, and their
    lookups agree."""
    wrong = list(_uninvited(history, manifest))
    at_rest = _last(history)
    return wrong + (membership_of(at_rest, manifest) if at_rest else [])


def _uninvited(history: History, manifest: Manifest) -> Iterator[Violation]:
    invited = {*manifest.participants, *(each.participant for each in history.of(Invited))}
    told: set[str] = set()
    for view in history.of(PeerView):
        strangers = set(view.members) - invited - told
        if strangers:
            told |= strangers
            text = f"{view.peer} has members that nobody invited"
            yield found(Check.MEMBERSHIP, text, sorted(strangers))


def membership_of(now: Quiescent, manifest: Manifest) -> list[Violation]:
    wrong: list[Violation] = []
    holders: defaultdict[frozenset[str], list[str]] = defaultdict(list)
    for view in now.peers:
        holders[frozenset(view.statements)].append(view.peer)
    if len(holders) > 1:
        lines = [f"{', '.join(peers)}: {len(held)} statements" for held, peers in holders.items()]
        wrong.append(found(Check.MEMBERSHIP, "peers hold different admissions", lines))
    return wrong + catalog_of(now, manifest)


def catalog_of(now: Quiescent, manifest: Manifest) -> list[Violation]:
    """Check that all lookups of a stream agree, and name its producer and its worker."""
    wrong: list[Violation] = []
    makers = makers_of(now, manifest)
    for stream in sorted({name for view in now.peers for name in view.producers}):
        said = {v.peer: v.producers[stream] for v in now.peers if stream in v.producers}
        lines = [f"{peer}: {producer}" for peer, producer in said.items()]
        if len(set(said.values())) > 1:
            wrong.append(found(Check.MEMBERSHIP, f"lookups of {stream} differ", lines))
        elif stream in makers and makers[stream] not in said.values():
            text = f"lookups of {stream} do not name its producer, {makers[stream]}"
            wrong.append(found(Check.MEMBERSHIP, text, lines[:1]))
    return wrong


def makers_of(now: Quiescent, manifest: Manifest) -> dict[str, str]:
    """The producers of the sources and of the queries' last streams, by those peers' own state."""
    makes = {table.query().name: last_output(table.query()) for table in manifest.queries}
    makes |= {table.name: table.name for table in manifest.streams if table.k_safety}
    makers = {
        table.name: named(view.id, 0, "")
        for table in manifest.streams
        for view in now.peers
        if view.peer == table.home and not table.k_safety
    }
    term_numbers: dict[str, int] = {}
    for view in now.peers:
        workers = {give.task: give.peer for give in view.gives}
        for primary in view.primaries:
            stream = makes.get(primary.query)
            if stream is not None and primary.term_number >= term_numbers.get(stream, 0):
                term_numbers[stream] = primary.term_number
                makers[stream] = named(view.id, primary.term_number, workers.get(stream, ""))
    return makers


def last_output(query: Query) -> str:
    return query.boxes[-1].outputs[-1]


def named(peer: str, term_number: int, worker: str) -> str:
    """A producer, as in `PeerView.producers`. peer, worker: ids (hex)."""
    return f"{peer} {term_number} {worker}".rstrip()


# -- money -----------------------------------------------------------------------------------------


def check_money(history: History, manifest: Manifest) -> list[Violation]:
    """Check that no ledger is damaged. At rest one side of a contract has spent what the other has
    earned, receipt by receipt, each signed by both."""
    moments = [_last(history), *(paid.state for paid in history.of(Paid))]
    return [
        wrong for moment in moments if moment is not None for wrong in money_of(moment, manifest)
    ]


def money_of(now: Quiescent, _: Manifest) -> list[Violation]:
    wrong = [
        found(Check.MONEY, f"the ledger of {view.peer} does not hold: {view.books.fault}")
        for view in now.peers
        if view.books.fault
    ]
    if now.down:
        return wrong  # the other half of the books is not visible
    books: defaultdict[str, list[str]] = defaultdict(list)
    sums: defaultdict[str, int] = defaultdict(int)
    for view in now.peers:
        for balance in view.books.balances:
            sums[balance.contract] += balance.net
            books[balance.contract].append(f"{view.peer}: {balance}")
            if balance.disputes:
                text = f"{view.peer} disputes what honest partners count"
                wrong.append(found(Check.MONEY, text, [balance]))
    for contract, net in sums.items():
        if net:
            text = f"contract {contract[:8]}: {net} micros were earned and not spent"
            wrong.append(found(Check.MONEY, text, books[contract]))
    return wrong + list(_accounts_that_differ(now))


def _accounts_that_differ(now: Quiescent) -> Iterator[Violation]:
    """Accounts whose two sides do not have the same receipts; the last receipt vouches for all
    before it."""
    sides = {view.id: {_key(each): each for each in view.books.accounts} for view in now.peers}
    for key in sorted({key for accounts in sides.values() for key in accounts}):
        _, payer, payee = key
        spent, earned = (sides.get(peer, {}).get(key, AccountView(*key)) for peer in (payer, payee))
        if spent != earned:
            text = f"contract {key[0][:8]}: {payer[:8]} and {payee[:8]} have different receipts"
            yield found(Check.MONEY, text, [f"paid: {spent}", f"earned: {earned}"])


def _key(account: AccountView) -> tuple[str, str, str]:
    return account.contract, account.payer, account.payee


# -- gossip ----------------------------------------------------------------------------------------


def check_gossip(history: History, manifest: Manifest) -> list[Violation]:
    """Check that no peer's incarnation goes back, except from the future, where nobody believes it,
    and that each life has its own. At rest all running peers see each other alive and the others
    not.

    A peer whose clock leaps back by more than the margin takes its incarnations before the leap for
    ones of the future (ADR 17).
    """
    leaps_back = {
        fault.peer
        for fault in manifest.faults
        if isinstance(fault, Drift) and fault.step_s < -MAX_AHEAD_S
    }
    views = history.of(PeerView)
    wrong = list(_gone_back(view for view in views if view.peer not in leaps_back))
    at_rest = _last(history)
    return wrong + (gossip_of(at_rest, manifest) if at_rest else [])


def _gone_back(views: Iterable[PeerView]) -> Iterator[Violation]:
    last: dict[str, PeerView] = {}
    for view in views:
        before = last.get(view.peer, view)
        if before.incarnation > latest_number(EPOCH_S + view.at, MICROS):
            before = view
        if view.incarnation < before.incarnation:
            text = f"the incarnation of {view.peer} went back"
            yield found(Check.GOSSIP, text, [f"{before.incarnation} -> {view.incarnation}"])
        if view.life > before.life and view.incarnation <= before.incarnation:
            text = f"{view.peer} began life {view.life} with an incarnation that it had used"
            yield found(Check.GOSSIP, text, [f"{before.incarnation} -> {view.incarnation}"])
        last[view.peer] = view


def gossip_of(now: Quiescent, _: Manifest) -> list[Violation]:
    running = {view.id for view in now.peers}
    wrong: list[Violation] = []
    for view in now.peers:
        if not view.health:
            continue  # the peer has no failure detector
        mistaken = [
            f"{peer[:8]} is {'running' if peer in running else 'down'}, seen {health}"
            for peer in sorted(running | set(now.down))
            if peer != view.id
            and ((health := view.health.get(peer, ALIVE)) == ALIVE) is not (peer in running)
        ]
        if mistaken:
            wrong.append(found(Check.GOSSIP, f"{view.peer} is mistaken about who lives", mistaken))
    return wrong
