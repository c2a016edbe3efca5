from __future__ import annotations

from typing import Final

from msgspec import Struct

from engine.objects.availability import Mode, Recovery
from overlay.errors import InvalidInputError

MODE_WORDS: Final = {
    **{mode.value: mode for mode in Mode},
    "upstream": Mode.UPSTREAM_BACKUP,
    "passive": Mode.PASSIVE_STANDBY,
    "active": Mode.ACTIVE_STANDBY,
}
"""The words for modes: ours, and those of Borealis' configurations."""


class AvailabilityRequest(Struct, frozen=True):
    """The given parts of an `Availability`; null: not given.

    `engine.language.classes.applied` completes them.

    Attributes:
        bound_s, checkpoint_s: seconds.
        secondary: peer id (hex).
    """

    mode: Mode | None = None
    recovery: Recovery | None = None
    bound_s: float | None = None
    checkpoint_s: float | None = None
    secondary: str | None = None


def parse_mode(text: str) -> Mode:
    """The mode by its word. Raises: InvalidInputError."""
    if text not in MODE_WORDS:
        raise InvalidInputError(f"ha is {', '.join(Mode)}, not {text[:40]!a}")
    return MODE_WORDS[text]


def parse_recovery(text: str) -> Recovery:
    """The type of recovery by its word. Raises: InvalidInputError."""
    if text not in set(Recovery):
        raise InvalidInputError(f"recovery is {', '.join(Recovery)}, not {text[:40]!a}")
    return Recovery(text)
