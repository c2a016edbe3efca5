"""The examples that a costly property test tries."""

from __future__ import annotations

from typing import Final

from hypothesis import HealthCheck, settings

LARGE_DATA: Final = [HealthCheck.too_slow, HealthCheck.data_too_large]
"""Health checks of no use to a property over whole networks and their input."""

ONE_FIXTURE: Final = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
"""Health checks of no use to a property whose examples share what a fixture gives, like Spark."""


def examples(few: int, *, soak: int) -> int:
    """Return the number of examples. few: the number in `make test`; soak: the number in `make
    soak`, which looks for new examples."""
    return soak if settings.get_current_profile_name() == "soak" else few
