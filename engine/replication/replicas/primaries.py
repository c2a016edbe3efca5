"""The primary's side: a secondary for every query that asks for one, kept up to date.

This module also does the rest of the mode's work, with `SecondaryState`. Producers of inputs may
drop only tuples that the secondary cannot need any more. Consumers receive only tuples that the
secondary has, if recovery is to be precise and the secondary's state comes from us.
`medusa.engine.replication.replicas.succession` finds out whether this peer still has the query.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import msgspec
import trio

from medusa.engine.objects.availability import Mode
from medusa.engine.objects.schema import BEGINNING
from medusa.engine.replication.copies.query_copy import QueryCopy
from medusa.engine.replication.queries.digests import Digests
from medusa.engine.replication.queries.host import QueryHost
from medusa.engine.replication.queries.lifecycle import Lifecycle
from medusa.engine.replication.records.stored_query import StoredQuery
from medusa.engine.replication.records.term import Term
from medusa.engine.replication.replicas import secondary_state as upkeep
from medusa.engine.replication.replicas.messages import KeepUp, KeptUp, StandBy
from medusa.engine.replication.replicas.secondary_state import SecondaryState
from medusa.engine.replication.replicas.succession import Succession, ask, dismiss
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.overlay.concurrency import next_beat
from medusa.overlay.errors import ConflictError, MedusaError, NotFoundError, UnavailableError
from medusa.overlay.failpoints import Failpoint, failpoint
from medusa.overlay.gossip.events import Health
from medusa.overlay.listeners import Listeners
from medusa.overlay.names import PeerId

RECRUIT_S: Final = 10.0
"""The longest wait for a peer that is asked to stand by, seconds: it opens logs."""


class Primaries:
    """Keeps a secondary for every query that asks for one.

    Attributes:
        refused: called with a query whose secondary cannot take its last modification.
    """

    def __init__(self, queries: QueryHost, digests: Digests, lifecycle: Lifecycle) -> None:
        shop = queries.shop
        self._overlay = shop.overlay
        self._store = shop.store
        self._directory = shop.directory
        self._followers = shop.followers
        self._queries = queries
        self._digests = digests
        self._nursery = shop.nursery
        self._timing = shop.config.timing
        self._secondary_states: dict[str, SecondaryState] = {}
        self._succession = Succession(queries, lifecycle)
        self._succession.stepped_down.add(self._forget)
        self.refused: Listeners[[QueryCopy]] = Listeners()
        lifecycle.deleted.add(self._deleted)

    def secondary_state(self, query: str) -> SecondaryState:
        return self._secondary_states.setdefault(query, SecondaryState())

    # -- asked by a secondary -------------------------------------------------------------------

    def incumbent(self, secondary: PeerId, query: str, term_number: int) -> None:
        """Refuse a caller that is not the secondary. Raises: NotFoundError, ConflictError."""
        if query in self._queries.pending:
            return
        running = self._queries.get(query)
        term, told = running.stored.term, self.secondary_state(query).sent
        asked = told is not None and told.term.secondary == secondary  # the term is not stored yet
        if (term.secondary != secondary and not asked) or term.number != term_number:
            raise ConflictError(f"{query[:256]} has another secondary")

    def replicated(self, secondary: PeerId, query: str, stream: str) -> StreamLog:
        """A stream of the query, for its secondary to copy.

        Raises:
            NotFoundError: the query has no such stream, or the caller is not its secondary.
        """
        running = self._queries.get(query)
        told = self.secondary_state(query).sent
        if told is None or told.term.secondary != secondary:
            raise NotFoundError(f"{query}: you are not its secondary")
        return upkeep.log_of(running, stream)

    def copied(self, secondary: PeerId, query: str, stream: str, boundary: int) -> None:
        """Note that the secondary has a stream up to that boundary, and keeps it."""
        # the peer may also have been the secondary before the call began
        with suppress(NotFoundError):
            self.replicated(secondary, query, stream)
            running, secondary_state = self._queries.get(query), self.secondary_state(query)
            upkeep.has_copied(running, secondary_state, stream, boundary)
            self._release(running, secondary_state)

    def _release(self, running: QueryCopy, secondary_state: SecondaryState) -> None:
        if upkeep.release(running, secondary_state, trio.current_time()):
            bound_s = running.stored.availability.bound_s
            text = f"waits no longer for the secondary of {running.name}, until it has caught up"
            self._overlay.events.note("warning", f"{text}: it is {bound_s:g} s behind")

    # -- for changes of a query; the caller holds `SecondaryState.talking` --

    async def reach(self, running: QueryCopy, *, alone: bool) -> dict[str, int]:
        """The boundaries up to which former members have emitted its streams; see
        `Succession.settle`. Raises: UnavailableError: another peer may have the query, or its
        secondary cannot be reached.
        """
        term = running.stored.term
        if self._succession.is_over(running):
            raise UnavailableError(f"{running.name} is changing hands; try again")
        if term.secondary and not self._succession.lives(term.secondary):
            raise UnavailableError(f"{running.name}: its secondary is being replaced; try again")
        given = await self._succession.settle(running, alone=alone)
        if term.secondary:
            await self._keep_up(running, self.secondary_state(running.name))
        return given

    @failpoint(Failpoint.PRIMARY_NOTIFY)
    async def notify(self, running: QueryCopy) -> int:
        """Send the present query to its secondary; see `KeptUp.earliest`. Raises: MedusaError: it
        is not known whether the secondary has the query.
        """
        secondary_state = self.secondary_state(running.name)
        if not await self._stand_by(running, secondary_state, running.stored.term):
            raise UnavailableError(f"{running.name} is another peer's by now")
        return secondary_state.earliest

    # -- over time ----------------------------------------------------------------------------

    async def maintain(self) -> None:
        """Look after the secondaries, for ever."""
        for stored in self._queries.pending.values():
            with suppress(NotFoundError):  # another peer has the query, and this peer stands by
                upkeep.hold_all(self._queries.get(stored.name))
                self._nursery.start_soon(self._succession.reclaim, stored)
        with self._overlay.gossip.changed.listening(self._detected):
            while True:
                running = self._queries.replicated()
                for name in self._secondary_states.keys() - {each.name for each in running}:
                    del self._secondary_states[name]
                for each in running:
                    if (
                        secondary_state := self.secondary_state(each.name)
                    ).caught_up:  # however long the calls to it take
                        self._release(each, secondary_state)
                    self._nursery.start_soon(self._look_after, each)
                keep_up_s = self._timing.keep_up_s
                due = trio.current_time() + keep_up_s if running else next_beat(keep_up_s)
                await trio.sleep_until(due)

    def _detected(self, peer: PeerId, health: Health) -> None:
        if health.gone:
            for running in self._queries.replicated():
                if running.stored.term.secondary == peer:
                    self._nursery.start_soon(self._look_after, running)

    async def _look_after(self, running: QueryCopy) -> None:
        secondary_state = self.secondary_state(running.name)
        if secondary_state.talking.locked():
            return
        async with secondary_state.talking:
            try:
                await self._attend(running, secondary_state)
            except MedusaError as error:
                self._overlay.events.note(
                    "warning", f"misses the secondary of {running.name}: {error}"
                )

    async def _attend(self, running: QueryCopy, secondary_state: SecondaryState) -> None:
        term = running.stored.term
        if self._succession.is_over(running):
            await self._succession.give_way(running)
        elif term.secondary and self._succession.lives(term.secondary):
            await self._keep_up(running, secondary_state)
        elif trio.current_time() > running.taken_over_at + self._timing.settle_s:
            await self._recruit(running, secondary_state)
        if self._succession.is_ours(running):
            upkeep.release_upstream(running, secondary_state, self._followers)
            self._release(running, secondary_state)

    async def _recruit(self, running: QueryCopy, secondary_state: SecondaryState) -> None:
        """Find a secondary. Until there is one, consumers do not wait for it."""
        secondary_state.reset()
        if running.stored.term.secondary:
            running.parted_at = trio.current_time()
            self._succession.part_from(running, running.stored.term.secondary)
        upkeep.open_gates(running)
        upkeep.hold_no_more(running)
        asked = running.stored.availability.secondary
        siblings = self._overlay.living_siblings()
        for candidate in preferred(running.name, siblings, asked, self._digests.is_busy):
            secondary_state.reset()
            term = msgspec.structs.replace(running.stored.term, members=(candidate,))
            # hold the tuples until the peer is known to be the secondary
            self._succession.part_from(running, candidate)
            try:
                agreed = await self._stand_by(running, secondary_state, term)
            except MedusaError:  # whatever the reason is, the next candidate is asked
                running.parted_at = trio.current_time()
                if not self._succession.is_ours(running):
                    return
                continue
            if not self._succession.is_ours(running):
                await self._dismiss(term)
            elif agreed:
                self._queries.appoint(running, term)
                self._overlay.events.note(
                    "info", f"took {candidate.hex()[:8]} as the secondary of {running.name}"
                )
            return
        secondary_state.reset()
        upkeep.hold_no_more(running)
        self._lift_limits(running)
        if running.stored.term.secondary:
            alone = msgspec.structs.replace(running.stored.term, members=())
            self._queries.appoint(running, alone)

    def _lift_limits(self, running: QueryCopy) -> None:
        """Remove the limits of a modification, once all peers that emit results know it."""
        if running.limited and running.wait_s(self._timing.parted_s) <= 0:
            running.go_on()
            self._queries.publish_soon(running)  # publish what had to wait

    async def _stand_by(
        self, running: QueryCopy, secondary_state: SecondaryState, term: Term
    ) -> bool:
        """Ask a peer to stand by. Returns False if another peer has succeeded this one."""
        stored = msgspec.structs.replace(
            running.stored.under(term),
            positions=upkeep.positions(running, modest=secondary_state.modest),
        )
        secondary_state.sent, secondary_state.positions = stored, stored.positions
        upkeep.hold_for(running, secondary_state, stored.positions)
        message = StandBy(stored)
        answer = await ask(self._overlay, term.secondary, "replica.stand_by", message, RECRUIT_S)
        if answer.earliest > BEGINNING and not running.limited:
            # the secondary's results are already past the boundary of the modification
            await self._dismiss(term)
            answer = await ask(
                self._overlay, term.secondary, "replica.stand_by", message, RECRUIT_S
            )
        return await self._act_on(running, secondary_state, answer)

    async def _keep_up(self, running: QueryCopy, secondary_state: SecondaryState) -> None:
        term = running.stored.term
        if secondary_state.sent is None or not _unchanged(secondary_state.sent, running.stored):
            try:
                await self._stand_by(running, secondary_state, term)
                if secondary_state.earliest > BEGINNING:
                    self.refused.notify(running)
            except UnavailableError:
                secondary_state.sent = None
                raise
            # the secondary refuses, or cannot stand by: consumers do not wait for it
            except MedusaError as error:
                self._overlay.events.note(
                    "warning", f"misses the secondary of {running.name}: {error}"
                )
                if self._succession.is_ours(running):
                    await self._recruit(running, secondary_state)
            return
        boundaries = {task.name: task.boundary for task in running.tasks}
        known = [lease for task in running.tasks for lease in self._store.leases(task.name)]
        leases = secondary_state.unsent(known)
        message = KeepUp(running.name, term.number, upkeep.positions(running), boundaries, leases)
        try:
            answer = await ask(self._overlay, term.secondary, "replica.keep_up", message)
        except NotFoundError:  # the peer has not agreed yet, or has lost the query
            secondary_state.sent = None
            secondary_state.lost()
        else:
            secondary_state.note_received(leases)
            await self._act_on(running, secondary_state, answer)

    async def _act_on(
        self, running: QueryCopy, secondary_state: SecondaryState, answer: KeptUp
    ) -> bool:
        if not self._succession.is_ours(running):
            return True
        known = answer.written_term.of(running.name)
        if known.succeeds(running.stored.term):
            for task in running.tasks:
                self._directory.believe(Term(task.name, known.number))
            await self._succession.step_down(running)
            return False
        secondary_state.earliest = answer.earliest
        if secondary_state.earliest > BEGINNING:
            secondary_state.sent = None
        elif secondary_state.sent and _unchanged(secondary_state.sent, running.stored):
            self._lift_limits(running)
        secondary_state.boundaries = answer.boundaries
        secondary_state.positions = answer.positions or secondary_state.positions
        if running.stored.availability.mode is Mode.PASSIVE_STANDBY:
            for stream in answer.boundaries.keys() & set(upkeep.streams_of(running)):
                if (boundary := answer.boundaries[stream]) > BEGINNING:
                    upkeep.has_copied(running, secondary_state, stream, boundary)
        return True

    def _deleted(self, running: QueryCopy) -> None:
        """Dismiss the secondary of a deleted query; if it cannot be reached now, it is dismissed
        when it asks."""
        upkeep.hold_no_more(running)
        self._forget(running)
        if running.stored.term.secondary:
            self._nursery.start_soon(self._dismiss, running.stored.term)

    def _forget(self, running: QueryCopy) -> None:
        self._secondary_states.pop(running.name, None)

    async def _dismiss(self, term: Term) -> None:
        with suppress(MedusaError):
            await dismiss(self._overlay, term.secondary, term.subject, term.number)


def _unchanged(told: StoredQuery, stored: StoredQuery) -> bool:
    same = msgspec.structs.replace(
        told,
        written_placements=stored.written_placements,
        positions=stored.positions,
        variant=stored.variant,
        parted=stored.parted,
    )
    return same == stored


def preferred(
    query: str, candidates: Iterable[PeerId], asked: str, is_busy: Callable[[PeerId], bool]
) -> list[PeerId]:
    """All candidates, the best first: the requested one, then peers with room for load. Their order
    differs from query to query, so that secondaries spread over the peers, and hardly changes when
    peers come and go (rendezvous hashing: Thaler and Ravishankar, 1998).

    Args:
        candidates: peer ids. asked: a peer id (hex), or "".
    """

    def rank(peer: PeerId) -> tuple[bool, bool, bytes]:
        return peer.hex() != asked, is_busy(peer), hashlib.sha256(query.encode() + peer).digest()

    return sorted(candidates, key=rank)
