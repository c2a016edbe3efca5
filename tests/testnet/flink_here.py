"""Whether tests can run Flink here."""

from __future__ import annotations

import os

from medusa.overlay.errors import InvalidInputError, UnavailableError
from medusa.testnet.kit.environments import ENVIRONMENTS
from medusa.testnet.nexmark.flink.run import find_flink


def flink_is_missing() -> str:
    """Return the reason why Flink cannot run here; empty: it can run."""
    try:
        find_flink({**os.environ, ENVIRONMENTS: "0"})
    except (UnavailableError, InvalidInputError) as error:
        return str(error)
    return ""
