"""The contracts of a manifest: signed by both roots, handed to a peer each, and revoked."""

from __future__ import annotations

import random
from typing import Final

from contracts.delivery import DELIVER, Deliver, Delivered
from contracts.documents import (
    NONCE_BYTES,
    Proposal,
    accept,
    contract_id,
    propose,
    revoke,
)
from contracts.terms import LoadTerms, Menu
from overlay.errors import InternalError
from overlay.events import wall_clock
from overlay.identity import Root
from overlay.membership_file import load_membership
from testnet.simulation.manifest import ContractTable
from testnet.simulation.testbed import Testbed
from testnet.simulation.workload import PATIENCE_S, persist

EARLIER_S: Final = 60.0
"""How long it is in force already: clocks differ, seconds."""

VALID_S: Final = 86_400.0


async def conclude(bed: Testbed, table: ContractTable, rng: random.Random) -> str:
    """Make the contract, and give it to a peer of either party; its id.

    Raises:
        MedusaError: a peer does not take it.
    """
    one, other = (_root(bed, name) for name in (table.one, table.other))
    menu, now = Menu(most_load=table.most_load), wall_clock()
    proposal = propose(
        one,
        Proposal(
            federation=_federation(bed, table.one),
            proposer=table.one,
            accepter=table.other,
            terms=LoadTerms(*table.price, menu, menu, sublet=table.sublet),
            valid_from=now - EARLIER_S,
            valid_until=now + VALID_S,
            proposed_at=now,
            nonce=rng.randbytes(NONCE_BYTES),
        ),
    )
    acceptance = accept(other, proposal)
    for participant in (table.one, table.other):
        await _deliver(bed, f"{participant}/0", acceptance)
    return contract_id(proposal)


async def end_contract(bed: Testbed, table: ContractTable, contract: str) -> None:
    """`one` revokes it, by whichever of its peers takes that; tries for ever."""
    document = revoke(_root(bed, table.one), _federation(bed, table.one), contract, wall_clock())
    peers = tuple(name for name, place in bed.peers.items() if place.participant == table.one)
    await persist(bed, peers, lambda peer: _deliver(bed, peer, document))
    bed.note("contract", f"{table.one} revokes {contract[:8]} with {table.other}")


async def _deliver(bed: Testbed, peer: str, document: bytes) -> None:
    async with bed.client(peer, patience_s=PATIENCE_S) as client:
        answer = await client._ask(DELIVER, Deliver((document,)), Delivered)
    if any(answer.reasons):
        raise InternalError(f"{peer} does not take a contract: {answer.reasons[0]}")


def _root(bed: Testbed, participant: str) -> Root:
    return Root.load(bed.peers[f"{participant}/0"].home.folder)


def _federation(bed: Testbed, participant: str) -> str:
    return load_membership(bed.peers[f"{participant}/0"].home.folder).federation
