"""Contracts between running peers, made with the commands that any user has."""

from __future__ import annotations

import math
from typing import Final

import msgspec
import trio
from msgspec import Struct

from overlay.errors import InternalError, UnavailableError
from testnet.load.places import RANGE_TASKS, TASK_UNITS, Agreement, Place
from testnet.patience import while_moving
from testnet.peers import Peer, run_command

RETRY_S: Final = 0.5
"""Between two tries to accept a proposal that is still under way, seconds."""


class Proposed(Struct, frozen=True):
    """What `contract propose --json` says, as far as it is needed here."""

    contract: str


async def agree(agreement: Agreement, one: Peer, other: Peer) -> str:
    """One side proposes, the other accepts; gives the contract's id.

    Raises:
        UnavailableError: a command failed. DeadlineError: the proposal did not arrive.
    """
    contract = proposed_id(await run_command(*proposal(agreement), *home(one), log=one.log))
    await accept(contract, other)
    return contract


async def accept(contract: str, peer: Peer) -> None:
    """As soon as the proposal has arrived at the peer.

    Raises:
        DeadlineError: it did not arrive.
    """
    said = ""
    async with while_moving(f"until {peer.participant} accepts {contract[:8]}", lambda: said):
        while True:
            try:
                await run_command("contract", "accept", contract, *home(peer), log=peer.log)
            except UnavailableError as error:
                said = str(error)
            else:
                return
            await trio.sleep(RETRY_S)


def proposal(agreement: Agreement) -> tuple[str, ...]:
    """The arguments of `medusa-peer` that propose it."""
    return (
        *("contract", "propose", "--to", agreement.other.participant),
        *("--price", f"{agreement.price:.6f}", "--tasks", str(RANGE_TASKS)),
        *("--task-load", f"{TASK_UNITS:g}", "--capacity", f"{agreement.one.capacity:g}"),
        *("--runs", menu(agreement.one), "--they-run", menu(agreement.other)),
        *("--valid-for", "1d", "--json"),
    )


def menu(place: Place) -> str:
    """What a peer runs for others: any task, up to all it can."""
    return str(math.ceil(place.capacity))


def home(peer: Peer) -> tuple[str, str]:
    return ("--home", str(peer.home.folder))


def proposed_id(said: str) -> str:
    """
    Raises:
        InternalError: that is not what `contract propose --json` says.
    """
    try:
        return msgspec.json.decode(said, type=Proposed).contract
    except msgspec.MsgspecError as error:
        raise InternalError(f"`contract propose --json` said {said.strip()!r}: {error}") from None
