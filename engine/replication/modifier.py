"""Modifies the queries that this peer keeps, and alters their outputs, while they run.

The steps of a modification, each with the effect of a crash after it:

1. The peer takes the changing tasks back, and stops them for a moment. So it knows the boundary of
   their results. The boundary T, from which on the new edition counts, is not behind that.
2. The query's file gets the new edition. A restart continues with it. While there is a secondary
   that may not know of it, no task passes T: after a restart the primary sends it again before its
   tasks continue.
3. The secondary stores it, or answers that it is past T itself: then T becomes later, or, if the
   client insists on T, the modification is withdrawn. No peer has passed T by then.
4. The tasks continue, the catalog names the new edition, the client receives T.

A former edition is dropped once no peer can come to compute it any more.

An output is altered as a source stream is (`medusa.engine.replication.sources`), but the query's
entry takes the place of the journal: its file and the secondary get it, then the workers, and each
later primary.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import msgspec
import trio

from medusa.engine.functions.allowed import Functions
from medusa.engine.language.modification import Modified, ModifyQuery, in_words, modified_query
from medusa.engine.objects.alteration import Alteration, altered
from medusa.engine.objects.availability import Mode
from medusa.engine.objects.definitions import AlteredOutput
from medusa.engine.objects.moments import boundary_in_words
from medusa.engine.objects.query import Query
from medusa.engine.objects.schema import BEGINNING
from medusa.engine.replication.copies.query_copy import QueryCopy
from medusa.engine.replication.moves.mover import Mover
from medusa.engine.replication.queries.host import QueryHost
from medusa.engine.replication.records.query_history import modified, postponed, settled, withdrawn
from medusa.engine.replication.records.stored_query import StoredQuery
from medusa.engine.replication.replicas import secondary_state as upkeep
from medusa.engine.replication.replicas.primaries import Primaries
from medusa.engine.streams.log.retention import dated
from medusa.engine.tasks.network import Network
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.query_editions import (
    Footing,
    changed,
    earliest,
    made_since,
    succeeded,
    trimmed,
)
from medusa.overlay.concurrency import next_beat
from medusa.overlay.errors import (
    ConflictError,
    InvalidInputError,
    MedusaError,
    NotFoundError,
    UnavailableError,
)
from medusa.overlay.failpoints import Failpoint, failpoint

MOVE_S: Final = 10.0
"""The longest wait for a move of a task that is to be modified, seconds."""

TRIES: Final = 8
"""How often the boundary T of a modification is put off for a secondary that has passed it. The
secondary stands still meanwhile, so one is enough unless messages overtake each other."""


@dataclass(frozen=True)
class _Plan:
    """A modification before it is decided.

    Attributes:
        query: the new query. before, tasks: the present tasks, and the new ones. names: the names
            of the tasks whose steps change.
        wish: the client's request.
        elsewhere: for each task, the boundary up to which peers that had the query earlier have
            emitted its output, microseconds.
    """

    query: Query
    before: tuple[Task, ...]
    tasks: tuple[Task, ...]
    names: frozenset[str]
    wish: ModifyQuery
    elsewhere: Mapping[str, int] = field(default_factory=dict)

    def refusal(self, error: MedusaError) -> MedusaError:
        """The same error with the requested changes before its text. Changes by an edited script
        are left out, because its author knows no parameters."""
        if all(change.whole for change in self.wish.changes):
            return error
        return type(error)(f"{in_words(self.wish.changes)}: {error}")

    def from_boundary(self, at: int) -> tuple[Task, ...]:
        """The tasks, with the new edition after that boundary."""
        return succeeded(self.before, self.tasks, at)


class Modifier:
    """Modifies the queries of one peer."""

    def __init__(self, queries: QueryHost, mover: Mover, primaries: Primaries) -> None:
        overlay = queries.shop.overlay
        self._queries = queries
        self._mover = mover
        self._primaries = primaries
        self._events = overlay.events
        self._participant = overlay.identity.participant
        self._threads = overlay.threads
        self._timing = queries.shop.config.timing
        primaries.refused.add(self.withdraw)

    async def modify(self, wish: ModifyQuery) -> Modified:
        """Let a query continue with other parameters; a repetition changes nothing.

        Raises:
            NotFoundError: this peer does not keep the query. InvalidInputError: the query has no
                such box or parameter, or a value is invalid; or the change cannot take effect at
                the requested boundary, or at any. ConflictError: the query has these parameters
                already, from another boundary on; or an output has ended.
            BusyError: it was modified too often for a peer that lags behind. UnavailableError: a
                peer that must know of the change cannot be reached. If the message says that it is
                stored, it takes effect as soon as that peer has received it.
        """
        running = self._kept(wish.query)
        async with running.modifying:
            plan = await self._plan(running, wish)
            if plan is None:
                return self._as_it_is(running, wish)
            async with self._undisturbed(running, plan) as elsewhere:
                plan = replace(plan, elsewhere=elsewhere)
                since = await self._decide(running, plan)
                if running.limited:
                    since = await self._confirm(running, plan)
            # so that the first epoch after T finds its code compiled
            self._queries.shop.warm(plan.tasks)
        with suppress(MedusaError):  # otherwise it is published soon
            await running.publish(self._queries.announcements)
        text = f"modified {running.name}: {in_words(wish.changes)}"
        self._events.note("info", f"{text}; counts after {boundary_in_words(since)}")
        return Modified(running.name, since)

    async def alter(self, query: str, stream: str, alteration: Alteration) -> None:
        """Alter a stream that a query of this peer produces; a repetition changes nothing.

        Raises:
            NotFoundError: this peer does not keep the query, or it produces no such stream.
            InvalidInputError: the definition would be invalid.
            UnavailableError: its secondary has not learnt of it yet.
        """
        running = self._kept(query)
        task = next((each for each in running.tasks if each.name == stream), None)
        if task is None:
            raise NotFoundError(f"{query} produces no stream {stream}")
        async with running.modifying:
            before, entry = task.state.entry.stream, running.stored.entry
            definition = altered(before, alteration)
            if definition != before:
                # above any edition that another peer may have published while it had the query
                edition = max(definition.edition, running.stored.term.number)
                known = msgspec.structs.replace(
                    entry.altered.get(stream, AlteredOutput()),
                    edition=edition,
                    **alteration.changes,
                )
                entry = msgspec.structs.replace(entry, altered={**entry.altered, stream: known})
                self._queries.write(running, entry=entry)
            await self._notify_secondary(running)
            made = running.entries(running.stored, running.plan)
            await self._queries.announcements.announce_altered(made)
            await running.define_outputs(running.stored, running.plan)
            self._queries.publish_soon(running)  # publish the remaining entries
        self._events.note("info", f"altered {stream}: {alteration.in_words()}")

    async def _notify_secondary(self, running: QueryCopy) -> None:
        if not running.stored.term.secondary:
            return
        async with self._primaries.secondary_state(running.name).talking:
            try:
                await self._primaries.notify(running)
            except MedusaError as error:
                raise UnavailableError(
                    f"{running.name}: it is written down, but its secondary has not heard of it "
                    f"yet: ask again: {error}"
                ) from error

    def _kept(self, query: str) -> QueryCopy:
        running = self._queries.get(query)
        if query in self._queries.pending:
            raise UnavailableError(f"{query}: its secondary is asked about it; try again")
        return running

    async def _plan(self, running: QueryCopy, wish: ModifyQuery) -> _Plan | None:
        """Plan the modification; None: the query has these parameters already."""
        reading = partial(_read, running.stored, wish, self._queries.shop.functions)
        query, tasks = await self._threads.run(self._participant, reading)
        before = running.plan
        if any(task.of is not None for task in before):
            raise InvalidInputError(
                f"{running.name} reads streams that are revised, and what it has made may have to "
                "be made again by other parameters: create another query beside it instead"
            )
        plan = _Plan(query, before, tasks, changed(before, tasks), wish)
        try:
            plan.from_boundary(BEGINNING)
        except InvalidInputError as error:
            raise plan.refusal(error) from None
        return plan if plan.names else None

    def _as_it_is(self, running: QueryCopy, wish: ModifyQuery) -> Modified:
        if running.limited:
            raise _not_confirmed(running)
        since = running.stored.entry.since
        if wish.at not in {None, since}:
            raise ConflictError(f"{running.name} says so already: from {since} on, not {wish.at}")
        return Modified(running.name, since)

    @asynccontextmanager
    async def _undisturbed(
        self, running: QueryCopy, plan: _Plan
    ) -> AsyncIterator[Mapping[str, int]]:
        """Hold the tasks that change at this peer within the block, and let no other call use the
        secondary, which can be reached if there is one. Yields the boundaries up to which other
        peers have emitted the tasks' results."""
        elsewhere: Mapping[str, int] = {}
        placed = [task for task in running.tasks if task.name in plan.names]
        async with AsyncExitStack() as stack:
            for task in placed:
                if task.current.term.holder:
                    await self._mover.take_back(task.name)
            with trio.move_on_after(MOVE_S) as waiting:
                for task in placed:
                    await stack.enter_async_context(task.moving)
            if waiting.cancelled_caught or any(task.current.term.holder for task in placed):
                raise UnavailableError(f"{running.name}: a task of it is being moved; try again")
            for task in placed:
                await self._mover.notifier.until_notified(task)
            if running.stored.availability.mode is not Mode.NONE:
                await stack.enter_async_context(
                    self._primaries.secondary_state(running.name).talking
                )
                elsewhere = await self._primaries.reach(running, alone=plan.wish.alone)
            yield elsewhere

    @failpoint(Failpoint.MODIFICATION_DECIDE)
    async def _decide(self, running: QueryCopy, plan: _Plan) -> int:
        """Store the modification; returns the boundary at which it takes effect."""
        async with running.paused(plan.names):
            least = BEGINNING if plan.wish.at is None else plan.wish.at
            known = running.stored.entry.since
            if known > BEGINNING:
                least = max(least, known + 1)  # each call raises the boundary further
            at = self._earliest(running, plan, least)
            stored = modified(running.stored, plan.query, at)
            self._write(running, stored, plan.from_boundary(at), parted=())
            if running.stored.term.secondary:
                running.limit()
            else:
                self._queries.publish_soon(running)
            return at

    async def _confirm(self, running: QueryCopy, plan: _Plan) -> int:
        """Have the secondary store it as well; returns the boundary at which it takes effect.
        Meanwhile no task that changes passes that boundary."""
        for _ in range(TRIES):
            try:
                later = await self._primaries.notify(running)
            except MedusaError as error:
                raise _not_confirmed(running) from error
            if later == BEGINNING:
                return running.stored.entry.since
            try:
                at = self._earliest(running, plan, later)
            except MedusaError:
                self.withdraw(running)
                raise
            self._write(running, postponed(running.stored, at), plan.from_boundary(at))
            running.limit()
        self.withdraw(running)
        raise UnavailableError(f"{running.name}: its secondary is always ahead; try again")

    def _earliest(self, running: QueryCopy, plan: _Plan, least: int) -> int:
        """The earliest boundary at which the new edition can take effect. Raises:
        InvalidInputError: there is none, or the requested one is earlier.
        """
        try:
            at = earliest(plan.tasks, plan.names, self._footing(running, plan), least)
        except (InvalidInputError, ConflictError) as error:
            raise plan.refusal(error) from None
        asked = plan.wish.at
        if asked is not None and at != asked:
            raise plan.refusal(
                InvalidInputError(
                    f"it can count from {at}{dated(at)} on, not from {asked}{dated(asked)}: ask "
                    f"for {at}"
                )
            )
        return at

    def _footing(self, running: QueryCopy, plan: _Plan) -> Footing:
        starts = {name: upkeep.log_of(running, name).start for name in upkeep.streams_of(running)}
        given = {
            task.name: max(task.boundary, task.given, plan.elsewhere.get(task.name, BEGINNING))
            for task in running.tasks
        }
        since = made_since(running.plan, running.stored.since)
        state = upkeep.released(running, self._primaries.secondary_state(running.name))
        return Footing(given, starts).joined(since).joined(state)

    def _write(
        self, running: QueryCopy, stored: StoredQuery, tasks: tuple[Task, ...], **more: object
    ) -> None:
        self._queries.write(
            running,
            entry=stored.entry,
            editions=stored.editions,
            since=stored.since,
            **more,
        )
        running.modify(tasks)

    def withdraw(self, running: QueryCopy) -> None:
        """Withdraw the last modification, which no secondary has stored."""
        if not running.limited:
            return
        since = running.stored.entry.since
        stored = withdrawn(running.stored)
        self._write(running, stored, stored.network.tasks())
        running.go_on()
        at = boundary_in_words(since)
        text = f"does not make the modification of {running.name} that counts after {at}"
        self._events.note("warning", f"{text}: its secondary is past it")

    # -- over time ------------------------------------------------------------------------------

    async def maintain(self) -> None:
        """Drop the editions that no peer computes any more, for ever."""
        while True:
            await trio.sleep_until(next_beat(self._timing.modified_s))
            for running in self._queries.all():
                busy = running.limited or running.modifying.locked()
                if running.stored.editions and not busy:
                    with suppress(MedusaError):  # the disk is full: try at the next round
                        self._settle(running)

    def _settle(self, running: QueryCopy) -> None:
        if running.name in self._queries.pending:
            return
        tasks = running.plan
        stored = settled(running.stored, tasks, self._computed(running))
        gone = running.stored.editions[: len(running.stored.editions) - len(stored.editions)]
        if gone:
            self._write(running, stored, trimmed(tasks, gone[-1].upto))

    def _computed(self, running: QueryCopy) -> Mapping[str, int]:
        return upkeep.computed(running, self._primaries.secondary_state(running.name))


def _read(
    stored: StoredQuery, wish: ModifyQuery, functions: Functions
) -> tuple[Query, tuple[Task, ...]]:
    """The requested query, and its tasks. Raises: InvalidInputError: it is invalid."""
    query = functions.modified(modified_query(stored.entry.query, wish.changes))
    return query, Network(query, stored.inputs, stored.kept).tasks()


def _not_confirmed(running: QueryCopy) -> UnavailableError:
    return UnavailableError(
        f"{running.name}: the modification is written down, and counts once its secondary has "
        "heard of it; ask again"
    )
