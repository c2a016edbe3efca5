"""Whether tests can have network namespaces here."""

from __future__ import annotations

import pytest
import trio

from medusa.overlay.errors import UnavailableError
from medusa.testnet.cutting.namespaces import open_namespaces


def skip_without_namespaces() -> None:
    """Skip the test if namespaces are missing, outside of trio: within trio pytest-trio loses the
    reason of a skip."""

    async def try_it() -> None:
        async with open_namespaces():
            pass

    try:
        trio.run(try_it)
    except UnavailableError as error:
        pytest.skip(str(error))
