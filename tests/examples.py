"""How many examples a costly property test tries."""

from __future__ import annotations

from hypothesis import settings


def examples(few: int, *, soak: int) -> int:
    """few: in `make test`, soak: in `make soak`, which looks for new ones."""
    return soak if settings.get_current_profile_name() == "soak" else few
