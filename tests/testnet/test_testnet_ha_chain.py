"""The whole high-availability demonstration: real peers, real Spark; some ten minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from testnet.ha.board import HaBoard
from testnet.ha.run import Options, run_ha
from testnet.ha.variants import VARIANTS

pytestmark = [pytest.mark.soak, pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(1_800)]


async def test_all_primaries_killed_at_once_mode_by_mode(tmp_path: Path) -> None:
    picture = tmp_path / "ha.png"
    result = await run_ha(Options(plot=picture), HaBoard())
    assert [check for check in result.checks if check.certain and not check.good] == []
    assert len(result.modes) == len(VARIANTS)
    assert all(mode.expected > 1_000 for mode in result.modes)
    assert all(mode.secured == 4 for mode in result.modes[1:])
    assert picture.stat().st_size > 20_000
