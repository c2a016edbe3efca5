"""Parts of Medusa that this installation does not have."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, requires
from typing import Final

DISTRIBUTION: Final = "medusa-federation"
ORDER: Final = ("peer", "testnet")
"""The extras, from the smaller to the larger."""


def say_missing(error: ModuleNotFoundError) -> int:
    """Say in one line which extra has the missing module; gives the exit code.

    Raises:
        ModuleNotFoundError: no extra has it: it is a bug.
    """
    text = _how_to_install(error)
    if not text:
        raise error
    sys.stderr.write(f"medusa: {text}\n")
    return 1


def _how_to_install(error: ModuleNotFoundError) -> str:
    """Say which extra has the missing module; "" if none has it, so that the error is a bug."""
    missing = (error.name or "").partition(".")[0].replace("_", "-")
    try:
        wanted = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return ""
    for extra in ORDER:
        of_extra = rf"{re.escape(missing)}\b(?!-).*\bextra\s*==\s*['\"]{extra}['\"]"
        if missing and any(re.match(of_extra, each) for each in wanted):
            return f"{missing} is not installed: pip install '{DISTRIBUTION}[{extra}]'"
    return ""
