"""Processes that a dead peer leaves are found by its folder, awaited, and ended if need be."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import trio
from deadline import DEADLINE_S

from medusa.testnet.intrusion.kills import Remains, left_by, watch


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def sleeper(argument: str, seconds: float) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, as a peer's JVM is."""
    code = f"import time; time.sleep({seconds})"
    return subprocess.Popen([sys.executable, "-c", code, argument], start_new_session=True)


async def seen(home: Path) -> set[int]:
    return {process.pid for process in await left_by(home)}


async def test_found_by_the_folder_among_the_arguments(
    started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    home = tmp_path / "mit.edu"
    arguments = (f"{home}", f"-Dmedusa.log={home}/logs/spark.log", f"{home}-3", f"{home}-3/lock")
    started += [sleeper(argument, 60.0) for argument in arguments]
    with trio.move_on_after(DEADLINE_S):
        while len(await seen(tmp_path)) < len(arguments):  # noqa: ASYNC110 - other processes
            await trio.sleep(0.01)  # the processes exec
    assert await seen(home) == {process.pid for process in started[:2]}
    assert await seen(tmp_path / "utah.edu") == set()


async def test_processes_that_end_by_themselves_are_timed(
    started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    started.append(sleeper(str(tmp_path), 0.5))
    remains = await watch([psutil.Process(started[0].pid)])
    assert not remains.orphans
    assert 0.0 < remains.longest_s < 30.0
    assert started[0].wait() == 0


async def test_processes_that_do_not_end_are_named_and_killed(
    started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    started.append(sleeper(str(tmp_path), 60.0))
    remains = await watch([psutil.Process(started[0].pid)], limit_s=0.2)
    assert [str(started[0].pid) in orphan for orphan in remains.orphans] == [True]
    assert started[0].wait() == -9


async def test_nothing_left() -> None:
    assert await watch([]) == Remains()


def test_remains_add_up() -> None:
    assert Remains(1.0, ("a",)) | Remains(0.5, ("b",)) == Remains(1.0, ("a", "b"))
