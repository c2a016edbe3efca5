"""The engine's settings, with the reason for each default."""

from __future__ import annotations

import os
from dataclasses import dataclass

from overlay.errors import InvalidInputError


@dataclass(frozen=True)
class EngineConfig:
    """
    Attributes:
        epoch_s: shortest epoch of a source stream on average, seconds; tasks follow. A Spark job
            costs about 0.1 CPU-seconds whatever its rows, so shorter epochs buy latency with CPU.
        epoch_rows: most input rows a task takes at once: bounds the memory of one job.
        recent_bytes: Arrow bytes of recent epochs that one stream keeps in memory.
        pending_bytes: bytes of posted tuples of one source stream that wait for their boundary.
        disk_bytes: most bytes of all streams; past it posts and mirrors wait.
        lease_s: how long a named subscriber that went away is waited for, seconds.
        foreign_hold_s: and how long one of another participant that acknowledges nothing, though it
            is here, seconds; what it may keep of the disk is bounded as well
            (`engine.streams.foreign`).
        fsync: whether a post is acknowledged only when it survives a power cut as well.
        capacity_cores: what this peer declares it can spend, in cores.
        patience_s: how long another peer that runs a task of ours may let its output stand still
            before the task is taken home, seconds, unless a contract says another time.
        home_silence_s: how long nothing may be heard of the home of a source stream with replicas
            before one of them stands for its place, seconds; gossip may tell it earlier.
        keep_alive_s: how often the producers of a stream that is read here are asked how they are,
            where it has several, seconds; one that misses four answers is not read any more.
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
    home_silence_s: float = 3.0
    keep_alive_s: float = 0.25

    def __post_init__(self) -> None:
        for name in (
            "epoch_s",
            "epoch_rows",
            "recent_bytes",
            "pending_bytes",
            "disk_bytes",
            "lease_s",
            "foreign_hold_s",
            "capacity_cores",
            "patience_s",
            "home_silence_s",
            "keep_alive_s",
        ):
            if getattr(self, name) <= 0:
                raise InvalidInputError(f"engine.{name} must be positive: {getattr(self, name)}")
