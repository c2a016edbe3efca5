"""Draws availabilities that queries may ask for."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from medusa.engine.objects.availability import Availability, Mode, Recovery

PEER = "0123456789abcdef" * 2 + "01234567"
MICROSECONDS = st.integers(100_000, 86_400_000_000)


@st.composite
def availabilities(draw: st.DrawFn) -> Availability:
    """Draw any availability that a query of today's operators may ask for."""
    mode = draw(st.sampled_from(Mode))
    if mode is Mode.NONE:
        return Availability()
    recovery = Recovery.GAP if mode is Mode.AMNESIA else draw(st.sampled_from(Recovery))
    bound = draw(st.just(0) | MICROSECONDS)
    found = Availability(mode, recovery, bound / 1e6, secondary=draw(st.sampled_from(["", PEER])))
    if mode is not Mode.PASSIVE_STANDBY:
        return found
    most = min(bound or 3_600_000_000, 3_600_000_000)
    checkpoint = draw(st.integers(50_000, most))
    return msgspec.structs.replace(found, checkpoint_s=checkpoint / 1e6)
