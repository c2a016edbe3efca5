"""The room that streams may take: a person is told before it is full."""

from __future__ import annotations

import pytest
import trio

from engine.streams.disk_quota import DiskQuota
from overlay.errors import StorageFullError
from overlay.events import Events


class Disk:
    """spare: what goes when room is made."""

    taken = 0
    spare = 0

    def make(self) -> None:
        self.taken -= self.spare
        self.spare = 0


def quota(disk: Disk, events: Events) -> DiskQuota:
    return DiskQuota(100, lambda: disk.taken, events, disk.make)


def test_a_person_is_told_once_and_again_after_it_was_better() -> None:
    disk, events = Disk(), Events()
    made = quota(disk, events)
    told = []
    for disk.taken in (10, 79, 80, 95, 75, 85, 60, 81):
        before = len(events.recent())
        made.look()
        told.append(len(events.recent()) > before)
    assert told == [False, False, True, False, False, False, False, True]
    assert "80% of engine.disk_bytes" in events.recent()[0].text


def test_what_may_go_goes_before_anybody_is_refused() -> None:
    disk = Disk()
    made = quota(disk, Events())
    disk.taken, disk.spare = 110, 10
    made.check("s")
    assert disk.taken == 100
    disk.taken, disk.spare = 110, 5
    with pytest.raises(StorageFullError, match="hold 105 bytes"):
        made.check("s")


async def test_who_waits_goes_on_when_there_is_room(autojump_clock: trio.testing.MockClock) -> None:
    disk = Disk()
    made = quota(disk, Events())
    disk.taken = 101
    with pytest.raises(StorageFullError, match=r"s: .* hold 101 bytes, 100 are allowed"):
        made.check("s")
    went_on = trio.Event()

    async def wait() -> None:
        await made.wait()
        went_on.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        made.look()
        await trio.testing.wait_all_tasks_blocked()
        assert not went_on.is_set()
        disk.taken = 100
        made.look()
        await went_on.wait()
    made.check("s")
