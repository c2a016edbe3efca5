"""Homes in memory end with their maker; those of living simulations stay."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from medusa.testnet.simulation import simulate as scratch
from medusa.testnet.simulation.simulate import PREFIX, YOUNG_S, scratch_folder, sweep


def aged(folder: Path) -> Path:
    """Give the folder old times."""
    (folder / "peer").mkdir(parents=True)
    before = time.time() - 2 * YOUNG_S
    os.utime(folder, (before, before))
    return folder


def test_the_remains_of_a_killed_process_are_swept(tmp_path: Path) -> None:
    left = aged(tmp_path / f"{PREFIX}left")
    other = aged(tmp_path / "other")
    assert sweep(tmp_path) == [left]
    assert not left.exists()
    assert other.exists()


def test_a_folder_in_use_is_not_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "MEMORY_DISK", tmp_path)
    with scratch_folder() as folder:
        aged(folder)
        assert sweep(tmp_path) == []
        assert folder.exists()
    assert not folder.exists()


def test_a_folder_just_made_is_not_swept(tmp_path: Path) -> None:
    young = tmp_path / f"{PREFIX}young"
    young.mkdir()
    assert sweep(tmp_path) == []
    assert young.exists()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = aged(tmp_path / "target")
    (tmp_path / f"{PREFIX}link").symlink_to(target)
    assert sweep(tmp_path) == []
    assert (target / "peer").exists()
