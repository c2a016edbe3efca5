"""Frozen folders stay for their time and while they are held, and disappear by themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from medusa.overlay.errors import BusyError, NotFoundError, StorageError
from medusa.tools.home import frozen
from medusa.tools.home.folder import Home
from medusa.tools.home.frozen import LOOK_S, FrozenFolders, frozen_folders, held

HOLDER = """
import sys, time
from pathlib import Path
from medusa.tools.home.frozen import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(1000)
"""


def write(folder: Path) -> None:
    folder.mkdir()
    (folder / "file").write_text("content")


async def fill(folder: Path) -> int:
    write(folder)
    return 7


@contextmanager
def holder(folder: Path) -> Iterator[None]:
    """Let another process hold the folder; kill it in the end."""
    program = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield
        process.kill()


@pytest.fixture
async def folders(tmp_path: Path, mock_clock: MockClock) -> AsyncIterator[FrozenFolders]:
    async with frozen_folders(Home(tmp_path)) as made:
        yield made


async def passes(clock: MockClock, seconds: float) -> None:
    """Let time pass, with every check due in it."""
    for _ in range(int(seconds // LOOK_S) + 2):
        clock.jump(LOOK_S)
        await trio.testing.wait_all_tasks_blocked(0.02)


async def test_a_folder_goes_after_its_time(folders: FrozenFolders, mock_clock: MockClock) -> None:
    folder, found = await folders.make(fill, 60.0)
    assert found == 7
    await passes(mock_clock, 40.0)
    assert (folder / "file").exists()
    await passes(mock_clock, 20.0)
    assert not folder.exists()


async def test_a_folder_held_by_a_killed_command_is_removed(
    folders: FrozenFolders, mock_clock: MockClock
) -> None:
    folder, _ = await folders.make(fill, 30.0)
    with holder(folder):
        await passes(mock_clock, 3600.0)
        assert (folder / "file").exists()
    await folders.make(fill, 30.0)  # the next call removes the folder
    assert not folder.exists()
    with pytest.raises(NotFoundError, match="is gone"), held(folder):
        raise AssertionError("there is nothing to hold")


@pytest.mark.parametrize(("limit", "most"), [("MAX_FROZEN", 9), ("MAX_FROZEN_NAMES", 9)])
async def test_there_are_only_so_many(
    folders: FrozenFolders,
    mock_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    most: int,
) -> None:
    monkeypatch.setattr(frozen, limit, most)
    made = [(await folders.make(fill, 60.0))[0] for _ in range(9)]
    with pytest.raises(BusyError, match="9 frozen folders with 9 files are in use"):
        await folders.make(fill, 60.0)
    frozen._remove(made[0])  # removed by the process that asked for it
    await folders.make(fill, 60.0)
    with pytest.raises(BusyError):
        await folders.make(fill, 60.0)
    await passes(mock_clock, 60.0)
    await folders.make(fill, 60.0)


async def test_a_folder_that_could_not_be_filled_goes(
    folders: FrozenFolders, tmp_path: Path
) -> None:
    async def fails(folder: Path) -> None:
        await fill(folder)
        raise StorageError("no room")

    for _ in range(3):
        with pytest.raises(StorageError, match="no room"):
            await folders.make(fails, 60.0)
    assert not os.listdir(tmp_path)
