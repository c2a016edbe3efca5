from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from engine.objects.definitions import Idle, StreamDefinition

PENDING_BYTES: Final = 64 * 2**20
"""Tuples that wait for the boundary, per stream, in memory."""
SEGMENT_BYTES: Final = 32 * 2**20
"""A journal segment: large enough that its snapshot is cheap, small enough to go soon."""


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """The settings of a source stream at its leader.

    Attributes:
        slack_us: how far behind the greatest stime a tuple may come. idle: see `Idle`.
        definition: of the stream, which may be altered; None: of late tuples.
        durable: whether acknowledged posts are on the disk itself, and survive a loss of power.
        replicated: other peers have the same journal; see `engine.streams.replica`.
    """

    slack_us: int = 0
    idle: Idle = Idle.EXPLICIT
    durable: bool = False
    pending_bytes: int = PENDING_BYTES
    segment_bytes: int = SEGMENT_BYTES
    replicated: bool = False
    definition: StreamDefinition | None = None

    def of(self, definition: StreamDefinition) -> SourceConfig:
        """The same, for a stream with that definition."""
        return replace(
            self,
            slack_us=definition.slack_us,
            idle=definition.idle,
            replicated=definition.k_safety > 0,
            definition=definition,
        )
