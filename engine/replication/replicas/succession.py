"""Finds out which peer has a query, after a primary's restart, or when it hears of a later term.

A primary whose query was taken over steps down. If the peer that took over is gone as well, it has
the query again, in a later term.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import trio

from engine.replication.deciders import HIGHEST_NUMBER
from engine.replication.queries import QueryHost
from engine.replication.query_copy import QueryCopy
from engine.replication.replicas import secondary_state as upkeep
from engine.replication.replicas.asking import ask
from engine.replication.replicas.former_members import FormerMembers
from engine.replication.replicas.messages import KeepUp
from engine.replication.stored_query import StoredQuery
from engine.replication.term import Term
from overlay.errors import MedusaError, NotFoundError, UnavailableError
from overlay.identity import parse_peer_id
from overlay.listeners import Listeners
from overlay.names import PeerId

RECLAIM_S: Final = 3.0
"""How long a restarted primary tries to reach its secondary before it goes on alone, seconds."""

CONTESTED_S: Final = 60.0
"""How long a primary that was succeeded tries to reach its successor, or to hear that it is dead,
before it goes on with the query itself, seconds."""

AGAIN_S: Final = 0.5
"""Between two tries to reach a peer, seconds."""


class Succession:
    """The succession of queries whose primary this peer is, or was before it restarted.

    Attributes:
        stepped_down: told of a query that this peer has given up.
    """

    def __init__(self, queries: QueryHost, former_members: FormerMembers) -> None:
        shop = queries.shop
        self._overlay = shop.overlay
        self._here = shop.here
        self._directory = shop.directory
        self._followers = shop.followers
        self._queries = queries
        self._former_members = former_members
        self.stepped_down: Listeners[[QueryCopy]] = Listeners()

    def is_over(self, running: QueryCopy) -> bool:
        """Whether a later term than ours is known."""
        return self._known_number(running.stored) > running.stored.term.number

    def is_ours(self, running: QueryCopy) -> bool:
        """Whether this peer still has the query: it may be deleted while others are asked."""
        with suppress(NotFoundError):
            return self._queries.get(running.name) is running
        return False

    async def reclaim(self, stored: StoredQuery) -> None:
        """After a restart: ask its secondary, or its successor, whether the query is still ours."""
        successor = await self._successor(stored)
        answer = await self._asked(stored, successor)
        running = self._queries.get(stored.name)
        del self._queries.pending[stored.name]
        try:
            if answer is not None and answer.succeeds(stored.term):
                self._overlay.events.note(
                    "info", f"gave up {stored.name}: it has been taken over meanwhile"
                )
                await self.step_down(running)
                return
            if self.is_over(running):
                self._insist(running, successor)  # it was taken over, by a peer that is gone itself
            if running.stored.term.secondary:
                running.limit()  # it may not have heard of the last modification
            self._queries.take_over(running)
        except MedusaError as error:
            self._overlay.events.note("warning", f"could not go on with {stored.name}: {error}")

    async def give_way(self, running: QueryCopy) -> None:
        """Leave the query to the holder of the later term, unless that one is gone as well, or is
        this peer: of a time before its clock was set back (ADR 17)."""
        peer = await self._successor(running.stored)
        answer = await self._asked(running.stored, peer)
        if not self.is_over(running) or not self.is_ours(running):  # by now
            return
        if answer is not None and answer.rank == running.stored.term.rank:
            self._insist(running, peer, "the later term was its own")
        elif peer and not self._lives(peer):
            self._insist(running, peer)
        else:
            await self.step_down(running)

    async def step_down(self, running: QueryCopy) -> None:
        """Give up a query that another peer has. Streams of it that are read here are followed.

        Whatever fails on the way, nothing is served here any more at the end."""
        self._queries.leaving.add(running.name)
        try:
            await self._queries.relinquish(running.name)
            with trio.CancelScope(shield=True):
                upkeep.open_gates(running)
                upkeep.hold_no_more(running)
                for task in running.tasks:
                    await self._followers.part_with(task.state)
                    task.state.send_away()
            await running.leave_inputs()
            await self._queries.announcements.withdraw_terms(running.stored)
        finally:
            self._queries.leaving.discard(running.name)
        self.stepped_down.tell(running)
        self._overlay.events.note("info", f"gave up {running.name}: it is another peer's now")

    def _insist(
        self, running: QueryCopy, former: PeerId, why: str = "its successor is gone"
    ) -> None:
        """Take it again, in a later term. `former` had a part in an earlier one."""
        self._former_members.part_from(running, former)
        known = (self._known_number(running.stored), running.stored.term.number)
        now = self._overlay.clock()
        term = HIGHEST_NUMBER.next(running.name, known, self._here, now)
        self._queries.appoint(running, term)
        self._overlay.events.note("warning", f"took back {running.name}: {why}")

    async def _asked(self, stored: StoredQuery, peer: PeerId) -> Term | None:
        """The term that the query's next peer knows of; None: it does not answer."""
        contested = self._known_number(stored) > stored.term.number
        with trio.move_on_after(CONTESTED_S if contested else RECLAIM_S):
            while peer and self._lives(peer):
                message = KeepUp(stored.name, stored.term.number, {}, {})
                try:
                    answer = await ask(self._overlay, peer, "replica.keep_up", message)
                    return answer.written_term.of(stored.name)
                except UnavailableError:
                    await trio.sleep(AGAIN_S)
                except MedusaError:
                    return None
        return None

    async def _successor(self, stored: StoredQuery) -> PeerId:
        """The peer with the query if we have it not: as published, or else its secondary."""
        with suppress(MedusaError):
            for output in stored.entry.outputs:
                await self._directory.learn(output)
            peer = parse_peer_id((await self._directory.query(stored.name)).peer)
            return stored.term.secondary if peer == self._here else peer
        return stored.term.secondary

    def _known_number(self, stored: StoredQuery) -> int:
        return max(map(self._directory.number, stored.entry.outputs), default=0)

    def _lives(self, peer: PeerId) -> bool:
        return not self._overlay.gossip.health(peer).gone
