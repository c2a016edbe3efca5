"""A network in memory for the catalogs of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from dht_network import World, open_network


# each test names the clock itself: pytest-trio takes no notice of a fixture's fixtures
@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with open_network() as network:
        yield World(network, tmp_path)
