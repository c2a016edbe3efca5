"""The whole: real peers, real Spark, real traces, and exact answers, also with a peer or a JVM
killed in the middle."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from medusa.testnet.connections.query import COLUMNS
from medusa.testnet.intrusion.board import Board
from medusa.testnet.intrusion.run import Options, Result, run_intrusion
from medusa.testnet.kit.peers import Federation, Peer

DATA = Path(__file__).parents[2].parent / "shared" / "data"

pytestmark = [pytest.mark.process, pytest.mark.spark]


def traces(*names: str) -> tuple[Path, ...]:
    files = tuple(DATA / f"{name}.parquet" for name in names)
    if not all(file.exists() for file in files):
        pytest.skip(f"{', '.join(names)}: the traces are not here")
    return files


def check(result: Result) -> None:
    for name, answer in result.answers.items():
        assert answer.exact, (name, answer)
        assert result.first_answer_seconds is not None
    assert result.exact


@pytest.mark.parametrize(
    ("names", "answers"),
    [
        (("wrccdc_a", "wrccdc_b"), "wrccdc_a+b"),
        pytest.param(("marx_oregon", "marx_tokyo"), "marx_oregon+tokyo", marks=pytest.mark.soak),
    ],
)
async def test_real_traces(names: tuple[str, ...], answers: str, tmp_path: Path) -> None:
    result = await run_intrusion(Options(traces=traces(*names), out=tmp_path), Board())
    check(result)
    for answer in COLUMNS:
        published = DATA / "answers" / f"{answers}_{answer}.csv"
        assert (tmp_path / f"{answer}.csv").read_text() == published.read_text(), answer


@pytest.mark.soak
async def test_two_peers_are_enough(tmp_path: Path) -> None:
    """In `make test`, test_hostile_failover has two participants, and peers without Spark."""
    result = await run_intrusion(
        Options(peers=2, traces=traces("ctu_portscan", "ctu_exposed_hosts"), out=tmp_path), Board()
    )
    check(result)


async def _kill_processing(federation: Federation) -> None:
    await federation.peers[-1].kill_9()
    await federation.peers[-1].restart()


async def _kill_posting(federation: Federation) -> None:
    await federation.peers[1].kill_9()
    await federation.peers[1].restart()


async def _kill_subscribers(federation: Federation) -> None:
    await federation.peers[0].kill_9()
    await federation.peers[0].restart()


async def _kill_jvm(federation: Federation) -> None:
    (java,) = _jvm_of(federation.peers[-1])
    os.kill(java, signal.SIGKILL)


def _jvm_of(peer: Peer) -> tuple[int, ...]:
    """Return only the first JVM: its child processes are no JVMs."""
    return peer.children("java")[:1]


@pytest.mark.soak
@pytest.mark.parametrize(
    "kill",
    [_kill_processing, _kill_posting, _kill_subscribers, _kill_jvm],
    ids=lambda k: k.__name__,
)
async def test_exactly_right_after_kill_9(
    kill: Callable[[Federation], trio.lowlevel.Task], tmp_path: Path
) -> None:
    """The kill comes once the first answers are there, between epochs. `make test` kills a JVM, and
    peers at random, in test_testnet_kills_peers."""
    seen = trio.Event()

    class Watched(Board):
        def received(self, answer: str, rows: int) -> None:
            super().received(answer, rows)
            if rows:
                seen.set()

    async def disturb(federation: Federation, board: Board) -> None:
        await seen.wait()
        await kill(federation)  # type: ignore[misc]

    # Slow enough that much traffic still follows when the first answers arrive.
    options = Options(speed=60.0, seed=3, out=tmp_path)
    check(await run_intrusion(options, Watched(), disturb))
