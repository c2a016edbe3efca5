"""Peers freeze for a minute, as by SIGSTOP, and then continue."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import trio
from deadline import DEADLINE_S

from medusa.engine.objects.availability import Mode
from medusa.testnet.intrusion.board import Board
from medusa.testnet.intrusion.run import Options, run_intrusion
from medusa.testnet.kit.peers import Federation, Peer

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(1800)]

LOOK_S = 0.1


class Freezer:
    """Freezes every peer of the federation in turn: leaders of streams, the primary of the query,
    its secondary."""

    def __init__(self, seconds: float, peers: int | None = None) -> None:
        self._seconds = seconds
        self._peers = peers
        self.log: list[str] = []

    async def __call__(self, federation: Federation, board: Board) -> None:
        await self._until(lambda: board.answered_since(0.0) or board.all_posted)
        for peer in federation.peers[-(self._peers or len(federation.peers)) :]:
            await self._freeze(peer, board)

    async def _freeze(self, peer: Peer, board: Board) -> None:
        os.killpg(peer.pid, signal.SIGSTOP)
        frozen = board.seconds()
        try:
            await trio.sleep(self._seconds)
        finally:
            os.killpg(peer.pid, signal.SIGCONT)
        thawed = board.seconds()
        self.log.append(f"{peer.name} stood still from {frozen:.1f} s to {thawed:.1f} s")
        with trio.fail_after(DEADLINE_S):
            await self._until(lambda: board.answered_since(thawed) or board.all_posted)
        self.log.append(f"answers come after {board.seconds() - thawed:.1f} s")

    async def _until(self, condition: object) -> None:
        while not condition():  # type: ignore[operator]  # noqa: ASYNC110 - of other processes
            await trio.sleep(LOOK_S)


async def answers_are_exact(options: Options, freezer: Freezer) -> None:
    board = Board()
    result = await run_intrusion(options, board, freezer)
    assert result.exact, (result.answers, freezer.log)
    assert not board.history.faults(), (board.history.faults(), freezer.log)


@pytest.mark.parametrize("mode", [Mode.NONE, Mode.ACTIVE_STANDBY, Mode.PASSIVE_STANDBY])
async def test_each_peer_stands_still_for_a_minute(tmp_path: Path, mode: Mode) -> None:
    options = Options(out=tmp_path, mode=mode, stretch_s=900.0)
    await answers_are_exact(options, Freezer(60.0))


async def test_each_peer_of_replicated_streams_stands_still(tmp_path: Path) -> None:
    options = Options(peers=2, out=tmp_path, k_safety=1, mode=Mode.ACTIVE_STANDBY, stretch_s=1200.0)
    await answers_are_exact(options, Freezer(60.0))


async def test_a_primary_and_its_standby_stand_still_in_turn(tmp_path: Path) -> None:
    options = Options(peers=2, out=tmp_path, mode=Mode.ACTIVE_STANDBY, stretch_s=120.0)
    await answers_are_exact(options, Freezer(6.0, peers=2))
