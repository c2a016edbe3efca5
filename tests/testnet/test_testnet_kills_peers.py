"""Real peers are killed with SIGKILL again and again under the intrusion query: answers are
exact."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import trio
from deadline import DEADLINE_S
from few_connections import few_connections

from medusa.testnet.intrusion.board import Board
from medusa.testnet.intrusion.kills import Killer, KillsResult, run_intrusion_kills
from medusa.testnet.intrusion.run import Options
from medusa.testnet.kit.peers import Federation

DATA = Path(__file__).parents[2].parent / "shared" / "data"

pytestmark = [pytest.mark.process, pytest.mark.spark]

LOOK_S = 0.05


def check(result: KillsResult, kills: int) -> None:
    assert not result.faults
    for name, answer in result.answers.items():
        assert answer.exact, (name, answer, result.history)
        assert answer.rows
    assert result.exact
    assert result.kills == result.restarts == kills
    assert 0.0 < result.longest_pause_seconds < result.seconds


class JvmToo(Killer):
    """Kills the JVM of the computing peer, once answers have come; then kills peers."""

    async def __call__(self, federation: Federation, board: Board) -> None:
        with trio.fail_after(DEADLINE_S):
            while not board.answered_since(0.0):  # noqa: ASYNC110 - it tells nobody
                await trio.sleep(LOOK_S)
        (java, *_) = federation.peers[-1].children("java")
        os.kill(java, signal.SIGKILL)
        await super().__call__(federation, board)


async def test_three_kills_after_that_of_a_jvm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then some epochs are through, and some are not."""
    monkeypatch.setattr("medusa.testnet.intrusion.kills.Killer", JvmToo)
    traces = few_connections(tmp_path, 5, 2)
    options = Options(seed=5, traces=traces, out=tmp_path)
    check(await run_intrusion_kills(options, 3, Board()), 3)


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
