"""Asks the peers once a second, as `medusa monitor` does, and records loads and moves."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import trio

from engine.replication.status import PeerStatus
from overlay.errors import BusyError, DeadlineError, UnavailableError
from testnet.load.board import Load, LoadBoard, Moved
from tools.client.async_client import AsyncMedusaClient
from tools.home.messages import MarketStatus, MoveStatus

LOOK_S: Final = 1.0
UNITS: Final = 100
"""Units of load in a core."""
SAME_S: Final = 2.0
"""Seconds within which both ends of a move report it; no task makes the same move again so soon."""


class Observer:
    """Fills a board.

    Args:
        clients: by participant; may grow while it runs.
        wall: seconds since the epoch, as in the peers' moves.
    """

    def __init__(
        self,
        clients: Mapping[str, AsyncMedusaClient],
        board: LoadBoard,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._clients = clients
        self._board = board
        self._wall = wall
        self._loads: dict[str, Load] = {}
        self._names: dict[str, str] = {}
        self._told: list[tuple[str, MoveStatus]] = []
        self._noted: list[MoveStatus] = []
        self._looked = trio.Event()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            due = trio.current_time() + LOOK_S
            async with trio.open_nursery() as nursery:
                for participant, client in tuple(self._clients.items()):
                    nursery.start_soon(self._look, participant, client)
            if self._loads:
                # in the order of the peers, not of their answers
                known = [name for name in self._clients if name in self._loads]
                self._board.sampled({name: self._loads[name] for name in known})
            for teller, move in self._told:
                self._note(teller, move)
            self._told.clear()
            self._looked.set()
            self._looked = trio.Event()
            await trio.sleep_until(due)

    async def next_look(self) -> None:
        """Returns after the next look."""
        await self._looked.wait()

    async def _look(self, participant: str, client: AsyncMedusaClient) -> None:
        # a busy peer keeps its last figures, which are only for the screen
        with contextlib.suppress(BusyError, UnavailableError, DeadlineError):
            snapshot = await client.status(federation=False)
            (status,) = snapshot.peers
            market = await client.market_status()
            self._names[status.peer] = participant
            self._loads[participant] = load_of(status, market)
            self._told += [(participant, m) for m in (market.moves if market is not None else ())]

    def _note(self, teller: str, move: MoveStatus) -> None:
        """Record each move once. The task's owner reports it repeatedly, and so does a peer that
        passed it on. The owner knows the stall, the giver the price."""
        for position, noted in enumerate(self._noted):
            if is_same(move, noted):
                known = self._board.moves[position]
                price = move.price if teller == known.origin else known.price
                stall_ms = max(move.stall_ms, known.stall_ms)
                merged = msgspec.structs.replace(known, price=price, stall_ms=stall_ms)
                self._board.moves[position] = merged
                return
        self._noted.append(move)
        self._board.moves.append(
            Moved(
                at=round(move.at - self._wall() + self._board.now, 1),
                task=move.task,
                origin=self._names.get(move.source, move.source),
                to=self._names.get(move.target, move.target),
                price=move.price,
                stall_ms=move.stall_ms,
                carry_bytes=move.carry_bytes,
            )
        )


def is_same(one: MoveStatus, other: MoveStatus) -> bool:
    """Whether two reports, of the two ends, are about the same move."""
    return (one.task, one.source, one.target) == (other.task, other.source, other.target) and (
        abs(one.at - other.at) < SAME_S
    )


def load_of(status: PeerStatus, market: MarketStatus | None) -> Load:
    """The load in units, from the market's figures if there are some, because it decides by
    them."""
    tasks = tuple(round(task.load * UNITS, 3) for task in status.tasks if not task.worker)
    if market is not None and market.capacity:
        return Load(market.load, market.capacity, tasks)
    return Load(status.load * UNITS, status.capacity * UNITS, tasks)
