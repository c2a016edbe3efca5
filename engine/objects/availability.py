"""What a query asks of the peers that run it when one of them dies.

Modes and recovery types are those of Hwang et al., High-Availability Algorithms for Distributed
Stream Processing (Brown CS-04-05, ICDE 2005).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct

DEFAULT_CHECKPOINT_S: Final = 1.0
"""Between two checkpoints of a passive standby, seconds: as an epoch."""


class Mode(StrEnum):
    """What the secondary of a query keeps while its primary lives."""

    NONE = "none"
    """There is no secondary: the query waits for its peer."""
    AMNESIA = "amnesia"
    """Its definition: windows that were open are lost."""
    UPSTREAM_BACKUP = "upstream_backup"
    """And the position that its consumers have reached; the producers of its inputs keep what is
    needed to go on from there."""
    PASSIVE_STANDBY = "passive_standby"
    """And a copy of inputs and outputs, as of the last checkpoint."""
    ACTIVE_STANDBY = "active_standby"
    """And the outputs, computed by itself."""


class Recovery(StrEnum):
    """What consumers may notice of a failover, the weakest first."""

    GAP = "gap"
    """Tuples may be missing."""
    ROLLBACK = "rollback"
    """None is missing; some may come twice."""
    PRECISE = "precise"
    """As if nothing had failed."""


class Availability(Struct, frozen=True, omit_defaults=True):
    """What becomes of a query when its peer dies, and how long results may wait.

    Attributes:
        bound_s: how long results may stand still, or wait for an input that is missing, seconds;
            then tentative ones are given. 0: as long as it takes.
        checkpoint_s: between two checkpoints of a passive standby, seconds.
        secondary: id (hex) of the peer that takes over; "": one is chosen.
    """

    mode: Mode = Mode.NONE
    recovery: Recovery = Recovery.GAP
    bound_s: float = 0.0
    checkpoint_s: float = DEFAULT_CHECKPOINT_S
    secondary: str = ""
