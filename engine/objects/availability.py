"""High availability of a query: modes, types of recovery, and the bound on its results' delay.

Modes and recovery types are those of Hwang et al., High-Availability Algorithms for Distributed
Stream Processing (Brown CS-04-05, ICDE 2005).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct

from medusa.overlay.errors import InvalidInputError

DEFAULT_CHECKPOINT_S: Final = 1.0
"""Seconds between two checkpoints of a passive standby: as long as an epoch."""


class Mode(StrEnum):
    """The mode of a query's availability: the state that its secondary keeps."""

    NONE = "none"
    """There is no secondary: the query waits for its peer."""
    AMNESIA = "amnesia"
    """The secondary keeps the query's definition only: open windows are lost."""
    UPSTREAM_BACKUP = "upstream_backup"
    """The secondary also keeps the position that the query's consumers have reached. The producers
    of the inputs keep the tuples that the query needs from there on."""
    PASSIVE_STANDBY = "passive_standby"
    """The secondary also keeps a copy of inputs and outputs, as of the last checkpoint."""
    ACTIVE_STANDBY = "active_standby"
    """The secondary also keeps the outputs, which it computes itself."""


class Recovery(StrEnum):
    """The effects of a failover that consumers may notice, the weakest promise first."""

    GAP = "gap"
    """Tuples may be missing."""
    ROLLBACK = "rollback"
    """No tuple is missing; some may come twice."""
    PRECISE = "precise"
    """Consumers get the same tuples as without a failure."""


class Availability(Struct, frozen=True, omit_defaults=True):
    """A query's mode, its recovery, and how long its results may wait.

    Attributes:
        bound_s: how long results may stand still, or wait for a missing input, before there are
            tentative ones, seconds. 0: without limit.
        checkpoint_s: the time between two checkpoints of a passive standby, seconds.
        secondary: id (hex) of the peer that takes over; "": the primary chooses one.
    """

    mode: Mode = Mode.NONE
    recovery: Recovery = Recovery.GAP
    bound_s: float = 0.0
    checkpoint_s: float = DEFAULT_CHECKPOINT_S
    secondary: str = ""


MODE_WORDS: Final = {
    **{mode.value: mode for mode in Mode},
    "upstream": Mode.UPSTREAM_BACKUP,
    "passive": Mode.PASSIVE_STANDBY,
    "active": Mode.ACTIVE_STANDBY,
}
"""The words for modes: ours, and those of Borealis' configurations."""


class AvailabilityRequest(Struct, frozen=True):
    """The parts of an `Availability` that a request names; null: not named.

    `medusa.engine.language.classes.applied` completes them.

    Attributes:
        bound_s, checkpoint_s: seconds.
        secondary: peer id (hex).
    """

    mode: Mode | None = None
    recovery: Recovery | None = None
    bound_s: float | None = None
    checkpoint_s: float | None = None
    secondary: str | None = None


def requested(
    ha: str | None,
    recovery: str | None,
    bound_us: int | None,
    checkpoint_us: int | None,
    secondary: str | None,
) -> AvailabilityRequest:
    """The request of a text, in its words. Raises: InvalidInputError: a word is none of ours."""
    return AvailabilityRequest(
        None if ha is None else parse_mode(ha),
        None if recovery is None else parse_recovery(recovery),
        None if bound_us is None else bound_us / 1e6,
        None if checkpoint_us is None else checkpoint_us / 1e6,
        secondary,
    )


def parse_mode(text: str) -> Mode:
    """The mode that a word names. Raises: InvalidInputError."""
    if text not in MODE_WORDS:
        raise InvalidInputError(f"ha is {', '.join(Mode)}, not {text[:40]!a}")
    return MODE_WORDS[text]


def parse_recovery(text: str) -> Recovery:
    """The type of recovery that a word names. Raises: InvalidInputError."""
    if text not in set(Recovery):
        raise InvalidInputError(f"recovery is {', '.join(Recovery)}, not {text[:40]!a}")
    return Recovery(text)
