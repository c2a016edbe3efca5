"""The monitor's loop draws the peer's status, and continues when the peer does not answer."""

from __future__ import annotations

import io
import json
from pathlib import Path

import msgspec
import pytest
import trio
from rich.console import Console
from rich.live import Live
from tools_fake_peer import fake_peer_in_thread

from medusa.engine.replication.records.status import PeerStatus, Snapshot
from medusa.overlay.errors import UnavailableError
from medusa.tools.commands.command_line import json_text
from medusa.tools.home.messages import ContractStatus, MarketStatus
from medusa.tools.monitor import watch as monitor

pytestmark = pytest.mark.usefixtures("autojump_clock")


class _Client:
    """A client that answers, is away once, and answers again."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.market: MarketStatus | None = None

    async def status(self) -> Snapshot:
        self.asked.append(trio.current_time())
        if len(self.asked) == 2:
            raise UnavailableError("gone for now")
        peer = PeerStatus("mit.edu", "ab" * 20, "127.0.0.1:1", "running")
        return Snapshot(float(len(self.asked)), "ab" * 20, "fed", (peer,))

    async def market_status(self) -> MarketStatus | None:
        return self.market


async def test_the_monitor_draws_at_every_interval() -> None:
    client, file = _Client(), io.StringIO()
    console = Console(file=file, force_terminal=True, width=80, height=24, color_system=None)
    with Live(console=console, auto_refresh=False, screen=True) as live:
        with trio.move_on_after(2.5):
            await monitor.Monitor(client, live, console, 1.0).run()
    drawn = file.getvalue()
    assert [at - client.asked[0] for at in client.asked] == [0.0, 1.0, 2.0]
    assert "00:00:01 UTC" in drawn
    assert "no answer: gone for now" in drawn
    assert "00:00:03 UTC" in drawn


async def test_the_monitor_draws_the_market_of_a_peer_that_has_one() -> None:
    client, file = _Client(), io.StringIO()
    client.market = MarketStatus(contracts=(ContractStatus("utah.edu", "ab" * 16),))
    console = Console(file=file, force_terminal=True, width=80, height=24, color_system=None)
    with Live(console=console, auto_refresh=False, screen=True) as live:
        with trio.move_on_after(0.5):
            await monitor.Monitor(client, live, console, 1.0).run()
    assert "utah.edu" in file.getvalue()
    assert "in force" in file.getvalue()


def test_json_has_the_market_where_there_is_one(tmp_path: Path) -> None:
    with fake_peer_in_thread(tmp_path):
        assert "market" not in json.loads(json_text(monitor.snapshot(str(tmp_path))))


def test_json_of_a_market(tmp_path: Path) -> None:
    market = MarketStatus(capacity=80.0, marginal_cost=None)
    with fake_peer_in_thread(tmp_path, market):
        text = json_text(monitor.snapshot(str(tmp_path)))
    assert json.loads(text)["federation"] == "fed"
    assert msgspec.convert(json.loads(text)["market"], MarketStatus) == market
    assert msgspec.json.decode(text, type=Snapshot).by == "ab" * 20, "still a snapshot"
