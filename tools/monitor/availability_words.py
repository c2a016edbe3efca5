"""Words for a query's availability."""

from __future__ import annotations

from typing import Final

from medusa.engine.objects.availability import Availability, Mode

MODE_NAMES: Final = {
    Mode.NONE: "none",
    Mode.AMNESIA: "amnesia",
    Mode.UPSTREAM_BACKUP: "upstream",
    Mode.PASSIVE_STANDBY: "passive",
    Mode.ACTIVE_STANDBY: "active",
}
"""Short names for narrow columns."""


def in_words(availability: Availability) -> str:
    """A query's availability in one line for people."""
    if availability.mode is Mode.NONE:
        return "no standby"
    told = [f"{availability.mode}, {availability.recovery} recovery"]
    if availability.bound_s:
        told.append(f"within {availability.bound_s:g} s")
    if availability.mode is Mode.PASSIVE_STANDBY:
        told.append(f"a checkpoint every {availability.checkpoint_s:g} s")
    if availability.secondary:
        told.append(f"secondary {availability.secondary[:8]}")
    return ", ".join(told)
