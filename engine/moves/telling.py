"""Telling workers what they are: once each, and again until they have heard it."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from engine.messages import Done
from engine.moves.messages import Activate, Release
from engine.moves.placed_task import PlacedTask
from engine.moves.placements import Placement
from overlay.errors import MedusaError
from overlay.identity import parse_peer_id
from overlay.node import Overlay

CALL_S: Final = 10.0
"""Patience with one call to a worker, seconds."""


class Teller:
    """Remembers who has heard what."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._told: set[tuple[str, int, bool]] = set()
        self._telling: set[str] = set()

    def untold(self, placed: PlacedTask) -> list[Placement]:
        """Of the last two placements, those whose worker does not know yet what it is."""
        return [
            placement
            for placement in placed.placements[-2:]
            if placement.worker and _news(placed.name, placement) not in self._told
        ]

    async def tell(self, placed: PlacedTask) -> None:
        """Once at a time; to be repeated while any are untold."""
        if placed.name in self._telling:
            return
        self._telling.add(placed.name)
        try:
            for placement in self.untold(placed):
                with suppress(MedusaError):
                    await self._tell_one(placed.name, placement)
                    self._told.add(_news(placed.name, placement))
        finally:
            self._telling.discard(placed.name)

    async def _tell_one(self, task: str, placement: Placement) -> None:
        connection = await self._overlay.connect(parse_peer_id(placement.worker))
        if placement.until is None:
            activate = Activate(task, placement.fence, placement.since)
            await connection.call("task.activate", activate, Done, timeout_s=CALL_S)
        else:
            release = Release(task, placement.fence, placement.until, placement.since)
            await connection.call("task.release", release, Done, timeout_s=CALL_S)


def _news(task: str, placement: Placement) -> tuple[str, int, bool]:
    """What a worker is told once: that it is, and later that it is no more."""
    return task, placement.fence, placement.until is None
