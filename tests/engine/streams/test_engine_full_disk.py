"""A full disk: a person is warned before, posters receive the reason, the peer continues to serve,
the intake stops, and all of it recovers."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import trio
from engine_peers import Cluster, make_stream, open_cluster, received, rows, to_the_end, until
from engine_small_disk import fill

from medusa.engine.streams.config import Timing
from medusa.engine.streams.store.disk_quota import FULL_BYTES, DiskQuota, free_bytes
from medusa.engine.streams.store.stream_state import LogKey
from medusa.overlay.errors import StorageFullError
from medusa.overlay.events import Events
from medusa.overlay.troubles import Reason


async def test_a_full_disk(small_disk: Path) -> None:
    async with open_cluster(small_disk, timing=Timing(maintenance_s=0.02)) as cluster:
        mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
        async with mit.client(producer="p") as client, utah.client() as other:
            stream = await make_stream(client, mit, "s", writers=("*",))
            await client.post_event(stream, rows([(1, 1)]), boundary=1)
            reader = other.subscribe(stream, subscriber="me")
            assert await received(reader, 1) == [(1, 1)]
            filler = fill(small_disk)
            for where in (mit, utah):
                async with where.client(patience_s=0.2) as impatient:
                    await impatient.post_event(stream, rows([(n, n) for n in range(2, 5_000)]))
                    with pytest.raises(StorageFullError):
                        await impatient.flush()
            with pytest.raises(StorageFullError):
                await make_stream(client, mit, "t")
            await client.post_event(stream, rows([(n, n) for n in range(2, 6_000)]))
            newcomer = other.subscribe(stream, subscriber="newcomer")
            assert await received(newcomer, 1) == [(1, 1)]

            async def both_run() -> bool:
                states = [peer.state for peer in (await client.status()).peers]
                return states == ["running", "running"]

            # both peers live on: they maintain their streams, exchange statements, and renew their
            # records
            maintained = trio.current_time() + 1.5
            while trio.current_time() < maintained:
                # a peer with a slow status counts as unreachable for a moment
                await until(both_run)
                await other.lookup_object(stream)
                await trio.sleep(0.1)
            assert mit.state(stream).log.boundary == 1
            assert any("could not save" in e.text for e in mit.up.engine.overlay.events.recent())
            os.unlink(filler)
            await client.flush()
            await client.post_event(stream, None, end=True)
            assert await to_the_end(reader) == [(n, n) for n in range(2, 6_000)]
            await make_stream(client, mit, "t")
            leases = mit.home.data / "leases.json"
            await until(lambda: b"newcomer" in leases.read_bytes())


AGAIN_S = 0.05


@pytest.mark.cluster(timing=Timing(store_again_s=AGAIN_S))
async def test_a_removed_folder_is_reported_as_removed(cluster: Cluster) -> None:
    mit = await cluster.settle("mit.edu")
    async with mit.client() as client:
        stream = await make_stream(client, mit, "s")
        await client.post_event(stream, rows([(1, 1)]), boundary=1)
        await client.flush()
        await until(lambda: mit.state("s").log.boundary == 1)
        folder = mit.up.engine.store.folders.of(LogKey(stream)) / "log"
        shutil.rmtree(folder)
        await client.post_event(stream, rows([(2, 2)]), boundary=2)
        await client.flush()
        await until(lambda: bool(mit.errors()))
        await trio.sleep(5 * AGAIN_S)
    assert mit.errors() == [
        f"stands still with {stream}, and its posts wait: {folder}: there is no such "
        "folder: make it, or put it back"
    ]
    await cluster.restart(mit)
    await until(lambda: mit.state("s").log.boundary == 2)


class Disk:
    """A disk. spare: bytes that can be freed. left: bytes that other programs leave."""

    taken = 0
    spare = 0
    left = FULL_BYTES

    def make(self) -> None:
        self.taken -= self.spare
        self.spare = 0


def quota(disk: Disk, events: Events) -> DiskQuota:
    return DiskQuota(
        Path("/data"), 100, lambda: disk.taken, events, disk.make, free=lambda _: disk.left
    )


def test_a_trouble_is_reported_once_and_again_after_it_had_passed() -> None:
    disk, events = Disk(), Events()
    made = quota(disk, events)
    told = []
    for disk.taken in (10, 79, 80, 95, 75, 85, 60, 81):
        before = len(events.recent())
        made.look()
        told.append(len(events.recent()) > before)
    assert told == [False, False, True, False, False, False, False, True]
    assert "80% of engine.disk_bytes" in events.recent()[0].text


def test_a_used_up_quota_and_a_nearly_used_up_one_are_troubles() -> None:
    """The trouble has the same hysteresis as the warning in the log; a full disk has precedence."""
    disk = Disk()
    made = quota(disk, Events())
    held = "the streams of this peer hold {} bytes, and 100 are allowed"

    def told() -> list[tuple[Reason, str]]:
        made.look()
        found = list(made.troubles())
        assert all(each.thing == "the disk of /data" for each in found)
        return [(each.reason, each.what) for each in found]

    nearly, full = Reason.DISK_NEARLY_FULL, Reason.DISK_FULL
    for disk.taken, disk.left, expected in (
        (79, FULL_BYTES, []),
        (80, FULL_BYTES, [(nearly, f"fills: {held.format(80)}")]),
        (100, FULL_BYTES, [(nearly, f"fills: {held.format(100)}")]),
        (100, FULL_BYTES - 1, [(full, f"is full: {FULL_BYTES - 1} bytes are free")]),
        (101, FULL_BYTES, [(full, f"is used up: {held.format(101)}")]),
        (101, 0, [(full, f"is used up: {held.format(101)}")]),
        (70, FULL_BYTES, [(nearly, f"fills: {held.format(70)}")]),
        (69, FULL_BYTES, []),
        (75, FULL_BYTES, []),
        (10, 0, [(full, "is full: 0 bytes are free")]),
    ):
        assert told() == expected, (disk.taken, disk.left)


def test_a_disk_that_cannot_be_asked_is_not_full(tmp_path: Path) -> None:
    assert free_bytes(tmp_path) == shutil.disk_usage(tmp_path).free
    assert free_bytes(tmp_path / "none") == FULL_BYTES


def test_unneeded_tuples_are_dropped_before_a_post_is_refused() -> None:
    disk = Disk()
    made = quota(disk, Events())
    disk.taken, disk.spare = 110, 10
    made.check("s")
    assert disk.taken == 100
    disk.taken, disk.spare = 110, 5
    with pytest.raises(StorageFullError, match="hold 105 bytes"):
        made.check("s")


async def test_a_waiting_post_goes_on_when_there_is_room(
    autojump_clock: trio.testing.MockClock,
) -> None:
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
