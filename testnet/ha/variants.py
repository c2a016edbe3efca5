"""The variants of the demonstration: modes with the recovery that they promise."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from engine.objects.availability import Availability, Mode, Recovery
from overlay.errors import InvalidInputError


class Variant(Struct, frozen=True):
    """A mode, and the recovery that consumers may notice."""

    mode: Mode
    recovery: Recovery

    @property
    def label(self) -> str:
        """Its name for people."""
        if self.mode is Mode.NONE:
            return "none"
        return f"{self.mode.replace('_', ' ')}, {self.recovery}"

    def availability(self, secondary: str) -> Availability:
        """The availability of a query. secondary: peer id (hex)."""
        if self.mode is Mode.NONE:
            return Availability()
        return Availability(self.mode, self.recovery, secondary=secondary)


NONE: Final = Variant(Mode.NONE, Recovery.GAP)
"""No standby: the baseline of the others' costs."""

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
    """The variants to run: `NONE` first, because the others' costs are compared with it.

    Args:
        mode: one of `Mode`, or "all". recovery: one of `Recovery`; None: all of the table.
        short: only one, the last of them.

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
