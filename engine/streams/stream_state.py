"""One stream that this peer keeps, and what a restart needs to know of it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import msgspec
import trio
from msgspec import Struct

from engine.objects.definitions import LATE, REVISIONS, StreamDefinition, StreamEntry, base_of
from engine.objects.schema import BEGINNING, END
from engine.streams.leader import Leader
from engine.streams.log import StreamLog
from engine.streams.messages import StreamStatus
from engine.streams.pacing import Rate
from engine.streams.revisions.columns import revisions_entry
from engine.streams.suffix import Suffix
from overlay.concurrency import Bell, Watched
from overlay.memory import Share


class Role(StrEnum):
    """Why this peer keeps a stream."""

    SOURCE = "source"
    LATE = "late"
    REVISIONS = "revisions"
    """Those of a source stream whose leader this peer is."""
    DERIVED = "derived"
    MIRROR = "mirror"
    ASSIGNED = "assigned"
    """The output of a task that this peer runs for another."""
    STANDBY = "standby"
    """The output of a query whose secondary this peer is: nobody reads it yet."""
    REPLICA = "replica"
    """A source stream, its late tuples or its revisions, whose leader is elsewhere at the
    moment."""
    VIEW = "view"
    """What a view shows, copied."""

    @classmethod
    def at_leader(cls, stream: str) -> Role:
        """Of a source stream, of its late tuples or of its revisions, at its leader."""
        kinds = {LATE: cls.LATE, REVISIONS: cls.REVISIONS}
        return cls.SOURCE if base_of(stream) == stream else kinds[stream.rpartition("/")[2]]

    @property
    def is_served(self) -> bool:
        """Whether subscribers are given it."""
        return self not in {Role.MIRROR, Role.STANDBY, Role.REPLICA}


class LogKey(NamedTuple):
    """What a log is known by at this peer, which may have several of one stream: a mirror for its
    own queries, one that begins elsewhere, the output of a task that it runs for the owner.

    Attributes:
        variant: tells it from the others; without a slash. "": the log that most use.
    """

    stream: str
    variant: str = ""

    def __str__(self) -> str:
        """As its folder is named: no object name has an @."""
        return f"{self.stream}@{self.variant}" if self.variant else self.stream


class StoredStream(Struct, frozen=True):
    """What a restart needs to open a stream again. variant: see `LogKey`."""

    entry: StreamEntry
    role: Role
    variant: str = ""


@dataclass(eq=False)
class StreamState:
    """One stream.

    Attributes:
        leader: its ordering and journal, where this peer is its leader.
        variant: tells it from other logs of the same stream here; see `LogKey`.
        rate: rows per second into the log.
        moved_at: when its boundary last moved, on trio's clock, seconds.
        closing: closes its files.
        scope, at_rest: end what moves a source's posts into its log, and say that it has ended.
        hurry: rung where the next epoch should not wait for its time.
        moved_away: how often another peer has begun to compute the stream.
        altered: how often the stream's definition has changed.
        gate: the boundary up to which consumers may read, until what they must not outrun has come
            further, microseconds; None: as far as the log goes.
        suffix: what follows the log tentatively.
        memory: what waits in memory to come into the log, or to be whole.
        version: of a mirror: counts the changes of what it is made from.
        refusal: of a mirror: why the stream is not given to us any more; "": it is.
    """

    entry: StreamEntry
    role: Role
    log: StreamLog
    leader: Leader | None = None
    variant: str = ""
    rate: Rate = field(default_factory=Rate)
    subscribers: int = 0
    moved_at: float = field(default_factory=trio.current_time)
    closing: AsyncExitStack = field(default_factory=AsyncExitStack)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    at_rest: trio.Event = field(default_factory=trio.Event)
    hurry: Bell = field(default_factory=Bell)
    moved_away: Watched[int] = field(default_factory=lambda: Watched(0))
    altered: Watched[int] = field(default_factory=lambda: Watched(0))
    gate: Watched[int] | None = None
    suffix: Suffix = field(init=False)
    memory: Share = field(default_factory=Share)
    version: int = 0
    refusal: str = ""
    _seen_rows: int = 0
    _seen_boundary: int = BEGINNING

    def __post_init__(self) -> None:
        self.suffix = Suffix(self.log)

    @property
    def name(self) -> str:
        return self.entry.stream.name

    @property
    def key(self) -> LogKey:
        return LogKey(self.name, self.variant)

    @property
    def is_at_leader(self) -> bool:
        """Whether it is a source stream whose leader this peer is."""
        return self.role is Role.SOURCE

    @property
    def is_beside_a_source(self) -> bool:
        """Whether it is the late tuples of a source stream, or its revisions."""
        beside = base_of(self.name) != self.name
        return self.role in {Role.LATE, Role.REVISIONS} or (self.role is Role.REPLICA and beside)

    async def released(self, boundary: int) -> None:
        """Returns once consumers may have the stream up to there."""
        if self.gate is not None:
            await self.gate.until(lambda opened: opened >= boundary)

    def shut(self, boundary: int) -> None:
        """Let consumers read no further than that from now on, until `open_gate`."""
        if self.gate is None or self.gate.value == END:
            self.gate = Watched(boundary)

    def open_gate(self, boundary: int) -> None:
        """Let consumers read up to there, if they are held back; they keep what they may read."""
        if self.gate is not None and boundary > self.gate.value:
            self.gate.set(boundary)

    def define(self, entry: StreamEntry) -> None:
        """It is defined so from now on; who waits for `altered` hears of it."""
        self.entry = entry
        if self.role is not Role.MIRROR:
            self.log.retention.history_us = entry.stream.history_us
        self.altered.set(self.altered.value + 1)

    def send_away(self) -> None:
        """Let the peers that read it from here find its new worker."""
        self.moved_away.set(self.moved_away.value + 1)

    def measure(self, now: float) -> None:
        """Take note of what has moved. now: on trio's clock, seconds."""
        rows = self.log.appended_rows
        self.rate.add(rows - self._seen_rows, now)
        self._seen_rows = rows
        if self.log.boundary != self._seen_boundary:
            self._seen_boundary = self.log.boundary
            self.moved_at = now

    def status(self, now: float) -> StreamStatus:
        """As the monitor shows it. now: on trio's clock, seconds."""
        return StreamStatus(
            name=self.name,
            role=str(self.role),
            rate=self.rate.read(now),
            boundary=self.log.boundary,
            lag_s=0.0 if self.log.boundary == END else now - self.moved_at,
            rows=self.log.rows,
            late=self.leader.late_rows if self.leader else 0,
            bytes=self.log.bytes,
            subscribers=self.subscribers,
            state=str(self.suffix.state),
            version=self.version,
            waiting=self.leader.pending_rows if self.leader else 0,
        )


def late_entry(entry: StreamEntry) -> StreamEntry:
    """The stream of another's late tuples: the same fields, ordered by their arrival."""
    definition = StreamDefinition(
        name=f"{entry.stream.name}/{LATE}",
        schema=entry.stream.schema,
        history_us=entry.stream.history_us,
        readers=entry.stream.readers,
        declassify=entry.stream.declassify,
        leader=entry.stream.leader,
        edition=entry.stream.edition,
    )
    return StreamEntry(definition, msgspec.structs.replace(entry.schema, time=None, key=()))


def entries_of(entry: StreamEntry) -> tuple[StreamEntry, ...]:
    """A source stream and what it has beside it."""
    beside = (revisions_entry(entry),) if entry.is_revised else ()
    return (entry, late_entry(entry), *beside)
