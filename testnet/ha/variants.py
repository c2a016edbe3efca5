"""The rows of the table: modes with the recovery that they promise."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from engine.objects.availability import Availability, Mode, Recovery
from overlay.errors import InvalidInputError


class Variant(Struct, frozen=True):
    """A mode, and what consumers may notice of a failover."""

    mode: Mode
    recovery: Recovery

    @property
    def label(self) -> str:
        """What a person reads."""
        if self.mode is Mode.NONE:
            return "none"
        return f"{self.mode.replace('_', ' ')}, {self.recovery}"

    def availability(self, secondary: str) -> Availability:
        """What a query asks for. secondary: peer id (hex)."""
        if self.mode is Mode.NONE:
            return Availability()
        return Availability(self.mode, self.recovery, secondary=secondary)


NONE: Final = Variant(Mode.NONE, Recovery.GAP)
"""Nobody takes over; what the costs of the others are measured against."""

VARIANTS: Final = (
    NONE,
    Variant(Mode.AMNESIA, Recovery.GAP),
    Variant(Mode.UPSTREAM_BACKUP, Recovery.ROLLBACK),
    Variant(Mode.UPSTREAM_BACKUP, Recovery.PRECISE),
    Variant(Mode.PASSIVE_STANDBY, Recovery.ROLLBACK),
    Variant(Mode.PASSIVE_STANDBY, Recovery.PRECISE),
    Variant(Mode.ACTIVE_STANDBY, Recovery.PRECISE),
)

ALL: Final = "all"


def chosen(mode: str, recovery: str | None, *, short: bool = False) -> tuple[Variant, ...]:
    """Those to run: `NONE` first, for the costs of the others are measured against it.

    Args:
        mode: one of `Mode`, or "all". recovery: one of `Recovery`; None: all of the table.
        short: one alone, the last of them.

    Raises:
        InvalidInputError: there is no such variant.
    """
    found = [
        variant
        for variant in VARIANTS
        if mode in {ALL, variant.mode} and recovery in {None, variant.recovery}
    ]
    if not found and mode != ALL and recovery is not None:
        if mode in {Mode.NONE, Mode.AMNESIA}:
            raise InvalidInputError(f"--recovery {recovery}: {mode} promises no more than gap")
        found = [Variant(Mode(mode), Recovery(recovery))]
    return tuple(found[-1:] if short else dict.fromkeys((NONE, *found)))
