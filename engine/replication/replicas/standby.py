"""A query of which this peer is the secondary: its copy, by mode.

It is a file from the moment at which the peer agrees, so that a restart continues with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import trio

from medusa.engine.objects.availability import Mode
from medusa.engine.objects.definitions import QueryEntry
from medusa.engine.objects.query import QueryStatus
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.replication.copies.query_copy import QueryCopy
from medusa.engine.replication.queries.host import QueryHost
from medusa.engine.replication.records.query_record import QueryRecord
from medusa.engine.replication.records.stored_query import StoredQuery
from medusa.engine.replication.records.term import HIGHEST_NUMBER, Term
from medusa.engine.replication.replicas.kept_streams import KeptStreams
from medusa.engine.replication.replicas.messages import KeepUp
from medusa.engine.replication.replicas.watch import Comparison, SignOfLife, Watch
from medusa.engine.streams.store.store import REPLICA
from medusa.engine.streams.store.stream_state import LogKey, StreamState
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.query_editions import Footing, changed, earliest, made_since
from medusa.overlay.errors import ConflictError, MedusaError
from medusa.overlay.failpoints import Failpoint, failpoint


class Standby:
    """One query whose secondary this peer is.

    Attributes:
        copy: this peer's copy of the query.
        record: the query as this peer believes it, and its file. streams: the streams that it
            keeps. watch: judges the primary's signs of life.
    """

    def __init__(
        self,
        queries: QueryHost,
        stored: StoredQuery,
        plan: Sequence[Task],
        *,
        resumed: bool = False,
    ) -> None:
        stored = msgspec.structs.replace(stored, variant=REPLICA, written_placements={})
        self.record = QueryRecord(queries.files, stored)
        self.copy = QueryCopy(queries.shop, self.record, plan)
        self.streams = KeptStreams(self.copy, queries.shop)
        self._timing = queries.shop.config.timing
        self.watch = Watch(
            stored.availability.bound_s, trio.current_time(), self._timing, resumed=resumed
        )
        self._sure = not resumed
        self._queries = queries
        self._shop = queries.shop
        self._saved_at = trio.current_time()
        self._comparison = Comparison()

    @property
    def stored(self) -> StoredQuery:
        """The query with which a takeover would continue, apart from the term."""
        return self.copy.stored

    @property
    def computes(self) -> bool:
        """Whether its tasks are computed here: in active standby."""
        return bool(self.copy.tasks)

    @property
    def name(self) -> str:
        return self.stored.name

    def yields_to(self, term: Term) -> bool:
        """Whether to give the query up at that primary's request: this peer has not taken over, and
        the primary has its term, or a later one."""
        return self.record.decided is None and HIGHEST_NUMBER.releases(term, self.term)

    @property
    def term(self) -> Term:
        """The latest term of the query that is known here."""
        return (self.record.decided or self.stored).term

    @property
    def mode(self) -> Mode:
        return self.stored.availability.mode

    @property
    def boundaries(self) -> dict[str, int]:
        """The boundaries of its logs, microseconds, by stream."""
        return {name: state.log.boundary for name, state in self.copy.logs.items()}

    def rendition(self, stream: str) -> StreamState | None:
        """The log of an output, if this peer computes it as the primary does."""
        computed = self.computes and stream in self.stored.entry.outputs
        sure = self.watch.sure(trio.current_time())
        return self.copy.logs.get(stream) if computed and sure else None

    def note_silence(self, now: float) -> None:
        """End the subscriptions once this copy may differ from the primary's. now: of trio,
        seconds."""
        sure, self._sure = self._sure, self.watch.sure(now)
        if sure and not self._sure:
            for task in self.copy.tasks:
                task.state.send_away()

    @property
    def behind_us(self) -> int:
        """Return the lag of the standby's outputs behind those of the primary, as last reported,
        microseconds."""
        return self._comparison.behind_us(self.boundaries)

    async def open(self) -> None:
        """Open the logs that the mode needs; they are on disk on return."""
        self.record.save()
        if self.mode is not Mode.AMNESIA:
            # a takeover must wait neither for a JVM nor for code that it has not compiled yet
            cold = () if self.mode is Mode.ACTIVE_STANDBY else self.copy.plan
            self._shop.warm([task for task in cold if task.of is None])
        match self.mode:
            case Mode.ACTIVE_STANDBY:
                await self.streams.keep_inputs()
                self.copy.compute()
                await self._heed_status()
            case Mode.PASSIVE_STANDBY:
                await self.streams.keep_checkpoints()
            case Mode.UPSTREAM_BACKUP | Mode.AMNESIA | Mode.NONE:
                pass

    def receive(self, message: KeepUp, now: float) -> SignOfLife:
        """Take the primary's message: the positions of its consumers, and its boundaries."""
        known = {*self.stored.inputs, *self.stored.entry.outputs}
        positions = self.stored.positions | {
            name: at for name, at in message.positions.items() if name in known
        }
        self.record.note(msgspec.structs.replace(self.stored, positions=positions))
        if positions != self.record.saved and now - self._saved_at > self._timing.save_s:
            self._saved_at = now
            try:
                self.record.save()
            except MedusaError as error:  # for example, the disk is full: the older file is intact
                text = f"could not save the positions of {self.name}: {error}"
                self._shop.overlay.events.note("error", text)
        self._comparison.receive(message.boundaries)
        self.streams.hold(positions)
        if not self.computes:
            return SignOfLife()
        self.copy.go_on()
        self.note_boundaries(now)
        return SignOfLife(self._comparison.ahead_us(self.copy.logs.keys(), now))

    def note_boundaries(self, now: float) -> None:
        """Note the boundaries of our own outputs. now: on trio's clock, seconds."""
        self._comparison.note({task.name: task.boundary for task in self.copy.tasks}, now)

    async def take_status(self, entry: QueryEntry) -> None:
        """Take the query's status: the primary has started or stopped it.

        Raises:
            StorageError: the disk does not take it; nothing has changed.
        """
        if entry == self.stored.entry:
            return
        stored = msgspec.structs.replace(self.stored, entry=entry)
        self.record.write(stored)
        await self._heed_status()

    async def _heed_status(self) -> None:
        if self.computes and self.stored.entry.status is QueryStatus.RUNNING:
            self._queries.start(self.copy)
        else:
            await self.copy.stop()

    async def relabel(self, stored: StoredQuery) -> None:
        """Give the query's inputs the readers that `stored` has.

        Raises:
            StorageError: the disk does not take it; nothing has changed.
        """
        if stored.inputs != self.stored.inputs:
            stored = msgspec.structs.replace(self.stored, inputs=stored.inputs)
            self.record.write(stored)
            await self.copy.define_outputs(stored, self.copy.plan)

    @failpoint(Failpoint.STANDBY_TAKE_VERSION)
    async def take_edition(self, told: StoredQuery) -> int:
        """Continue from its boundary with the query that the primary sent, for which `follows` is
        true. Returns: BEGINNING; if it cannot, the earliest boundary at which it could: then it
        stands still until the primary's next message.

        Raises:
            StorageError: the disk does not take it; nothing has changed.
        """
        stored = msgspec.structs.replace(
            self.stored,
            entry=told.entry,
            inputs=told.inputs,
            editions=told.editions,
            since=told.since,
            parted=told.parted,
        )
        if stored == self.stored:
            self.copy.go_on()
            return BEGINNING
        overlay = self._shop.overlay
        plan = await overlay.threads.run(overlay.identity.participant, stored.network.tasks)
        await self.copy.define_outputs(stored, plan)
        names = changed(self.copy.plan, plan)
        async with self.copy.paused(names):
            least = self._adopt(stored, plan)
            if least > BEGINNING:
                self.copy.stand_still(names)
                return least
            self.copy.go_on()
        await self._heed_status()
        return BEGINNING

    @failpoint(Failpoint.STANDBY_ADOPT)
    def _adopt(self, stored: StoredQuery, plan: Sequence[Task]) -> int:
        """Store the edition, unless it comes too late; see `take_edition`."""
        if stored.entry.edition > self.stored.entry.edition:
            upto = stored.editions[-1].upto
            try:
                least = earliest(plan, changed(self.copy.plan, plan), self._footing, upto)
            except ConflictError:  # an output has ended here
                least = END
            if least > upto:
                return least
        self.record.write(stored)
        self.copy.modify(plan)
        if self.mode is Mode.PASSIVE_STANDBY:
            self.streams.trim()
        return BEGINNING

    @property
    def _footing(self) -> Footing:
        positions = self.stored.positions
        starts = {
            name: positions.get(name, BEGINNING) if log.boundary == BEGINNING else log.start
            for name, log in ((name, state.log) for name, state in self.copy.logs.items())
        }
        before = self._queries.files.given(self.name)  # for example, when this peer was the primary
        given = {
            name: max(reached, before.get(name, BEGINNING)) for name, reached in self._given.items()
        }
        since = made_since(self.copy.plan, self.stored.since)
        return Footing(given, starts).joined(since)

    @property
    def _given(self) -> dict[str, int]:
        """The boundaries, by output, up to which consumers may have received tuples from this
        peer."""
        return {task.output: self.boundaries.get(task.output, BEGINNING) for task in self.copy.plan}

    async def leave_primary(self) -> None:
        """Stop following the primary. The logs stay, and running tasks continue."""
        self.copy.go_on()
        await self.streams.leave_primary()

    async def drop(self) -> None:
        """Drop its streams and its file."""
        with trio.CancelScope(shield=True):
            await self.leave_primary()
            self.streams.release()
            await self.copy.stop()
            for each in self.copy.tasks:
                each.runner.inputs.release()
            await self.copy.leave_inputs()
            self._queries.files.leave(self.name, self._given)
            for task in self.copy.plan:
                await self._shop.store.drop(LogKey(task.output, REPLICA))
