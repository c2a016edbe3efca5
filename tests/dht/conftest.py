"""A network in memory for the catalogs of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from dht_network import Network, World, open_network
from trio.testing import MockClock


@pytest.fixture
async def network() -> AsyncIterator[Network]:
    async with open_network() as network:
        yield network


@pytest.fixture
async def world(tmp_path: Path, network: Network, autojump_clock: MockClock) -> World:
    return World(network, tmp_path)
