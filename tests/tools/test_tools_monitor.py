"""The monitor's loop: draws what the peer says, and goes on when it does not answer."""

from __future__ import annotations

import io

import trio
from rich.console import Console
from rich.live import Live

from engine.messages import PeerStatus, Snapshot
from overlay.errors import UnavailableError
from tools import monitor


class _Client:
    """Answers, is away once, answers again."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    async def status(self) -> Snapshot:
        self.asked.append(trio.current_time())
        if len(self.asked) == 2:
            raise UnavailableError("gone for now")
        peer = PeerStatus("mit.edu", "ab" * 20, "127.0.0.1:1", "running")
        return Snapshot(float(len(self.asked)), "ab" * 20, "fed", (peer,))


async def test_it_draws_at_every_interval(autojump_clock: trio.testing.MockClock) -> None:
    client, file = _Client(), io.StringIO()
    console = Console(file=file, force_terminal=True, width=80, height=24, color_system=None)
    with Live(console=console, auto_refresh=False, screen=True) as live:
        with trio.move_on_after(2.5):
            await monitor.show(client, live, console, 1.0)  # type: ignore[arg-type]
    drawn = file.getvalue()
    assert [at - client.asked[0] for at in client.asked] == [0.0, 1.0, 2.0]
    assert "00:00:01 UTC" in drawn
    assert "no answer: gone for now" in drawn
    assert "00:00:03 UTC" in drawn
