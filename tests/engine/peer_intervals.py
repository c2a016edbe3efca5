"""Sets intervals that medusa.toml lacks, by a variable of the environment, in peers that run
`crashing_peer` or `interpreting_peer`."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Final

import msgspec

INTERVALS: Final = "MEDUSA_TEST_INTERVALS"
"""The environment variable with the value of `intervals`."""


def intervals(**sections: object) -> str:
    """Return the variable for the environment of a peer.

    Args:
        sections: for each section of the settings, the fields to replace and their new values:
            `engine={"timing": {"maintenance_s": 0.1}}`.
    """
    return msgspec.json.encode(sections).decode()


def set_intervals() -> None:
    """Let `load_config` apply the intervals of the environment."""
    sections = msgspec.json.decode(os.environ.get(INTERVALS, "{}"))
    if not sections:
        return
    from medusa.tools.home import config

    load = config.load_config
    config.load_config = lambda *args, **options: _replaced(load(*args, **options), sections)


def _replaced(settings: Any, fields: dict[str, Any]) -> Any:
    """Replace fields of a frozen dataclass, and of dataclasses among its fields."""
    return replace(
        settings,
        **{
            name: _replaced(getattr(settings, name), value) if isinstance(value, dict) else value
            for name, value in fields.items()
        },
    )
