"""What must be mended is told where the peer was started."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from tools.daemon.peer import LOOK_S, telling


async def test_each_warning_is_told_when_it_begins_to_hold(autojump_clock: MockClock) -> None:
    holds: list[str] = []
    told: list[str] = []
    async with telling(lambda: tuple(holds), told.append):
        for now, expected in [
            ([], []),
            (["refused"], ["refused"]),
            (["refused", "ends"], ["refused", "ends"]),
            (["ends"], ["refused", "ends"]),
            (["refused", "ends"], ["refused", "ends", "refused"]),
        ]:
            holds[:] = now
            await trio.sleep(2 * LOOK_S)
            assert told == expected
