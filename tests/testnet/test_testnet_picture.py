"""Each command that draws a picture checks before the run whether it can."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import medusa.testnet.kit.picture
from medusa.testnet.command import main

COMMANDS = ("bpm", "detect", "ha", "load", "partition")


def refused(command: str, plot: Path | str) -> str:
    """Return the message of the refusal. The run itself would take longer than the time limit of
    this test."""
    outcome = CliRunner().invoke(main, [command, "--plot", str(plot)])
    assert outcome.exit_code == 2, outcome.output
    assert "Invalid value for '--plot'" in outcome.stderr
    return outcome.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_no_folder(command: str, tmp_path: Path) -> None:
    assert f"{tmp_path / 'no'}: no such folder" in refused(command, tmp_path / "no" / "a.png")


@pytest.mark.parametrize("command", COMMANDS)
def test_no_picture(command: str) -> None:
    assert "a.txt: a picture is a .png, .svg or .pdf file" in refused(command, "a.txt")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_error_without_matplotlib_says_how_to_install_it(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words hold in a checkout and for a wheel; the name of our own package would work in
    neither."""

    def find(name: str) -> object:
        return None if name == "matplotlib" else importlib.util.find_spec(name)

    monkeypatch.setattr(medusa.testnet.kit.picture, "find_spec", find)
    said = refused(command, tmp_path / "a.png")
    assert f"{sys.executable} -m pip install 'matplotlib>=3.8,<4'" in said
