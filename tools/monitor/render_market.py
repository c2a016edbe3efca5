"""The market of the peer that the monitor asks, as tables: contracts, prices, deals, moves."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

from medusa.engine.replication.records.status import Snapshot
from medusa.tools.client.times import show_clock, show_duration
from medusa.tools.home.messages import ContractStatus, MarketStatus, OfferStatus
from medusa.tools.monitor.tables import (
    SHORT_ID,
    Line,
    Section,
    bar,
    figures,
    money,
    names,
    number,
    short,
    size,
    styled,
    titled,
    words,
)

Peers = Mapping[str, str]
"""Names of peers on the screen, by id (hex)."""


def market_sections(market: MarketStatus, snapshot: Snapshot, *, wide: bool) -> list[Section]:
    """The non-empty tables of a market; none if the market has no contracts and has traded
    nothing."""
    peers = _called(snapshot)
    sections = []
    if market.contracts:
        sections.append(_contracts(market, wide=wide))
    if market.taken or market.given:
        sections.append(_traded(market, peers, wide=wide))
    if market.moves:
        sections.append(_moves(market, peers, wide=wide))
    return [_summary(market, peers), *sections] if sections else []


def _summary(market: MarketStatus, peers: Peers) -> Section:
    columns = [titled("Market", ratio=None), *figures("next unit", "given", "taken", "balance")]
    units = f"{market.load:.1f}/{market.capacity:.1f} units"
    cost = market.marginal_cost
    cells: list[str | Text] = [
        bar(market.load, market.capacity, units),
        Text("none", "red") if cost is None else money(round(cost)),
        number(sum(task.load for task in market.given)),
        number(sum(task.load for task in market.taken)),
        _balance(sum(each.balance for each in market.contracts)),
        _offer(market.offer, peers),
    ]
    return Section("Market", [*columns, names("offer")], [[cells]])


def _offer(offer: OfferStatus | None, peers: Peers) -> Text:
    if offer is None:
        return Text("-", "dim")
    tasks = f"{offer.tasks} task" + "s" * (offer.tasks != 1)
    deal = f"{tasks}, {number(offer.load)} units at {money(offer.price)}"
    return Text(f"{_peer(peers, offer.to)}: {deal}, {show_duration(offer.age_s)} ago", "yellow")


def _contracts(market: MarketStatus, *, wide: bool) -> Section:
    columns = [titled("Contracts")]
    columns += words("id") if wide else []
    columns += [*words("state"), *figures("prices", "last", "given", "taken", "balance")]
    items: list[list[Line]] = []
    for contract in sorted(market.contracts, key=_contract_order):
        shared = not contract.id
        cells: list[str | Text] = [Text(contract.partner)]
        cells += [contract.id[:SHORT_ID] or "-"] if wide else []
        cells += [Text("own peer", "dim") if shared else styled(contract.state), _prices(contract)]
        cells += [money(contract.last_price) if contract.last_price else "-"]
        cells += [number(contract.given), number(contract.taken), _balance(contract.balance)]
        items.append([cells])
    return Section("Contracts", columns, items)


def _prices(contract: ContractStatus) -> str:
    """The price range of a unit of load and second; or a stream's prices."""
    if not contract.id:
        return "-"
    if contract.max_price:
        return f"{money(contract.min_price)}-{money(contract.max_price)}"
    paid = [f"{money(contract.per_message)}/tuple"] if contract.per_message else []
    if contract.per_period:
        paid.append(f"{money(contract.per_period)}/{show_duration(contract.period_s)}")
    return " + ".join(paid) or "-"


def _contract_order(contract: ContractStatus) -> tuple[bool, float, str]:
    """Sort key: contracts that need a person first, then the most used ones."""
    return contract.state == "in force", -contract.given - contract.taken, contract.partner


def _traded(market: MarketStatus, peers: Peers, *, wide: bool) -> Section:
    """The tasks that run here for others, and there for us; the heaviest first."""
    both = [("for", task) for task in market.taken] + [("at", task) for task in market.given]
    both.sort(key=lambda each: (-each[1].load, each[1].task))
    columns = [titled("Traded tasks"), names("runs"), *figures("units", "price")]
    columns += words("contract") if wide else []
    items: list[list[Line]] = []
    for where, task in both:
        cells: list[str | Text] = [Text(short(task.task))]
        cells += [Text(f"{where} {_peer(peers, task.peer)}"), number(task.load)]
        cells += [money(task.price) if task.price else "-"]
        cells += [task.contract[:SHORT_ID] or "-"] if wide else []
        items.append([cells])
    return Section("Traded", columns, items)


def _moves(market: MarketStatus, peers: Peers, *, wide: bool) -> Section:
    """The moves, the latest first."""
    columns = [titled("Moves"), names("from, to"), *figures("price", "stall")]
    columns += figures("carried") if wide else []
    items: list[list[Line]] = []
    for move in reversed(market.moves):
        path = f"{_peer(peers, move.source)} → {_peer(peers, move.target)}"
        cells: list[str | Text] = [Text(short(move.task)), Text(path)]
        cells += [money(move.price) if move.price else "-", f"{move.stall_ms:.0f} ms"]
        cells += [size(move.carry_bytes)] if wide else []
        items.append([[*cells, show_clock(move.at)]])
    return Section("Moves", [*columns, *words("at")], items)


def _called(snapshot: Snapshot) -> Peers:
    """A peer's name: its participant, with the id if the participant has several peers."""
    owners = [peer.participant for peer in snapshot.peers]
    return {
        peer.peer: peer.participant
        if owners.count(peer.participant) == 1
        else f"{peer.participant} {peer.peer[:SHORT_ID]}"
        for peer in snapshot.peers
    }


def _peer(peers: Peers, peer: str) -> str:
    return peers.get(peer, peer[:SHORT_ID])


def _balance(micros: int) -> Text:
    return Text(money(micros), "red" if micros < 0 else "green" if micros else "dim")
