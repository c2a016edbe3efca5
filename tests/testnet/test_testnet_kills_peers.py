"""Real peers killed with SIGKILL again and again under the intrusion query: exact answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from testnet.intrusion.board import Board
from testnet.intrusion.kills import KillsResult, run_intrusion_kills
from testnet.intrusion.run import Options

DATA = Path(__file__).parents[2].parent / "shared" / "data"

pytestmark = [pytest.mark.process, pytest.mark.spark]


def check(result: KillsResult, kills: int) -> None:
    assert not result.faults
    for name, answer in result.answers.items():
        assert answer.exact, (name, answer, result.history)
        assert answer.rows
    assert result.exact
    assert result.kills == result.restarts == kills
    assert 0.0 < result.longest_pause_seconds < result.seconds


async def test_three_kills(tmp_path: Path) -> None:
    check(await run_intrusion_kills(Options(seed=5, out=tmp_path), 3, Board()), 3)


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_twenty_kills(seed: int, tmp_path: Path) -> None:
    check(await run_intrusion_kills(Options(seed=seed, out=tmp_path), 20, Board()), 20)


@pytest.mark.soak
async def test_twenty_kills_on_real_traces(tmp_path: Path) -> None:
    files = tuple(DATA / f"{name}.parquet" for name in ("wrccdc_a", "wrccdc_b"))
    if not all(file.exists() for file in files):
        pytest.skip("wrccdc_a, wrccdc_b: the traces are not here")
    options = Options(seed=4, traces=files, out=tmp_path)
    check(await run_intrusion_kills(options, 20, Board()), 20)
    for answer in ("busy", "scan", "cluster"):
        published = DATA / "answers" / f"wrccdc_a+b_{answer}.csv"
        assert (tmp_path / f"{answer}.csv").read_text() == published.read_text(), answer
