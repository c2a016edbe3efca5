"""Streams that are read under a contract, and paid for."""

from __future__ import annotations

import trio
from engine_peers import DEADLINE_S, Place, begin, send_rows, until
from tools_market_cluster import DAY_S, balances, deliver, notes, proposed, trader

from medusa.contracts.balances import Balance
from medusa.contracts.documents import contract_id
from medusa.contracts.terms import ContentTerms
from medusa.engine.objects.query import Filter, Query
from medusa.tools.client.async_client import AsyncMedusaClient

EACH = 7
"""The price of a tuple, in micros."""


def terms(stream: str, sender: str = "mit.edu", **options: int) -> ContentTerms:
    return ContentTerms(stream, sender, **({"per_message": EACH} | options))


async def agreed(one: Place, two: Place, content: ContentTerms, valid_s: float = DAY_S) -> str:
    """Put a contract in force at both peers; return its id."""
    proposal, acceptance = proposed(one, two, content, valid_s=valid_s)  # type: ignore[arg-type]
    await deliver(one, acceptance)
    contract = contract_id(proposal)
    await until(lambda: contract in in_force(one) and contract in in_force(two), "in force at both")
    return contract


def in_force(place: Place) -> set[str]:
    return {contract.id for contract in trader(place)._contracts.in_force()}


def copy_of(place: Place, source: str, path: str) -> Query:
    """Create a query that copies the stream."""
    box = Filter("all", source, (place.name(path),), ("value >= 0",))
    return Query(place.name("q/" + path), (box,))


async def reading(client: AsyncMedusaClient, place: Place, source: str, path: str = "all") -> None:
    """Wait until a query of that peer reads the stream."""
    await begin(client, copy_of(place, source, path))


async def post(client: AsyncMedusaClient, stream: str, stimes: range, *, end: bool = False) -> None:
    await send_rows(client, stream, [(at, at) for at in stimes], boundary=stimes[-1], end=end)


async def arrived(place: Place, boundary: int, path: str = "all") -> None:
    await until(lambda: place.state(path).log.boundary >= boundary, f"{path} is at {boundary}")


async def paid(payer: Place, payee: Place, contract: str, tuples: int, disputes: int = 0) -> None:
    """Wait until exactly those tuples are paid for, in the ledgers of both peers."""
    spent = earned = Balance(contract)
    with trio.move_on_after(DEADLINE_S):
        while (spent.tuples, earned.tuples) != (tuples, tuples):
            await trio.sleep(0.05)
            spent, earned = await balances(payer, contract), await balances(payee, contract)
    said = f"{tuples}: {spent} {earned}\n{notes(payer)}\n--\n{notes(payee)}"
    amount = tuples * EACH
    assert (spent.spent, spent.earned, spent.tuples) == (amount, 0, tuples), said
    assert (earned.earned, earned.spent, earned.tuples) == (amount, 0, tuples), said
    assert (spent.receipts, spent.disputes) == (earned.receipts, earned.disputes), said
    assert spent.disputes == disputes, said
