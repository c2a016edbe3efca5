"""A query of which this peer is the secondary: its copy, by mode.

It is a file from the moment at which the peer agrees, so that a restart continues with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import trio

from medusa.engine.objects.availability import Mode
from medusa.engine.objects.definitions import QueryEntry
from medusa.engine.objects.query import QueryStatus
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.replication.copies.query_copy import QueryCopy, carrier
from medusa.engine.replication.following.book import INPUT
from medusa.engine.replication.following.follower import Course, Follower
from medusa.engine.replication.following.origin import (
    FROM_PRODUCERS,
    PRODUCER,
    READ_REPLICA,
    Place,
    Right,
)
from medusa.engine.replication.queries.host import QueryHost
from medusa.engine.replication.records.stored_query import StoredQuery
from medusa.engine.replication.replicas.messages import KeepUp
from medusa.engine.replication.replicas.watch import Heard, Lag, Watch
from medusa.engine.replication.term import HIGHEST_NUMBER, Term
from medusa.engine.streams.log.retention import Hold
from medusa.engine.streams.store.store import REPLICA
from medusa.engine.streams.store.stream_state import LogKey, Role, StreamState
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.query_editions import Footing, changed, earliest, made_since
from medusa.engine.tasks.windows import needed_after, read_after
from medusa.overlay.concurrency import Job
from medusa.overlay.errors import ConflictError, MedusaError
from medusa.overlay.killpoints import KillPoint, kill_point

PRIMARY: Final = Hold("primary")
"""The hold on the standby's outputs, from the boundary that the primary's consumers need."""

GRACE_S: Final = 60.0
"""How long that hold lasts after the primary was last heard, seconds: by then they are here."""


class Standby:
    """One query whose secondary this peer is.

    Attributes:
        copy: this peer's copy of the query.
        decided: the query as a takeover has written it down, until nothing is left to do.
        saved: the positions that are on disk.
        watch: weighs the primary's signs of life.
        succeeding: a takeover is under way. looked_up_at: when the catalog was last asked about
            it, on trio's clock, seconds.
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
        self.copy = QueryCopy(queries.shop, stored, plan)
        self._timing = queries.shop.config.timing
        self.watch = Watch(
            stored.availability.bound_s, trio.current_time(), self._timing, resumed=resumed
        )
        self.decided: StoredQuery | None = None
        self.saved: dict[str, int] = {}
        self._sure = not resumed
        self.succeeding = False
        self.looked_up_at = float("-inf")
        self._queries = queries
        self._shop = queries.shop
        self._followers = queries.shop.followers
        primary = stored.term.holder
        right = Right(self.name, stored.term.number)
        self._primary = Place(primary, method=READ_REPLICA, right=right)
        self._copying: list[Follower] = []
        self._following = Job()
        self._saved_at = trio.current_time()
        self._told: dict[str, int] = {}
        self._lags: dict[str, Lag] = {}

    @property
    def stored(self) -> StoredQuery:
        """The query as a takeover would go on with it, but for the term."""
        return self.copy.stored

    @property
    def computes(self) -> bool:
        """Whether its tasks are computed here: in active standby."""
        return bool(self.copy.tasks)

    @property
    def name(self) -> str:
        return self.stored.name

    def yields_to(self, term: Term) -> bool:
        """Whether to let go of the query at that primary's request: this peer has not taken over,
        and the primary has its term, or a later one."""
        return self.decided is None and HIGHEST_NUMBER.releases(term, self.term)

    @property
    def term(self) -> Term:
        """The latest term of the query that is known here."""
        return self.stored.term if self.decided is None else self.decided.term

    @property
    def lost(self) -> bool:
        """Whether the primary has dropped the tuples that the copies need next."""
        logs = self.copy.logs
        inputs = (logs[name].key for name in self.stored.inputs if name in logs)
        gone = [each.gone for each in self._copying] + [self._followers.gone(key) for key in inputs]
        return self._primary in gone

    @property
    def mode(self) -> Mode:
        return self.stored.availability.mode

    @property
    def boundaries(self) -> dict[str, int]:
        """The boundaries of its logs, microseconds, by stream."""
        return {name: state.log.boundary for name, state in self.copy.logs.items()}

    def rendition(self, stream: str) -> StreamState | None:
        """The log of an output, if it is computed here as the primary computes it."""
        computed = self.computes and stream in self.stored.entry.outputs
        sure = self.watch.sure(trio.current_time())
        return self.copy.logs.get(stream) if computed and sure else None

    def note_silence(self, now: float) -> None:
        """Send readers away once this copy may differ from the primary. now: of trio, seconds."""
        sure, self._sure = self._sure, self.watch.sure(now)
        if sure and not self._sure:
            for task in self.copy.tasks:
                task.state.send_away()

    @property
    def behind_us(self) -> int:
        """Return the lag of its outputs behind the primary's, as last reported, microseconds."""
        gaps = [
            told - self.copy.logs[output].log.boundary
            for output, told in self._told.items()
            if output in self.copy.logs and BEGINNING < told < END
        ]
        return max(0, *gaps) if gaps else 0

    async def open(self) -> None:
        """Open the logs that the mode asks for; on disk on return."""
        self.save()
        if self.mode is not Mode.AMNESIA:
            # a takeover must not wait for a JVM, nor for code that has never run in it
            cold = () if self.mode is Mode.ACTIVE_STANDBY else self.copy.plan
            self._queries.warm([task for task in cold if task.of is None])
        match self.mode:
            case Mode.ACTIVE_STANDBY:
                await self._keep_outputs()
                await self._follow(self.copy.plan, carried=False)
                self.copy.compute()
                await self._heed_status()
            case Mode.PASSIVE_STANDBY:
                await self._keep_outputs()
                await self._follow(self._stateful, carried=True)
                self._trim()  # at once: retention knows of no task that needs it
                self._following.start(self._shop.nursery, self._follow_outputs)
            case Mode.UPSTREAM_BACKUP | Mode.AMNESIA | Mode.NONE:
                pass

    @property
    def _stateful(self) -> list[Task]:
        """The tasks with windows or joins: their state is a suffix of their inputs."""
        return [task for task in self.copy.plan if task.has_state]

    async def _keep_outputs(self) -> None:
        await self.copy.keep_outputs(Role.STANDBY)
        for state in self.copy.logs.values():
            position = self.stored.positions.get(state.name, state.log.start)
            state.log.retention.hold(PRIMARY, position, trio.current_time() + GRACE_S)

    async def _follow(self, tasks: Sequence[Task], *, carried: bool) -> None:
        """Follow the tasks' inputs from elsewhere, from where the tasks' outputs are.

        Args:
            carried: the primary sends them, and has their producer keep what it has not sent. Else
                their producer sends them, and the primary only what the producer has dropped.
        """
        origin = (self._primary, PRODUCER) if carried else (PRODUCER, self._primary)
        for name, entry in self.stored.inputs.items():
            readers = [task for task in tasks if name in task.inputs]
            if not readers:
                continue
            owner = carrier(self.stored)
            after = min(self._needed_by(task, name) for task in readers)
            if carried:  # as far as the primary has it, or a restart has left it
                before = self._shop.store.get(name, f"{INPUT}-{owner}")
                start = BEGINNING if before is None else before.log.start
                after = max(self.stored.positions.get(name, BEGINNING), start)
            self.copy.logs[name] = await self._followers.follow_from(
                entry, self.name, origin, after, owner=owner
            )

    def _needed_by(self, task: Task, stream: str) -> int:
        return read_after(task, stream, self._made(task))

    def _made(self, task: Task) -> int:
        return self.copy.logs[task.output].log.boundary

    async def _follow_outputs(self) -> None:
        """Follow the outputs of the primary, checkpoint by checkpoint."""
        reach, origin = self._followers.reach, (self._primary,)
        async with trio.open_nursery() as nursery:
            for task in self.copy.plan:
                since = self.stored.positions.get(task.output, BEGINNING)
                course = Course(BEGINNING if task.recalls else since, committed=self._trim)
                state = self.copy.logs[task.output]
                follower = Follower(state, origin, reach, REPLICA, course)
                self._copying.append(follower)
                nursery.start_soon(follower.run)

    def _trim(self) -> None:
        """Hold the carry: the part of the inputs that the tasks may still read."""
        for name in self.stored.inputs:
            readers = [task for task in self._stateful if name in task.inputs]
            if readers:
                needed = min(needed_after(task, self._made(task), name) for task in readers)
                self.copy.logs[name].log.retention.hold(Hold("carry", self.name), needed)

    def hear(self, message: KeepUp, now: float) -> Heard:
        """Take the primary's message: the positions of its consumers, and its boundaries."""
        known = {*self.stored.inputs, *self.stored.entry.outputs}
        positions = self.stored.positions | {
            name: at for name, at in message.positions.items() if name in known
        }
        self.copy.stored = msgspec.structs.replace(self.stored, positions=positions)
        if positions != self.saved and now - self._saved_at > self._timing.save_s:
            self._saved_at = now
            try:
                self.save()
            except MedusaError as error:  # a full disk: the older file is there, and good
                text = f"could not save the positions of {self.name}: {error}"
                self._shop.overlay.events.note("error", text)
        self._told = message.boundaries
        for output, state in self.copy.logs.items():
            if state.role is Role.STANDBY and output in positions:
                state.log.retention.hold(PRIMARY, positions[output], trio.current_time() + GRACE_S)
        if not self.computes:
            return Heard()
        self.copy.go_on()
        self.note_boundaries(now)
        ahead_s = [
            self._lag(output).over(told, now)
            for output, told in message.boundaries.items()
            if output in self.copy.logs and told > BEGINNING
        ]
        return Heard(behind_us=int(1e6 * max(ahead_s, default=0.0)))

    def note_boundaries(self, now: float) -> None:
        """Note the boundaries of our own outputs. now: on trio's clock, seconds."""
        for task in self.copy.tasks:
            self._lag(task.name).note(task.boundary, now)

    def _lag(self, output: str) -> Lag:
        return self._lags.setdefault(output, Lag())

    async def take_status(self, entry: QueryEntry) -> None:
        """Take the query's status: the primary has started or stopped it.

        Raises:
            StorageError: the disk does not take it; nothing has changed.
        """
        if entry == self.stored.entry:
            return
        stored = msgspec.structs.replace(self.stored, entry=entry)
        self._queries.files.save(stored)
        self.copy.stored = stored
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
            self._queries.files.save(stored)
            self.copy.stored = stored
            await self.copy.define_outputs(stored, self.copy.plan)

    @kill_point(KillPoint.STANDBY_TAKE_VERSION)
    async def take_edition(self, told: StoredQuery) -> int:
        """Go on where it stands with the query as the primary tells it, which `follows`.

        Returns:
            BEGINNING; or, if that cannot be, the earliest boundary at which it could: then it
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

    @kill_point(KillPoint.STANDBY_ADOPT)
    def _adopt(self, stored: StoredQuery, plan: Sequence[Task]) -> int:
        """Write the edition down, unless it comes too late; see `take_edition`."""
        if stored.entry.edition > self.stored.entry.edition:
            upto = stored.editions[-1].upto
            try:
                least = earliest(plan, changed(self.copy.plan, plan), self._footing, upto)
            except ConflictError:  # an output has ended here
                least = END
            if least > upto:
                return least
        self._queries.files.save(stored)
        self.copy.stored = stored
        self.copy.modify(plan)
        if self.mode is Mode.PASSIVE_STANDBY:
            self._trim()
        return BEGINNING

    @property
    def _footing(self) -> Footing:
        positions = self.stored.positions
        starts = {
            name: positions.get(name, BEGINNING) if log.boundary == BEGINNING else log.start
            for name, log in ((name, state.log) for name, state in self.copy.logs.items())
        }
        before = self._queries.files.given(self.name)  # by this peer as its primary, say
        given = {
            name: max(reached, before.get(name, BEGINNING)) for name, reached in self._given.items()
        }
        since = made_since(self.copy.plan, self.stored.since)
        return Footing(given, starts).joined(since)

    @property
    def _given(self) -> dict[str, int]:
        """The boundaries, by output, up to which consumers may have the tuples from here."""
        return {task.output: self.boundaries.get(task.output, BEGINNING) for task in self.copy.plan}

    def save(self) -> None:
        """Save the query. Raises: StorageError: the disk does not take it; the old file stays."""
        self._queries.files.save(self.stored)
        self.saved = self.stored.positions

    async def leave_primary(self) -> None:
        """Stop following the primary. The logs stay, and running tasks go on."""
        self.copy.go_on()
        await self._following.stop()
        self._followers.take_from(self.name, FROM_PRODUCERS)

    def let_go(self) -> None:
        """Release the carry: the tasks have their own holds by now."""
        for name in self.stored.inputs:
            if name in self.copy.logs:
                self.copy.logs[name].log.retention.release(Hold("carry", self.name))

    async def drop(self) -> None:
        """Drop all of it."""
        with trio.CancelScope(shield=True):
            await self.leave_primary()
            self.let_go()
            await self.copy.stop()
            for each in self.copy.tasks:
                each.runner.inputs.release()
            await self.copy.leave_inputs()
            self._queries.files.leave(self.name, self._given)
            for task in self.copy.plan:
                await self._shop.store.drop(LogKey(task.output, REPLICA))
