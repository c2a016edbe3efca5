from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeAlias

import trio

from medusa.engine.objects.definitions import AlteredOutput
from medusa.engine.objects.schema import BEGINNING
from medusa.engine.replication.copies.copy import Copy
from medusa.engine.replication.moves.messages import Activate, Release, Released
from medusa.engine.replication.records.placements import Placement
from medusa.engine.replication.records.stored_query import StoredQuery
from medusa.engine.streams.messages import Done
from medusa.overlay.errors import MedusaError, NotFoundError, UnavailableError
from medusa.overlay.failpoints import Failpoint, failpoint
from medusa.overlay.listeners import Listeners
from medusa.overlay.node.node import Overlay

AGAIN_S: Final = 0.1
"""Seconds between two tries to notify a worker while a caller waits for it."""


News: TypeAlias = tuple[str, int, int, tuple[tuple[str, AlteredOutput], ...] | None]
"""The news for a worker: task, the placement's term, the query's term, and the alterations of the
output; None: the worker is released. When the query gets a later term, the owner notifies the
worker again: a peer that owned the query in between may have released it."""


class Notifier:
    """Notifies workers of their placements, repeatedly until they answer. Args: stored: returns the
    query of a task; None: it is deleted.
        call_s: see `Timing.worker_call_s`.

    Attributes:
        gone: called with a task that its worker does not run any more.
    """

    def __init__(
        self, overlay: Overlay, stored: Callable[[Copy], StoredQuery | None], call_s: float
    ) -> None:
        self._overlay = overlay
        self._call_s = call_s
        self._stored = stored
        self.gone: Listeners[[Copy]] = Listeners()
        self._notified: dict[str, set[News]] = {}
        self._notifying: set[str] = set()

    def to_notify(self, placed: Copy) -> list[Placement]:
        """Return the placements, of the last two, whose worker has not answered yet."""
        told = self._notified.get(placed.name, set())
        return [
            placement
            for placement in placed.placements[-2:]
            if placement.term.holder and self._news(placed, placement) not in told
        ]

    async def notify(self, placed: Copy) -> None:
        """Notify these workers, in one call at a time. The caller repeats this while any have not
        answered."""
        if placed.name in self._notifying:
            return
        self._notifying.add(placed.name)
        try:
            for placement in self.to_notify(placed):
                with suppress(MedusaError):
                    news = self._news(placed, placement)
                    try:
                        reached = await self._notify_one(placed, placement)
                    except NotFoundError:
                        if placement is placed.current:
                            self.gone.notify(placed)
                        raise
                    placed.given = max(placed.given, reached)
                    latest = {self._news(placed, each) for each in placed.placements[-2:]}
                    told = self._notified.get(placed.name, set()) | {news}
                    self._notified[placed.name] = told & latest
        finally:
            self._notifying.discard(placed.name)

    async def until_notified(self, placed: Copy) -> None:
        """Return once each of the last two workers knows its placement, or is dead: then
        `Copy.given` has the boundary up to which the former one emitted. Raises: UnavailableError:
        a worker lives and has not answered yet.
        """
        with trio.move_on_after(self._call_s):
            await self.notify(placed)
            while self._awaited(placed):
                await trio.sleep(AGAIN_S)
                await self.notify(placed)
        left = self._awaited(placed)
        if not left:
            return
        worker = left[0].term.holder.hex()[:8]
        raise UnavailableError(
            f"{placed.name}: peer {worker} has not heard yet that it does not compute it any more; "
            "try again"
        )

    def _awaited(self, placed: Copy) -> list[Placement]:
        """The placements whose worker lives and has not answered."""
        gossip, peers = self._overlay.gossip, self._overlay.peers
        named = [(each, each.term.holder) for each in self.to_notify(placed)]
        return [each for each, peer in named if peers.get(peer) and not gossip.health(peer).gone]

    def _news(self, placed: Copy, placement: Placement) -> News:
        stored, works = self._stored(placed), placement.until is None
        altered = tuple(sorted(_altered(stored).items())) if works else None
        query_term = stored.term.number if stored is not None and works else 0
        return placed.name, placement.term.number, query_term, altered

    @failpoint(Failpoint.MOVE_NOTIFY_PRODUCER)
    async def _notify_one(self, placed: Copy, placement: Placement) -> int:
        """Notify one worker; returns the boundary of a released one."""
        connection = await self._overlay.connect(placement.term.holder)
        if placement.until is None:
            activate = Activate(
                placed.name,
                placement.term.number,
                placement.term.since,
                _altered(self._stored(placed)),
            )
            await connection.call("task.activate", activate, Done, timeout_s=self._call_s)
            return BEGINNING
        release = Release(placed.name, placement.term.number, placement.until, placement.term.since)
        answer = await connection.call("task.release", release, Released, timeout_s=self._call_s)
        return answer.reached


def _altered(stored: StoredQuery | None) -> dict[str, AlteredOutput]:
    return {} if stored is None else stored.entry.altered
