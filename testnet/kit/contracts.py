"""Contracts between running peers, made with the commands of ordinary users."""

from __future__ import annotations

from typing import Final

import msgspec
import trio
from msgspec import Struct

from overlay.errors import InternalError, UnavailableError
from testnet.kit.patience import while_moving
from testnet.kit.peers import Peer, run_command

RETRY_S: Final = 0.5
"""Seconds between two tries to accept a proposal that is still under way."""


class Proposed(Struct, frozen=True):
    """The needed fields of `contract propose --json`."""

    contract: str


async def agree(one: Peer, other: Peer, *proposal: str) -> None:
    """One peer's participant proposes (arguments of `medusa-peer`), the other's accepts.

    Raises:
        UnavailableError: a command failed. DeadlineError: the proposal did not arrive.
    """
    contract = proposed_id(await run_command(*proposal, *home(one), log=one.log))
    said = ""
    async with while_moving(f"until {other.participant} accepts {contract[:8]}", lambda: said):
        while True:
            try:
                await run_command("contract", "accept", contract, *home(other), log=other.log)
            except UnavailableError as error:
                said = str(error)
            else:
                return
            await trio.sleep(RETRY_S)


def home(peer: Peer) -> tuple[str, str]:
    return ("--home", str(peer.home.folder))


def proposed_id(said: str) -> str:
    """
    Raises:
        InternalError: that is not the output of `contract propose --json`.
    """
    try:
        return msgspec.json.decode(said, type=Proposed).contract
    except msgspec.MsgspecError as error:
        raise InternalError(f"`contract propose --json` said {said.strip()!r}: {error}") from None
