"""Contracts between running peers, made with the commands that any user has."""

from __future__ import annotations

import math
from typing import Final

import msgspec
import trio
from msgspec import Struct

from overlay.errors import DeadlineError, InternalError, UnavailableError
from testnet.load.places import RANGE_TASKS, TASK_UNITS, Agreement, Place
from testnet.peers import Peer, run_command

ARRIVE_S: Final = 30.0
"""Longest that a proposal may be under way to the other party's peer, seconds."""
RETRY_S: Final = 0.5


class Proposed(Struct, frozen=True):
    """What `contract propose --json` says, as far as it is needed here."""

    contract: str


async def agree(agreement: Agreement, one: Peer, other: Peer) -> str:
    """One side proposes, the other accepts; gives the contract's id.

    Raises:
        UnavailableError: a command failed. DeadlineError: the proposal did not arrive.
    """
    contract = proposed_id(await run_command(*proposal(agreement), *home(one), log=one.log))
    failure: UnavailableError | None = None
    with trio.move_on_after(ARRIVE_S):
        while True:
            try:
                await run_command("contract", "accept", contract, *home(other), log=other.log)
            except UnavailableError as error:
                failure = error
            else:
                return contract
            await trio.sleep(RETRY_S)
    raise DeadlineError(
        f"{agreement.other.participant} could not accept contract {contract} of "
        f"{agreement.one.participant} within {ARRIVE_S:.0f} s: {failure}"
    )


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
