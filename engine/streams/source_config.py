"""How a source stream is ordered and kept at its home."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.definitions import Idle

PENDING_BYTES: Final = 64 * 2**20
"""Tuples that wait for the boundary, per stream, in memory."""
SEGMENT_BYTES: Final = 32 * 2**20
"""A journal segment: large enough that its snapshot is cheap, small enough to go soon."""


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """
    Attributes:
        slack_us: how far behind the greatest stime a tuple may come. idle: see `Idle`.
        durable: every acknowledged post is on the disk itself, and survives a loss of power.
        replicated: other peers have the same journal; see `ReplicatedSource`.
    """

    slack_us: int = 0
    idle: Idle = Idle.EXPLICIT
    durable: bool = False
    pending_bytes: int = PENDING_BYTES
    segment_bytes: int = SEGMENT_BYTES
    replicated: bool = False
