"""The times of posts during a disturbance, and after it."""

from __future__ import annotations

import pyarrow as pa
import pytest
import trio

from medusa.testnet.kit.traffic import Part, Timing

EMPTY = pa.table({})


@pytest.mark.parametrize(("hurry", "ended"), [(False, 300.0), (True, 40.0)])
async def test_a_hurry_makes_posts_after_the_disturbance_due_at_once(
    hurry: bool, ended: float, autojump_clock: trio.testing.MockClock
) -> None:
    timing = Timing(trio.current_time(), hurry=hurry)
    times = []

    async def disturb() -> None:
        await trio.sleep(40.0)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(timing.run, disturb)
        for due in (0.0, 10.0, 100.0, 300.0):
            part = Part(EMPTY, due)
            await timing.until(part)
            assert timing.seconds_until(part) == 0.0
            times.append(trio.current_time() - timing.started)
    assert times[:2] == pytest.approx([0.0, 10.0]), "paced as long as it lasts"
    assert times[-1] == pytest.approx(ended)


async def test_without_a_disturbance_nothing_waits_for_its_end() -> None:
    timing = Timing(trio.current_time())
    await timing.run(None)
    assert timing.disturbed.is_set()
