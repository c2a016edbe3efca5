"""The high-availability demonstration with real peers: short, and with all its modes."""

from __future__ import annotations

from pathlib import Path

import pytest
from killed_peers import let_crash

from medusa.engine.objects.availability import Mode
from medusa.testnet.ha.chain import VARIANTS, chosen
from medusa.testnet.ha.run import Lengths, Options, run_ha
from medusa.testnet.ha.screen import HaBoard

pytestmark = pytest.mark.process


async def test_all_primaries_killed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is `medusa-testnet ha --short`, but quicker and without Spark."""
    let_crash(tmp_path, monkeypatch, interpreting=True)
    monkeypatch.setattr("medusa.testnet.ha.run.SHORT", Lengths(1.0, 2.0, 3.0, 1.0))
    monkeypatch.setattr("medusa.testnet.ha.chain.RATE", 100)
    await short_form()


async def short_form() -> None:
    result = await run_ha(Options(chosen("all", None, short=True), short=True), HaBoard())
    (mode,) = result.modes
    assert mode.mode == Mode.ACTIVE_STANDBY
    assert (mode.lost, mode.duplicated, mode.wrong, mode.failure) == (0, 0, 0, "")
    assert mode.expected > 400
    assert mode.recovery_ms is not None
    assert (mode.returned, mode.secured) == (4, 4)
    assert mode.added_delay_ms is None, "there is nothing to compare with"


@pytest.mark.soak
@pytest.mark.spark
async def test_all_primaries_killed_at_once_with_spark() -> None:
    """This is the whole short form."""
    await short_form()


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(3_600)
async def test_all_primaries_killed_at_once_mode_by_mode(tmp_path: Path) -> None:
    """This takes some ten minutes."""
    picture = tmp_path / "ha.png"
    result = await run_ha(Options(plot=picture), HaBoard())
    assert [check for check in result.checks if check.certain and not check.good] == []
    assert len(result.modes) == len(VARIANTS)
    assert all(mode.expected > 1_000 for mode in result.modes)
    assert all(mode.secured == 4 for mode in result.modes[1:])
    assert picture.stat().st_size > 20_000
