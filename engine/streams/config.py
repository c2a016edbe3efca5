from __future__ import annotations

import os
from dataclasses import dataclass, field, fields, replace
from typing import Final

from medusa.engine.objects.definitions import Idle, StreamDefinition
from medusa.overlay.errors import InvalidInputError


@dataclass(frozen=True)
class Timing:
    """How often the engine looks, and how long it waits, seconds. Only tests change these.

    Attributes:
        maintenance_s: the time between two looks at retention, leases and rates.
        store_again_s: the wait before a write that found no room in a log is tried again.
        grace_s: how long unacknowledged tuples are kept when an unnamed subscriber's call breaks:
            it may only be on its way to another peer.
        held_s: how long history is kept for a reader that is about to read it.
        follow_again_s: shortest and longest wait before a follower subscribes again; it doubles.
        last_word_s: how long the acknowledgement of a stream's end may take; after that the lease
            runs out. view_again_s: the wait before the copying of a view is tried again, for
            example after the disk was full. announce_again_s: the time between two tries to publish
            something for which others wait.
        mend_s: the time between two looks for lost files.
        mend_again_s: the wait before peers are asked again for a file that none had: one may have
            come back.
        workers_s: the time between two looks at the workers of our tasks.
        worker_call_s: patience with one call to a worker.
        prepare_s: longest that a new worker may take to reach our output: a JVM starts in 10 to 20.
        confirm_s: the time between two calls in which an owner confirms that this peer is its
            worker.
        crowded_s: the time between two looks for tasks of others that crowd our own streams.
        leave_s: how long an owner may refuse to take a task back before its worker drops it.
        trouble_s: how long the start of a query waits for news that it cannot be computed: a
            missing Java, or one that refuses its options, is found earlier, and a person waits so
            long. keep_up_s: the time between two messages to a secondary; a takeover may compute
            that much again. settle_s: the wait after a takeover before a new secondary is
            recruited: first the busier machines serve the waiting consumers. ask_s: silence of a
            living primary after which its secondary asks whether it still has that role: the query
            may be deleted, or have another secondary. sure_s: silence of a primary after which its
            secondary no longer acts as one without asking: there may be a new secondary, and the
            query may be modified. By then the failure detector has mostly decided. parted_s: how
            long a query is not modified after a peer was given up that may have been its secondary:
            more than `sure_s`, because that peer's last message from the primary may be a little
            later.
        save_s: the time between two writes of a secondary's positions: with older ones it computes
            more.
        modified_s: the time between two looks for editions of queries that no peer computes any
            more.
        restored_ask_s: how long a restored peer asks the others for the boundaries of its streams:
            they may be starting, and a peer that joined after the backup is known once it has
            dialled us, within half a minute (`TransportConfig.max_backoff_s`).
        restored_again_s: the time between two tries to ask one of them, and between two looks for
            new ones.
    """

    maintenance_s: float = 1.0
    store_again_s: float = 1.0
    grace_s: float = 10.0
    held_s: float = 30.0
    follow_again_s: tuple[float, float] = (0.1, 5.0)
    last_word_s: float = 5.0
    view_again_s: float = 5.0
    announce_again_s: float = 1.0
    mend_s: float = 1.0
    mend_again_s: float = 30.0
    workers_s: float = 1.0
    worker_call_s: float = 10.0
    prepare_s: float = 60.0
    confirm_s: float = 2.0
    crowded_s: float = 2.0
    leave_s: float = 300.0
    trouble_s: float = 3.0
    keep_up_s: float = 0.5
    settle_s: float = 2.0
    ask_s: float = 5.0
    sure_s: float = 15.0
    parted_s: float = 20.0
    save_s: float = 5.0
    modified_s: float = 1.0
    restored_ask_s: float = 60.0
    restored_again_s: float = 0.5


@dataclass(frozen=True)
class EngineConfig:
    """The engine's settings, with the reason for each default.

    Attributes:
        epoch_s: shortest epoch of a source stream on average, seconds; tasks follow. A Spark job
            costs about 0.1 CPU-seconds whatever its rows, so shorter epochs buy latency with CPU.
        epoch_rows: most input rows a task takes at once: bounds the memory of one job.
        recent_bytes: Arrow bytes of recent epochs that one stream keeps in memory.
        pending_bytes: bytes of posted tuples of one source stream that wait for their boundary.
        disk_bytes: most bytes of all streams; past it posts and followers wait.
        lease_s: how long tuples are kept for a named subscriber that is away, seconds.
        foreign_hold_s: how long tuples are kept for a connected subscriber of another
            participant that acknowledges nothing, seconds; its share of the disk is bounded as well
            (`medusa.engine.streams.store.disk_quota`).
        fsync: whether a post is acknowledged only when it survives a power cut as well.
        capacity_cores: the cores that this peer declares it can spend.
        patience_s: how long another peer that runs a task of ours may let its output stand still
            before the task is taken back, seconds, unless a contract sets another time.
            leader_silence_s: how long the leader of a source stream with replicas may be silent
            before a replica stands for election, seconds; gossip may report its death earlier.
        keep_alive_s: how often the producers of a stream that is read here are asked for its state,
            if it has several, seconds; one that misses four answers is not read any more.
        timing: no setting: medusa.toml does not have it.
    """

    epoch_s: float = 1.0
    epoch_rows: int = 1_000_000
    recent_bytes: int = 24 * 2**20
    pending_bytes: int = 32 * 2**20
    disk_bytes: int = 64 * 2**30
    lease_s: float = 86_400.0
    foreign_hold_s: float = 21_600.0
    fsync: bool = False
    capacity_cores: float = float(os.cpu_count() or 1)
    patience_s: float = 30.0
    leader_silence_s: float = 3.0
    keep_alive_s: float = 0.25
    timing: Timing = field(default=Timing(), metadata={"setting": False})

    def __post_init__(self) -> None:
        for name in (each.name for each in fields(self)):
            value = getattr(self, name)
            if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
                raise InvalidInputError(f"engine.{name} must be positive: {value}")


PENDING_BYTES: Final = 64 * 2**20
"""Tuples that wait for the boundary, per stream, in memory."""
SEGMENT_BYTES: Final = 32 * 2**20
"""Bytes of a journal segment: enough that its snapshot is cheap, few enough that it is deleted
soon."""


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """The settings of a source stream at its leader.

    Attributes:
        slack_us: how far behind the greatest stime a tuple may arrive. idle: see `Idle`.
        lateness_us, idle_timeout_us: see `StreamDefinition`.
        definition: the definition of the stream, which may be altered; None for a stream of late
            tuples. durable: whether acknowledged posts are synced to the disk, and survive a loss
            of power. replicated: whether other peers have the same journal; see
            `medusa.engine.streams.source.replica`.
    """

    slack_us: int = 0
    idle: Idle = Idle.EXPLICIT
    durable: bool = False
    pending_bytes: int = PENDING_BYTES
    segment_bytes: int = SEGMENT_BYTES
    replicated: bool = False
    definition: StreamDefinition | None = None
    lateness_us: int = 0
    idle_timeout_us: int = 0

    def of(self, definition: StreamDefinition) -> SourceConfig:
        """These settings, with the values that the stream's definition sets."""
        return replace(
            self,
            slack_us=definition.slack_us,
            idle=definition.idle,
            replicated=definition.k_safety > 0,
            definition=definition,
            lateness_us=definition.lateness_us,
            idle_timeout_us=definition.idle_timeout_us,
        )
