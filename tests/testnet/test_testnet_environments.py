"""Environments of other systems: found, made, or skipped by name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from medusa.overlay.errors import UnavailableError
from medusa.testnet.kit.environments import ENVIRONMENTS, Package, interpreter

MISSING = Package("riverdb", "no_such_module", ("riverdb",), "pip install riverdb")


def test_a_system_that_is_not_installed_is_skipped_by_name(tmp_path: Path) -> None:
    assert interpreter(MISSING, {"XDG_CACHE_HOME": str(tmp_path)}) is None
    assert MISSING.missing == "riverdb is not installed: pip install riverdb"


def test_a_system_runs_in_our_environment_or_in_its_own(tmp_path: Path) -> None:
    assert interpreter(Package("ours", "msgspec"), {}) == Path(sys.executable)
    python = tmp_path / "medusa" / "bench" / "no_such_module" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert interpreter(MISSING, {"XDG_CACHE_HOME": str(tmp_path)}) == python


def test_an_environment_that_cannot_be_made_is_not_left_behind(tmp_path: Path) -> None:
    broken = Package("riverdb", "no_such_module", ("not a requirement",))
    with pytest.raises(UnavailableError, match="cannot install riverdb"):
        interpreter(broken, {"XDG_CACHE_HOME": str(tmp_path), ENVIRONMENTS: "1"})
    assert not list((tmp_path / "medusa" / "bench").iterdir())
