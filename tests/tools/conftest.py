"""Fixtures of many modules."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tools_fake_peer import FakePeer, open_fake_peer
from tools_market_cluster import Loads, set_up


@pytest.fixture(params=[pytest.param("spark", marks=pytest.mark.spark), "reference"])
def engine(request: pytest.FixtureRequest) -> str:
    """Return the engine that computes a trial: the test runs with each engine."""
    return str(request.param)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Loads:
    """Set the loads of tasks in clusters that are opened from now on, whose markets are quick."""
    return set_up(monkeypatch)


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[FakePeer]:
    async with open_fake_peer(tmp_path) as peer:
        yield peer
