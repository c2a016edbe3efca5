"""The terminal where the peer was started shows what a person must mend."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from medusa.overlay.troubles import Reason, Trouble, Troubles
from medusa.tools.daemon.peer import LOOK_S, reporting


async def test_each_trouble_is_reported_when_it_begins(autojump_clock: MockClock) -> None:
    holds: list[str] = []
    told: list[str] = []
    troubles = Troubles(trio.current_time)
    # the figures change, but the trouble is the same
    troubles.add(
        lambda: [Trouble(Reason.REFUSED, thing, f"at {trio.current_time()}") for thing in holds]
    )
    async with reporting(troubles, lambda text: told.append(text.split()[0])):
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
