"""One query whose secondary this peer is: what it keeps of it, by mode.

It is a file from the moment it is agreed to, so that a restart goes on with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import trio

from engine.objects.availability import Mode
from engine.objects.definitions import QueryEntry
from engine.objects.query import QueryStatus
from engine.objects.schema import BEGINNING, END
from engine.replication.following.book import INPUT, Followers
from engine.replication.following.follower import Course, Follower
from engine.replication.following.origin import (
    FROM_PRODUCERS,
    PRODUCER,
    READ_REPLICA,
    Place,
    Right,
)
from engine.replication.queries import QueryHost
from engine.replication.query_logs import carrier
from engine.replication.replicas.lead import Lead
from engine.replication.replicas.messages import KeepUp
from engine.replication.replicas.watch import Heard, Watch
from engine.replication.running_query import RunningQuery
from engine.replication.stored_query import StoredQuery
from engine.replication.term import Term
from engine.streams.kept import KeptStream, LogKey, Role
from engine.streams.retention import Hold
from engine.streams.store import REPLICA, StreamStore
from engine.tasks.former import changed, made_since
from engine.tasks.modification import Footing, earliest
from engine.tasks.plan import Task
from engine.tasks.windows import needed_after
from overlay.errors import ConflictError, MedusaError
from overlay.identity import parse_peer_id
from overlay.killpoints import KillPoint, kill_point
from overlay.node import Overlay

SAVE_S: Final = 5.0
"""How often new positions are written down, seconds: older ones only mean more to compute again."""

PRIMARY: Final = Hold("primary")
"""Whom the standby's outputs are held for, as its primary says its consumers need them."""

GRACE_S: Final = 60.0
"""How long after the primary was last heard of, seconds: until then its consumers are here."""


