"""The other participants of a scenario enter its federation, and everybody gets a client."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import trio

from overlay.connection import Connection
from overlay.errors import MedusaError
from testnet.board import Board
from testnet.flow import LOOK_S
from testnet.patience import while_moving
from testnet.peers import Federation, Peer
from tools.client.async_client import AsyncMedusaClient, dial_to, open_client_over
from tools.client.link import Dial
from tools.home.folder import Home


async def admit(
    federation: Federation,
    participants: Sequence[str],
    siblings: Mapping[str, int],
    clients: AsyncExitStack,
    board: Board,
) -> dict[str, AsyncMedusaClient]:
    """Start the peers of everybody but the founder, whose first runs, and wait until they know each
    other.

    Args:
        siblings: how many further peers a participant gets.
        clients: closes what is opened.

    Returns:
        a client of each participant, at whichever of its peers runs.

    Raises:
        DeadlineError: the peers do not find each other.
        MedusaError: one does not start.
    """
    for participant in participants:
        await federation.admit(participant)
    firsts = tuple(federation.peers)
    for peer in firsts:
        await peer.ready()
    for peer in firsts:
        for _ in range(siblings.get(peer.participant, 0)):
            await federation.admit_sibling(peer)
    opened = {}
    for participant, homes in homes_of(federation.peers).items():
        dial = dial_running(homes)
        opened[participant] = await clients.enter_async_context(open_client_over(dial))
        board.say("admit", f"{participant} runs")
    for client in opened.values():
        await _until_together(client, len(federation.peers), board)
    return opened


def homes_of(peers: Sequence[Peer]) -> dict[str, list[Home]]:
    """By participant, in the order of the peers."""
    homes: dict[str, list[Home]] = {}
    for peer in peers:
        homes.setdefault(peer.participant, []).append(peer.home)
    return homes


def dial_running(homes: Sequence[Home]) -> Dial:
    """Dials the first of a participant's peers that runs, at every try anew: what a client does
    that knows several."""

    def dial() -> AbstractAsyncContextManager[Connection]:
        for home in homes[:-1]:
            with contextlib.suppress(MedusaError):
                home.running()
                return dial_to(home.folder, None)()
        return dial_to(homes[-1].folder, None)()

    return dial


async def _until_together(client: AsyncMedusaClient, peers: int, board: Board) -> None:
    """Wait until a peer sees all others running."""
    stage = board.stages["admit"]
    async with while_moving("until the peers find each other", lambda: stage.detail):
        while True:
            board.snapshot = await client.status()
            running = sum(peer.state == "running" for peer in board.snapshot.peers)
            stage.detail = f"{running} of {peers} peers are together"
            if running == peers:
                return
            await trio.sleep(LOOK_S / 4)
