"""The faults of XML-RPC: a number for each error of Medusa's, and its one line of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from medusa.overlay.errors import MedusaError

NUMBERS: Final[Mapping[str, int]] = {
    "error": 1,
    "invalid_input": 2,
    "decode": 3,
    "not_authorised": 4,
    "untrusted": 5,
    "refused": 6,
    "not_found": 7,
    "withdrawn": 8,
    "conflict": 9,
    "busy": 10,
    "storage": 11,
    "storage_full": 12,
    "unavailable": 13,
    "deadline": 14,
    "broken": 15,
    "closed": 16,
    "sequence_gap": 17,
    "not_retained": 18,
    "stopped": 19,
    "internal": 20,
}
"""The numbers of faults, by the code of an error on the peer's own wire. A number never gets
another meaning."""


def number_of(error: MedusaError) -> int:
    """The fault's number: the error's, or that of the nearest base class that has one."""
    codes = (kind.code for kind in type(error).__mro__ if issubclass(kind, MedusaError))
    return next(NUMBERS[code] for code in codes if code in NUMBERS)