class Standby:
    """
    Attributes:
        stored: as a takeover would go on with it, but for the term.
        decided: as it is written down once this peer has taken over, until nothing is left to do.
        saved: the positions that are on disk.
        watch: what is known of the primary.
        running: its tasks, in active standby.
        succeeding: a takeover is under way. looked_up_at: when the catalog was last asked about
            it, on trio's clock, seconds.
    """

    def __init__(
        self,
        stored: StoredQuery,
        tasks: Sequence[Task],
        *,
        overlay: Overlay,
        store: StreamStore,
        followers: Followers,
        queries: QueryHost,
        resumed: bool = False,
    ) -> None:
        self.stored = msgspec.structs.replace(stored, variant=REPLICA, written_placements={})
        self.watch = Watch(stored.availability.bound_s, trio.current_time(), resumed=resumed)
        self.decided: StoredQuery | None = None
        self.saved: dict[str, int] = {}
        self.running: RunningQuery | None = None
        self._sure = not resumed
        self.succeeding = False
        self.looked_up_at = float("-inf")
        self._overlay = overlay
        self._store = store
        self._followers = followers
        self._queries = queries
        primary = parse_peer_id(stored.term.holder)
        right = Right(self.name, stored.term.number)
        self._primary = Place(primary, method=READ_REPLICA, right=right)
        self._copying: list[Follower] = []
        self._kept: dict[str, KeptStream] = {}
        self._tasks = tasks
        self._following = trio.CancelScope()
        self._at_rest = trio.Event()
        self._at_rest.set()
        self._saved_at = trio.current_time()
        self._told: dict[str, int] = {}
        self._leads: dict[str, Lead] = {}

    @property
    def name(self) -> str:
        return self.stored.name

    def yields_to(self, term: Term) -> bool:
        """Whether it is to let go of the query by the word of that primary: it has not taken over
        itself, and that one is its own or a later one."""
        own = term.rank == self.term.rank
        return self.decided is None and (own or term.number > self.term.number)

    @property
    def term(self) -> Term:
        """The highest that is known of it here."""
        return self.stored.term if self.decided is None else self.decided.term

    @property
    def lost(self) -> bool:
        """Whether the primary has no more what the copies would go on with."""
        inputs = (self._kept[name].key for name in self.stored.inputs if name in self._kept)
        gone = [each.gone for each in self._copying] + [self._followers.gone(key) for key in inputs]
        return self._primary in gone

    @property
    def mode(self) -> Mode:
        return self.stored.availability.mode

    @property
    def boundaries(self) -> dict[str, int]:
        """How far it has what it keeps, microseconds, by stream."""
        return {name: kept.log.boundary for name, kept in self._kept.items()}

    def rendition(self, stream: str) -> KeptStream | None:
        """An output, where it is computed here as its primary computes it."""
        computed = self.running is not None and stream in self.stored.entry.outputs
        sure = self.watch.sure(trio.current_time())
        return self._kept.get(stream) if computed and sure else None

    def heed_silence(self, now: float) -> None:
        """Send those who read here away, once it is not sure what its primary computes. now: on
        trio's clock, seconds."""
        sure, self._sure = self._sure, self.watch.sure(now)
        if sure and not self._sure and self.running is not None:
            for task in self.running.tasks:
                task.kept.send_away()

    @property
    def behind_us(self) -> int:
        """How far its outputs are behind the primary's, as last heard, microseconds."""
        gaps = [
            told - self._kept[output].log.boundary
            for output, told in self._told.items()
            if output in self._kept and BEGINNING < told < END
        ]
        return max(0, *gaps) if gaps else 0

    async def open(self, nursery: trio.Nursery) -> None:
        """Keep what the mode says; on disk on return."""
        self.save()
        if self.mode is not Mode.AMNESIA:
            # a takeover must not wait for a JVM, nor for code that it has never run
            cold = () if self.mode is Mode.ACTIVE_STANDBY else self._tasks
            self._queries.warm([task for task in cold if task.of is None])
        match self.mode:
            case Mode.ACTIVE_STANDBY:
                await self._keep_outputs()
                await self._follow(self._tasks, carried=False)
                self.running = self._queries.build(self.stored, self._tasks, self._kept)
                if self.stored.entry.status is QueryStatus.RUNNING:
                    self._queries.start(self.running)
            case Mode.PASSIVE_STANDBY:
                await self._keep_outputs()
                outputs = [self._kept[task.output] for task in self._tasks]
                await self._follow(self._windowed, carried=True)
                self._trim()  # at once: retention knows of no task that needs it
                self._at_rest = trio.Event()
                nursery.start_soon(self._copy, outputs)
            case Mode.UPSTREAM_BACKUP | Mode.AMNESIA | Mode.NONE:
                pass

    @property
    def _windowed(self) -> list[Task]:
        """Those with a state, which is a suffix of their inputs."""
        return [task for task in self._tasks if task.window is not None]

    async def _keep_outputs(self) -> None:
        for task in self._tasks:
            kept = await self._queries.logs.keep_output(self.stored, task, Role.STANDBY)
            self._kept[task.output] = kept
            position = self.stored.positions.get(task.output, kept.log.start)
            kept.log.hold(PRIMARY, position, trio.current_time() + GRACE_S)

    async def _follow(self, tasks: Sequence[Task], *, carried: bool) -> None:
        """Follow what these read from elsewhere, from where their outputs are.

        Args:
            carried: the primary sends it, and lets its producer keep what it has not given us. Else
                it comes from its producer, and from the primary what the producer let go of.
        """
        origin = (self._primary, PRODUCER) if carried else (PRODUCER, self._primary)
        for name, entry in self.stored.inputs.items():
            readers = [task for task in tasks if name in task.inputs]
            if not readers:
                continue
            owner = carrier(self.stored)
            after = min(self._needed_by(task) for task in readers)
            if carried:  # what the primary has of it, or what came before a restart
                before = self._store.get(name, f"{INPUT}-{owner}")
                start = BEGINNING if before is None else before.log.start
                after = max(self.stored.positions.get(name, BEGINNING), start)
            self._kept[name] = await self._followers.follow_from(
                entry, self.name, origin, after, owner=owner
            )

    def _needed_by(self, task: Task) -> int:
        return needed_after(task, self._kept[task.output].log.boundary)

    async def _copy(self, outputs: Sequence[KeptStream]) -> None:
        """Follow the outputs of the primary, checkpoint by checkpoint."""
        try:
            with self._following:
                async with trio.open_nursery() as nursery:
                    for kept in outputs:
                        after = self.stored.positions.get(kept.name, BEGINNING)
                        course = Course(after, committed=self._trim)
                        follower = Follower(
                            kept, (self._primary,), self._followers.reach, REPLICA, course
                        )
                        self._copying.append(follower)
                        nursery.start_soon(follower.run)
        finally:
            self._at_rest.set()

    def _trim(self) -> None:
        """The carry is what the tasks may still read of their inputs."""
        for name, kept in self._kept.items():
            readers = [task for task in self._windowed if name in task.inputs]
            if name in self.stored.inputs and readers:
                kept.log.hold(
                    Hold("carry", self.name), min(self._needed_by(task) for task in readers)
                )

    def hear(self, message: KeepUp, now: float) -> Heard:
        """What the primary says: where its consumers are, and how far it is."""
        known = {*self.stored.inputs, *self.stored.entry.outputs}
        positions = self.stored.positions | {
            name: at for name, at in message.positions.items() if name in known
        }
        self.stored = msgspec.structs.replace(self.stored, positions=positions)
        if positions != self.saved and now - self._saved_at > SAVE_S:
            self._saved_at = now
            try:
                self.save()
            except MedusaError as error:  # a full disk: what is there is older, and good
                self._overlay.events.note(
                    "error", f"could not save the positions of {self.name}: {error}"
                )
        self._told = message.boundaries
        for output, kept in self._kept.items():
            if kept.role is Role.STANDBY and output in positions:
                kept.log.hold(PRIMARY, positions[output], trio.current_time() + GRACE_S)
        if self.running is None:
            return Heard()
        self._go_on()
        self.note_boundaries(now)
        ahead_s = [
            self._lead(output).over(told, now)
            for output, told in message.boundaries.items()
            if output in self._kept and told > BEGINNING
        ]
        return Heard(behind_us=int(1e6 * max(ahead_s, default=0.0)))

    def note_boundaries(self, now: float) -> None:
        """Remember when our own outputs were where. now: on trio's clock, seconds."""
        if self.running is None:
            return
        for task in self.running.tasks:
            self._lead(task.name).note(task.boundary, now)

    def _lead(self, output: str) -> Lead:
        return self._leads.setdefault(output, Lead())

    async def take_status(self, entry: QueryEntry) -> None:
        """The primary has started or stopped it.

        Raises:
            StorageError: the disk does not take it; nothing has changed.
        """
        if entry == self.stored.entry:
            return
        stored = msgspec.structs.replace(self.stored, entry=entry)
        self._queries.files.save(stored)
        self.stored = stored
        await self._heed_status()

    async def _heed_status(self) -> None:
        if self.running is None:
            return
        if self.stored.entry.status is QueryStatus.RUNNING:
            self._queries.start(self.running)
        else:
            await self.running.stop()

    async def relabel(self, stored: StoredQuery) -> None:
        """What it reads has the readers now that `stored` says.

        Raises:
            StorageError: the disk does not take it; nothing has changed.
        """
        if stored.inputs != self.stored.inputs:
            stored = msgspec.structs.replace(self.stored, inputs=stored.inputs)
            self._queries.files.save(stored)
            self.stored = stored
            await self._queries.logs.define_outputs(self.stored, self._tasks)

    @kill_point(KillPoint.STANDBY_TAKE_VERSION)
    async def take_edition(self, told: StoredQuery) -> int:
        """Go on where it stands with what the primary says of the query now, which `follows`.

        Returns:
            BEGINNING; or, where that cannot be, the earliest boundary at which it could: until the
            primary speaks again it stands still then.

        Raises:
            StorageError: the disk does not take it; nothing has changed.
        """
        stored = msgspec.structs.replace(
            self.stored,
            entry=told.entry,
            inputs=told.inputs,
            former=told.former,
            since=told.since,
            parted=told.parted,
        )
        if stored == self.stored:
            self._go_on()
            return BEGINNING
        overlay = self._overlay
        tasks = await overlay.threads.run(overlay.identity.participant, stored.network.tasks)
        await self._queries.logs.define_outputs(stored, tasks)
        if self.running is None:
            return self._adopt(stored, tasks)
        names = changed(self._tasks, tasks)
        async with self.running.paused(names):
            least = self._adopt(stored, tasks)
            if least > BEGINNING:
                self.running.stand_still(names)
                return least
            self.running.stored = stored
            self.running.modify(tasks)
            self._go_on()
        await self._heed_status()
        return BEGINNING

    @kill_point(KillPoint.STANDBY_ADOPT)
    def _adopt(self, stored: StoredQuery, tasks: Sequence[Task]) -> int:
        """Write it down, unless it comes too late; see `take_edition`."""
        if stored.entry.edition > self.stored.entry.edition:
            upto = stored.former[-1].upto
            try:
                least = earliest(tasks, changed(self._tasks, tasks), self._footing, upto)
            except ConflictError:  # an output has ended here
                least = END
            if least > upto:
                return least
        self._queries.files.save(stored)
        self.stored, self._tasks = stored, tasks
        if self.mode is Mode.PASSIVE_STANDBY:
            self._trim()
        return BEGINNING

    def _go_on(self) -> None:
        if self.running is not None:
            self.running.go_on()

    @property
    def _footing(self) -> Footing:
        positions = self.stored.positions
        starts = {
            name: positions.get(name, BEGINNING) if log.boundary == BEGINNING else log.start
            for name, log in ((name, kept.log) for name, kept in self._kept.items())
        }
        before = self._queries.files.given(self.name)  # as its primary, say
        given = {
            name: max(reached, before.get(name, BEGINNING)) for name, reached in self._given.items()
        }
        since = made_since(self._tasks, self.stored.since)
        return Footing(given, starts).joined(since)

    @property
    def _given(self) -> dict[str, int]:
        """By output, how far somebody may have it from here."""
        return {task.output: self.boundaries.get(task.output, BEGINNING) for task in self._tasks}

    def save(self) -> None:
        """
        Raises:
            StorageError: the disk does not take it; what was there is untouched.
        """
        self._queries.files.save(self.stored)
        self.saved = self.stored.positions

    async def leave_primary(self) -> None:
        """Nothing comes from it any more. What is kept stays, and what runs goes on."""
        self._go_on()
        self._following.cancel()
        await self._at_rest.wait()
        self._followers.take_from(self.name, FROM_PRODUCERS)

    def let_go(self) -> None:
        """Its tasks hold what they need by now."""
        for name in self.stored.inputs:
            if name in self._kept:
                self._kept[name].log.release(Hold("carry", self.name))

    async def drop(self) -> None:
        """Keep nothing of it any more."""
        with trio.CancelScope(shield=True):
            await self.leave_primary()
            self.let_go()
            if self.running is not None:
                await self.running.stop()
                for placed in self.running.tasks:
                    placed.runner.release()
            for name in self.stored.inputs:
                await self._followers.leave(name, self.name)
            self._queries.files.leave(self.name, self._given)
            for task in self._tasks:
                await self._store.drop(LogKey(task.output, REPLICA))
