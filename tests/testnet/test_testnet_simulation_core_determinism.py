"""All outside input of the code comes from the seed; a kill leaves only synced data on a disk."""

from __future__ import annotations

import os
import random
import secrets
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from medusa.overlay.events import wall_clock
from medusa.overlay.identity import Identity, Root
from medusa.testnet.simulation.determinism import deterministic
from medusa.testnet.simulation.disk import Disk
from medusa.testnet.virtual.clock import VirtualTime
from medusa.testnet.virtual.hosts import EPOCH_S, Machine, Process, inside


def learned(seed: int) -> list[object]:
    """Return everything on which a program could depend."""
    found: list[object] = []
    virtual = VirtualTime()

    async def count(number: int) -> None:
        for _ in range(3):
            await trio.lowlevel.checkpoint()
            found.append(number)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(count, number)
        root = Root.create("mit.edu", time.time())
        found.append(Identity.issue(root, time.time()).certificate)
        with tempfile.TemporaryDirectory() as folder:
            found.append(Path(folder).name)
        await trio.sleep(1)
        found.extend([time.time(), time.monotonic(), wall_clock(), trio.current_time()])

    with deterministic(seed, virtual, Disk(random.Random(seed))):
        found += [os.urandom(8), secrets.token_bytes(8), secrets.randbelow(10**9)]
        found += [random.SystemRandom().random(), random.random()]
        trio.run(main, clock=virtual.clock)
    return found


def test_everything_follows_from_the_seed() -> None:
    assert learned(1) == learned(1)
    assert learned(1)[:5] != learned(2)[:5]


def test_a_simulation_restores_all_that_it_replaced() -> None:
    before = (time.time, os.urandom, os.fsync, os.listdir, trio.to_thread.run_sync, Root.create)
    learned(1)
    after = (time.time, os.urandom, os.fsync, os.listdir, trio.to_thread.run_sync, Root.create)
    assert before == after
    assert os.urandom(16) != os.urandom(16)


def run(main: Callable[[VirtualTime], Awaitable[None]]) -> None:
    virtual = VirtualTime()
    with deterministic(0, virtual, Disk(random.Random(0))):
        trio.run(main, virtual, clock=virtual.clock)


def test_a_thread_of_before_sleeps_on_and_the_simulation_never_does() -> None:
    woken = []
    begin = threading.Event()

    def sleep() -> None:
        begin.wait()
        time.sleep(0.01)
        woken.append(True)

    thread = threading.Thread(target=sleep)
    thread.start()
    with deterministic(0, VirtualTime(), Disk(random.Random(0))):
        with pytest.raises(AssertionError, match="stops the whole simulation"):
            time.sleep(0.01)
        begin.set()
        thread.join()
    assert woken


def test_each_process_reads_its_own_machines_clock() -> None:
    async def main(virtual: VirtualTime) -> None:
        fast = Machine("10.0.0.1")
        fast.clock.set(virtual.elapsed, offset_s=5.0, drift=0.1)
        await trio.sleep(10)
        assert time.time() == EPOCH_S + 10
        with inside(Process(fast, "fast")):
            assert time.time() == pytest.approx(EPOCH_S + 5 + 11)
            before = time.monotonic()
            fast.clock.set(virtual.elapsed, offset_s=-100.0, drift=0.0)
            # a step of the wall clock does not change the monotonic clock
            assert time.monotonic() == before

    run(main)


def test_a_thread_takes_virtual_time_and_others_go_on_meanwhile() -> None:
    async def main(_virtual: VirtualTime) -> None:
        process = Process(Machine("10.0.0.1"), "slow", disk_s=1.0)
        start = trio.current_time()
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await trio.sleep(0.01)
                ticks += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(tick)
            with inside(process):
                for number in range(20):
                    assert await trio.to_thread.run_sync(lambda n=number: n * 2) == number * 2
            nursery.cancel_scope.cancel()
        assert 5 < trio.current_time() - start < 60
        assert ticks > 100

    run(main)


def test_a_job_under_way_is_not_cancelled_unless_it_may_be_abandoned() -> None:
    async def main(_virtual: VirtualTime) -> None:
        done: list[str] = []
        with inside(Process(Machine("10.0.0.1"), "slow", disk_s=100.0)):
            with trio.move_on_after(1e-6):
                await trio.to_thread.run_sync(done.append, "kept")
            with trio.move_on_after(1e-6):
                await trio.to_thread.run_sync(done.append, "left", abandon_on_cancel=True)
        assert done == ["kept"]

    run(main)


def test_a_kill_leaves_what_was_written_and_a_power_cut_what_was_synced(tmp_path: Path) -> None:
    virtual, disk = VirtualTime(), Disk(random.Random(0))
    home = tmp_path / "home"
    (home / "log").mkdir(parents=True)
    with deterministic(0, virtual, disk):
        with (home / "journal").open("wb", buffering=0) as journal:
            journal.write(b"s" * 100)
            os.fsync(journal.fileno())
            journal.write(b"u" * 100)
        (home / "log" / "1.parquet").write_bytes(b"p" * 100)
        (home / "x.sqlite").write_bytes(b"q" * 100)
        disk.snapshot(home, tmp_path / "killed", power=False)
        lengths = set()
        for number in range(20):
            copy = tmp_path / f"cut{number}"
            disk.snapshot(home, copy, power=True)
            assert (copy / "journal").read_bytes()[:100] == b"s" * 100
            assert (copy / "x.sqlite").stat().st_size == 100
            lengths.add((copy / "journal").stat().st_size)
            assert (copy / "log" / "1.parquet").stat().st_size <= 100
    assert (tmp_path / "killed" / "journal").stat().st_size == 200
    assert len(lengths) > 5
    assert min(lengths) >= 100
    assert (home / "log" / "1.parquet").stat().st_size == 100


def test_a_copy_does_not_change_with_what_a_dying_task_still_does(tmp_path: Path) -> None:
    disk = Disk(random.Random(0))
    home = tmp_path / "home"
    home.mkdir()
    (home / "state").write_text("before")
    (home / "1.parquet").write_text("epoch")
    disk.snapshot(home, tmp_path / "copy", power=False)
    (home / "state").write_text("after")
    (home / "1.parquet").unlink()
    assert (tmp_path / "copy" / "state").read_text() == "before"
    assert (tmp_path / "copy" / "1.parquet").read_text() == "epoch"


MANY = 50


async def wait_for_ever(aborted: list[int], number: int) -> None:
    def abort(_: object) -> trio.lowlevel.Abort:
        aborted.append(number)
        return trio.lowlevel.Abort.SUCCEEDED

    await trio.lowlevel.wait_task_rescheduled(abort)


def test_tasks_of_a_scope_are_cancelled_in_the_order_of_their_making() -> None:
    aborted: list[int] = []

    async def main(_: VirtualTime) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(MANY):
                nursery.start_soon(wait_for_ever, aborted, number)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()

    run(main)
    assert aborted == list(range(MANY))


def test_deadlines_of_one_moment_pass_in_the_order_of_their_making() -> None:
    entered: list[int] = []
    aborted: list[int] = []

    async def patient(number: int) -> None:
        with trio.move_on_after(1):
            entered.append(number)
            await wait_for_ever(aborted, number)

    async def main(_: VirtualTime) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(MANY):
                nursery.start_soon(patient, number)

    run(main)
    assert entered != sorted(entered)
    assert aborted == entered
