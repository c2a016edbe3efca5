"""The examples that a costly property test tries."""

from __future__ import annotations

from typing import Final

from hypothesis import HealthCheck, settings

LARGE_DATA: Final = [HealthCheck.too_slow, HealthCheck.data_too_large]
"""Hypothesis' health checks that a property over whole networks and their input fails by its
nature."""

ONE_FIXTURE: Final = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
"""The health checks that a property fails by its nature if all its examples share a fixture's
object, such as Spark."""


def examples(few: int, *, soak: int) -> int:
    """Return the number of examples. few: the number in `make test`; soak: the number in `make
    soak`, which looks for new examples."""
    return soak if settings.get_current_profile_name() == "soak" else few
