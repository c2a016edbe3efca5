"""The state of one stream at this peer, and the part of it that a restart needs."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import msgspec
import trio
from msgspec import Struct

from medusa.engine.objects.definitions import (
    LATE,
    REVISIONS,
    StreamDefinition,
    StreamEntry,
    base_of,
)
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.streams.load import Rate
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.log.suffix import Suffix
from medusa.engine.streams.messages import StreamStatus
from medusa.engine.streams.revisions.columns import revisions_entry
from medusa.engine.streams.source.leader import Leader
from medusa.overlay.concurrency import Bell, Watched
from medusa.overlay.memory import Share


class Role(StrEnum):
    """The reason for which this peer has a log of a stream."""

    SOURCE = "source"
    LATE = "late"
    REVISIONS = "revisions"
    """The revisions of a source stream whose leader this peer is."""
    DERIVED = "derived"
    FOLLOWER = "follower"
    ASSIGNED = "assigned"
    """The output of a task that this peer runs for another."""
    STANDBY = "standby"
    """The output of a query whose secondary this peer is: it has no readers yet."""
    REPLICA = "replica"
    """A source stream, its late tuples or its revisions, at a peer that is not the leader."""
    VIEW = "view"
    """The content of a view, copied."""

    @classmethod
    def at_leader(cls, stream: str) -> Role:
        """The role of a source stream, its late tuples or its revisions, at its leader."""
        kinds = {LATE: cls.LATE, REVISIONS: cls.REVISIONS}
        return cls.SOURCE if base_of(stream) == stream else kinds[stream.rpartition("/")[2]]

    @property
    def is_served(self) -> bool:
        """Whether subscribers can read it."""
        return self not in {Role.FOLLOWER, Role.STANDBY, Role.REPLICA}


class LogKey(NamedTuple):
    """The key of a log at this peer, which may have several logs of one stream: a follower's for
    its own queries, one that begins at another boundary, the output of a task that it runs for the
    owner. Attributes: variant: distinguishes it from the others; has no slash. "": the usual log.
    """

    stream: str
    variant: str = ""

    def __str__(self) -> str:
        """The name of its folder. It has an @, which no object name has."""
        return f"{self.stream}@{self.variant}" if self.variant else self.stream


class StoredStream(Struct, frozen=True):
    """A stream's definition and role, with which a restart opens it. variant: see `LogKey`."""

    entry: StreamEntry
    role: Role
    variant: str = ""


@dataclass(eq=False)
class StreamState:
    """One stream.

    Attributes:
        leader: orders and journals it, if this peer is its leader. variant: distinguishes it from
            other logs of the same stream here; see `LogKey`.
        rate: rows per second into the log.
        moved_at: when its boundary last moved, on trio's clock, seconds.
        closing: closes its files.
        scope: the cancel scope of the task that moves a source's posts into its log. at_rest: set
            when that task has ended. hurry: rung if the next epoch should not wait for its time.
        moved_away: how often another peer has begun to compute the stream.
        altered: how often the stream's definition has changed.
        gate: the boundary up to which consumers may read, microseconds: for example, they must not
            get ahead of a secondary. None: up to the log's boundary.
        suffix: its tentative suffix.
        memory: counts the bytes of tuples that wait for the log, or for the rest of their epoch.
            version: in a follower's log: counts the changes of the stream's inputs. refusal: in a
            follower's log: why the producer refuses this peer the stream; "": it does not.
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
        self.log.upkeep.table_key = self.entry.schema.key if self.entry.stream.table else ()

    @property
    def name(self) -> str:
        return self.entry.stream.name

    @property
    def key(self) -> LogKey:
        return LogKey(self.name, self.variant)

    @property
    def is_at_leader(self) -> bool:
        """Whether this is a source stream whose leader this peer is."""
        return self.role is Role.SOURCE

    @property
    def is_beside_a_source(self) -> bool:
        """Whether this stream has the late tuples, or the revisions, of a source stream."""
        beside = base_of(self.name) != self.name
        return self.role in {Role.LATE, Role.REVISIONS} or (self.role is Role.REPLICA and beside)

    async def released(self, boundary: int) -> None:
        """Return once consumers may read up to that boundary."""
        if self.gate is not None:
            await self.gate.until(lambda opened: opened >= boundary)

    def shut(self, boundary: int) -> None:
        """Stop consumers at that boundary, until `open_gate`."""
        if self.gate is None or self.gate.value == END:
            self.gate = Watched(boundary)

    def open_gate(self, boundary: int) -> None:
        """Let consumers read up to that boundary, if a gate holds them back; the gate never moves
        back."""
        if self.gate is not None and boundary > self.gate.value:
            self.gate.set(boundary)

    def define(self, entry: StreamEntry) -> None:
        """Set a new definition, and wake the waiters on `altered`."""
        self.entry = entry
        if self.role is not Role.FOLLOWER:
            self.log.retention.history_us = entry.stream.history_us
        self.altered.set(self.altered.value + 1)

    def send_away(self) -> None:
        """End the subscriptions of other peers, so that they go to the new worker."""
        self.moved_away.set(self.moved_away.value + 1)

    def measure(self, now: float, before: float) -> None:
        """Note the rows and the boundary since the last call. now, before: the times of this call
        and of the last one, on trio's clock, seconds."""
        rows = self.log.appended_rows
        if rows != self._seen_rows:
            self.rate.add(0.0, before)  # the rate has decayed until then
            self.rate.add(rows - self._seen_rows, now)
            self._seen_rows = rows
        if self.log.boundary != self._seen_boundary:
            self._seen_boundary = self.log.boundary
            self.moved_at = now

    def status(self, now: float) -> StreamStatus:
        """The stream as the monitor shows it. now: on trio's clock, seconds."""
        return StreamStatus(
            name=self.name,
            role=str(self.role),
            rate=self.rate.read(now),
            boundary=self.log.boundary,
            lag_s=0.0 if self.log.boundary == END else now - self.moved_at,
            rows=self.log.files.rows,
            late=self.leader.source.acceptance.late_rows if self.leader else 0,
            bytes=self.log.files.bytes,
            subscribers=self.subscribers,
            state=str(self.suffix.state),
            version=self.version,
            waiting=self.leader.source.waiting.pending.rows if self.leader else 0,
            inserted=self.leader.source.acceptance.inserted_rows if self.leader else 0,
            present=self.leader.source.acceptance.presence.count if self.leader else 0,
        )


def late_entry(entry: StreamEntry) -> StreamEntry:
    """The stream of another's late tuples: the same fields, ordered by arrival."""
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
    """The entries of a source stream, its late tuples and its revisions."""
    beside = (revisions_entry(entry),) if entry.is_revised else ()
    return (entry, late_entry(entry), *beside)
