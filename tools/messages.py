"""Calls between the commands and the daemon of one home, beside the API of engine/messages.py."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

ADMIT: Final = "admit"


class Admit(Struct, frozen=True):
    """Membership statements made at this home: check them, keep them, spread them.

    Attributes:
        statements: signed admissions or revocations, as overlay.membership encodes them.
    """

    statements: tuple[bytes, ...]


class Admitted(Struct, frozen=True):
    """What was new in them, in words."""

    news: tuple[str, ...]
