"""The number of examples that a costly property test tries."""

from __future__ import annotations

from hypothesis import settings


def examples(few: int, *, soak: int) -> int:
    """Return the number of examples. few: the number in `make test`; soak: the number in `make
    soak`, which looks for new examples."""
    return soak if settings.get_current_profile_name() == "soak" else few
