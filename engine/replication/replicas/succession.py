"""A primary asks all peers that have, or had, a part in its query.

After a restart, or when it learns of a later term, it finds out which peer has the query. A primary
whose query was taken over steps down. If the peer that took over is gone as well, it takes the
query again, in a later term.

Former members are peers that may not know that they have no part in it any more. While the query
stays as it is they do no harm: on the other side of a split such a peer computes the same (ADR 8).
Before the query is modified, each former member must have released it (ADR 13).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import msgspec
import trio

from medusa.engine.objects.schema import BEGINNING
from medusa.engine.replication.copies.query_copy import QueryCopy
from medusa.engine.replication.queries.host import QueryHost
from medusa.engine.replication.queries.lifecycle import Lifecycle
from medusa.engine.replication.records.stored_query import StoredQuery
from medusa.engine.replication.records.term import HIGHEST_NUMBER, Term
from medusa.engine.replication.replicas import secondary_state as upkeep
from medusa.engine.replication.replicas.messages import Dismiss, Dismissed, KeepUp, KeptUp
from medusa.overlay.errors import MedusaError, NotFoundError, UnavailableError
from medusa.overlay.identity import parse_peer_id
from medusa.overlay.listeners import Listeners
from medusa.overlay.names import PeerId
from medusa.overlay.node.node import Overlay

CALL_S: Final = 2.0
"""The longest wait for a standby, seconds: the failure detector says whether it is replaced."""

RECLAIM_S: Final = 3.0
"""How long a restarted primary tries to reach its secondary before it continues alone, seconds."""

CONTESTED_S: Final = 60.0
"""How long a primary that was succeeded tries to reach its successor, or to learn that it is dead,
before it continues the query itself, seconds."""

AGAIN_S: Final = 0.5
"""Between two tries to reach a peer, seconds."""


async def ask(
    overlay: Overlay, peer: PeerId, method: str, message: msgspec.Struct, timeout_s: float = CALL_S
) -> KeptUp:
    """Ask a peer that stands by, or has taken over, for its state.

    Raises:
        MedusaError: the peer cannot be reached, neither stands by nor has taken over, or answers
            nonsense.
    """
    connection = await overlay.connect(peer)
    answer = await connection.call(method, message, KeptUp, timeout_s=timeout_s)
    HIGHEST_NUMBER.check(method, answer.written_term.term_number, overlay.clock())
    return answer


async def dismiss(overlay: Overlay, peer: PeerId, query: str, term_number: int) -> Dismissed:
    """Have a peer stop standing by.

    Raises: MedusaError: the peer cannot be reached, or has the query itself.
    """
    with trio.move_on_after(CALL_S):
        connection = await overlay.connect(peer)
        message = Dismiss(query, term_number)
        return await connection.call("replica.dismiss", message, Dismissed, timeout_s=CALL_S)
    raise UnavailableError("it does not answer")


class Succession:
    """The succession of queries whose primary this peer is, or was before it restarted.

    Attributes:
        stepped_down: called with a query that this peer has given up.
    """

    def __init__(self, queries: QueryHost, lifecycle: Lifecycle) -> None:
        shop = queries.shop
        self._overlay = shop.overlay
        self._here = shop.here
        self._directory = shop.directory
        self._followers = shop.followers
        self._queries = queries
        self._lifecycle = lifecycle
        self._parted_s = shop.config.timing.parted_s
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
        """After a restart: ask the query's secondary, or its successor, whether the query is still
        ours."""
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
                self._insist(running, successor)  # the peer that took it over is gone, too
            if running.stored.term.secondary:
                running.limit()  # the secondary may not have the last modification
            self._queries.take_over(running)
        except MedusaError as error:
            self._overlay.events.note("warning", f"could not go on with {stored.name}: {error}")

    async def give_way(self, running: QueryCopy) -> None:
        """Leave the query to the holder of the later term. It stays here if that holder is gone, or
        if this peer made the later term itself, before its clock was set back (ADR 17)."""
        peer = await self._successor(running.stored)
        answer = await self._asked(running.stored, peer)
        # the situation may have changed by now
        if not self.is_over(running) or not self.is_ours(running):
            return
        if answer is not None and answer.rank == running.stored.term.rank:
            self._insist(running, peer, "the later term was its own")
        elif peer and not self.lives(peer):
            self._insist(running, peer)
        else:
            await self.step_down(running)

    async def step_down(self, running: QueryCopy) -> None:
        """Give up a query that another peer has. If its streams are read here, this peer follows
        them. Whatever fails on the way, in the end this peer serves none of them."""
        self._queries.leaving.add(running.name)
        try:
            await self._lifecycle.relinquish(running.name)
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
        self.stepped_down.notify(running)
        self._overlay.events.note("info", f"gave up {running.name}: it is another peer's now")

    def _insist(
        self, running: QueryCopy, former: PeerId, why: str = "its successor is gone"
    ) -> None:
        """Take the query again, in a later term. former: a peer that was a member of an earlier
        term."""
        self.part_from(running, former)
        known = (self._known_number(running.stored), running.stored.term.number)
        now = self._overlay.clock()
        term = HIGHEST_NUMBER.next(running.name, known, self._here, now)
        self._queries.appoint(running, term)
        self._overlay.events.note("warning", f"took back {running.name}: {why}")

    async def _asked(self, stored: StoredQuery, peer: PeerId) -> Term | None:
        """The term that this other peer of the query knows; None: it does not answer."""
        contested = self._known_number(stored) > stored.term.number
        with trio.move_on_after(CONTESTED_S if contested else RECLAIM_S):
            while peer and self.lives(peer):
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
        """The peer that has the query if this peer does not: the one in the catalog, or else the
        secondary."""
        with suppress(MedusaError):
            for output in stored.entry.outputs:
                await self._directory.learn(output)
            peer = parse_peer_id((await self._directory.query(stored.name)).peer)
            return stored.term.secondary if peer == self._here else peer
        return stored.term.secondary

    def _known_number(self, stored: StoredQuery) -> int:
        return max(map(self._directory.number, stored.entry.outputs), default=0)

    def lives(self, peer: PeerId) -> bool:
        return not self._overlay.gossip.health(peer).gone

    # -- former members -------------------------------------------------------------------------

    def part_from(self, running: QueryCopy, peer: PeerId) -> None:
        """Store that a peer may believe to be the secondary, now or later."""
        parted = running.stored.parted_from(peer)
        if parted != running.stored.parted:
            self._queries.write(running, parted=parted)

    async def settle(self, running: QueryCopy, *, alone: bool) -> dict[str, int]:
        """Tell all former members to stop the query, and wait for their answers. The caller then
        stores that they did. The secondary is no former member. Args: alone: whether the user says
        that members that cannot be reached are gone for ever. Returns: for each stream, the
        boundary up to which they have emitted it, microseconds. Raises: UnavailableError: one
        cannot be reached, or may still emit results.
        """
        given: dict[str, int] = {}
        left: list[PeerId] = []
        for peer in map(parse_peer_id, running.stored.parted):
            try:
                theirs = await self._dismiss(running, peer)
            except MedusaError:
                left.append(peer)
                continue
            for stream, boundary in theirs.items():
                given[stream] = max(given.get(stream, BEGINNING), boundary)
        if left and not alone:
            raise UnavailableError(
                f"{running.name}: {_listed(left)} had a part in it and cannot be reached; on the "
                "other side of a split it may go on with the query as it is. Try again when it "
                "is back; or, if it is gone for good, with --alone"
            )
        if left and (wait_s := running.wait_s(self._parted_s)) > 0:
            raise UnavailableError(
                f"{running.name}: a peer that stood by for it may still give out results; "
                f"try again in {wait_s + 1:.0f} s"
            )
        return given

    async def _dismiss(self, running: QueryCopy, peer: PeerId) -> dict[str, int]:
        """Raises: MedusaError: the peer cannot be reached, or has the query itself."""
        if self._overlay.gossip.health(peer).gone:
            raise UnavailableError("it is gone")
        return (await dismiss(self._overlay, peer, running.name, running.stored.term.number)).given


def _listed(peers: list[PeerId]) -> str:
    return ", ".join(peer.hex()[:8] for peer in peers[:4])
