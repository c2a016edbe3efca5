"""The market of the peer that the monitor asks, as tables: contracts, prices, deals, moves."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from rich.console import RenderableType
from rich.text import Text

from engine.messages import Snapshot
from tools.messages import ContractStatus, MarketStatus, OfferStatus
from tools.tables import (
    SHORT_ID,
    Section,
    add_row,
    bar,
    figures,
    money,
    names,
    number,
    short,
    size,
    spaced,
    styled,
    titled,
    words,
)
from tools.times import show_clock, show_duration

Peers = Mapping[str, str]
"""How peers are called on the screen, by id (hex)."""


def market_sections(market: MarketStatus, snapshot: Snapshot, *, wide: bool) -> list[Section]:
    """The tables of a market; those without rows are left out."""
    peers = _called(snapshot)
    sections = [Section(1, partial(_summary, market, peers))]
    if market.contracts:
        sections.append(Section(len(market.contracts), partial(_contracts, market, wide=wide)))
    if traded := len(market.taken) + len(market.given):
        sections.append(Section(traded, partial(_traded, market, peers, wide=wide)))
    if market.moves:
        sections.append(Section(len(market.moves), partial(_moves, market, peers, wide=wide)))
    return sections


def _summary(market: MarketStatus, peers: Peers, _rows: int) -> RenderableType:
    table = titled("Market", ratio=None)
    figures(table, "next unit", "given", "taken", "balance")
    names(table, "offer")
    units = f"{market.load:.1f}/{market.capacity:.1f} units"
    cost = market.marginal_cost
    add_row(
        table,
        bar(market.load, market.capacity, units),
        Text("none", "red") if cost is None else money(round(cost)),
        number(sum(task.load for task in market.given)),
        number(sum(task.load for task in market.taken)),
        _balance(sum(each.balance for each in market.contracts)),
        _offer(market.offer, peers),
    )
    return spaced(table)


def _offer(offer: OfferStatus | None, peers: Peers) -> Text:
    if offer is None:
        return Text("-", "dim")
    tasks = f"{offer.tasks} task" + "s" * (offer.tasks != 1)
    deal = f"{tasks}, {number(offer.load)} units at {money(offer.price)}"
    return Text(f"{_peer(peers, offer.to)}: {deal}, {show_duration(offer.age_s)} ago", "yellow")


def _contracts(market: MarketStatus, rows: int, *, wide: bool) -> RenderableType:
    table = titled("Contracts", len(market.contracts) - rows)
    if wide:
        words(table, "id")
    words(table, "state")
    figures(table, "prices", "last", "given", "taken", "balance")
    contracts = sorted(market.contracts, key=_contract_order)
    for contract in contracts[:rows]:
        shared = not contract.id
        prices = "-" if shared else f"{money(contract.min_price)}-{money(contract.max_price)}"
        cells: list[str | Text] = [Text(contract.partner)]
        cells += [contract.id[:SHORT_ID] or "-"] if wide else []
        cells += [Text("own peer", "dim") if shared else styled(contract.state), prices]
        cells += [money(contract.last_price) if contract.last_price else "-"]
        cells += [number(contract.given), number(contract.taken), _balance(contract.balance)]
        add_row(table, *cells)
    return spaced(table)


def _contract_order(contract: ContractStatus) -> tuple[bool, float, str]:
    """What needs a person, then what is used most."""
    return contract.state == "in force", -contract.given - contract.taken, contract.partner


def _traded(market: MarketStatus, peers: Peers, rows: int, *, wide: bool) -> RenderableType:
    """What runs here for others, and there for us; the heaviest first."""
    both = [("for", task) for task in market.taken] + [("at", task) for task in market.given]
    both.sort(key=lambda each: (-each[1].load, each[1].task))
    table = titled("Traded tasks", len(both) - rows)
    names(table, "runs", ratio=1)
    figures(table, "units", "price")
    if wide:
        words(table, "contract")
    for where, task in both[:rows]:
        cells: list[str | Text] = [Text(short(task.task))]
        cells += [Text(f"{where} {_peer(peers, task.peer)}"), number(task.load)]
        cells += [money(task.price) if task.price else "-"]
        cells += [task.contract[:SHORT_ID] or "-"] if wide else []
        add_row(table, *cells)
    return spaced(table)


def _moves(market: MarketStatus, peers: Peers, rows: int, *, wide: bool) -> RenderableType:
    """The latest first."""
    table = titled("Moves", len(market.moves) - rows)
    names(table, "from, to", ratio=1)
    figures(table, "price", "stall")
    if wide:
        figures(table, "carried")
    words(table, "at")
    for move in list(reversed(market.moves))[:rows]:
        path = f"{_peer(peers, move.source)} → {_peer(peers, move.target)}"
        cells: list[str | Text] = [Text(short(move.task)), Text(path)]
        cells += [money(move.price) if move.price else "-", f"{move.stall_ms:.0f} ms"]
        cells += [size(move.carry_bytes)] if wide else []
        cells.append(show_clock(move.at))
        add_row(table, *cells)
    return spaced(table)


def _called(snapshot: Snapshot) -> Peers:
    """By the participant, with the id where it has several peers."""
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
