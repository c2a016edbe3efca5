"""The load demonstration's real parts: contracts by the commands, answered questions."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio
from deadline import DEADLINE_S
from interpreting_peer import ROW_S
from killed_peers import let_crash

from medusa.testnet.connections.generate import generate
from medusa.testnet.kit.cast import proposed_id
from medusa.testnet.kit.peers import open_federation, run_command
from medusa.testnet.load import script as places
from medusa.testnet.load.board import LoadBoard, Observer
from medusa.testnet.load.run import Cast
from medusa.testnet.load.script import Place


@pytest.mark.process
async def test_the_commands_make_the_contract(tmp_path: Path) -> None:
    """The homes' peers do not run, and the contract goes over a file, so no daemon is needed."""
    homes = {place.participant: tmp_path / place.participant for place in (places.C, places.D)}
    one, other = (str(folder) for folder in homes.values())
    await run_command("init", "--participant", "brown.edu", "--home", one, "--found", "t")
    await run_command("init", "--participant", "brandeis.edu", "--home", other)
    root = str(homes["brandeis.edu"] / "root.crt")
    invited = await run_command("invite", "brandeis.edu", "--root", root, "--home", one)
    await run_command("join", invited.split()[-1], "--home", other)
    paper = str(tmp_path / "proposal")
    proposal = places.WITH_D.proposal()
    said = await run_command(*proposal, "--home", one, "--out", paper)
    accepted = await run_command("contract", "accept", paper, "--home", other, "--json")
    assert proposed_id(said) == proposed_id(accepted)
    told = json.loads(accepted)
    assert told["state"] == "in force"
    assert told["terms"]["max_price"] == 800_000
    assert 0 < told["terms"]["min_price"] < 800_000
    assert told["terms"]["accepter_runs"]["most_load"] >= places.D.capacity


@pytest.mark.process
async def test_a_small_cast_is_answered_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two real peers have two questions each and no contract, without Spark: the basis of the
    steps."""
    let_crash(tmp_path, monkeypatch, interpreting=True)
    monkeypatch.setenv(ROW_S, "5e-5")
    board = LoadBoard()
    cast_of = [Place("A", "mit.edu", 2, 10.0), Place("B", "utah.edu", 2, 10.0)]
    async with open_federation() as federation:
        async with trio.open_nursery() as nursery, AsyncExitStack() as closing:
            cast = Cast(federation, closing, nursery, board)
            traces = generate(5, 4, rows=20_000)
            for place, theirs in zip(cast_of, (traces[:2], traces[2:]), strict=True):
                await cast.enter(place)
                await cast.perform(place, theirs, 1_200.0)
            observer = Observer(cast.clients, board)
            nursery.start_soon(observer.run)
            with trio.fail_after(DEADLINE_S):
                while board.answers < 50 or sum_of_loads(board) == 0.0:
                    await observer.next_look()
            cast.players["mit.edu"][0].speed = 400.0
            with trio.fail_after(DEADLINE_S):
                await cast.finish()
            nursery.cancel_scope.cancel()
        assert cast.different() == ()
        assert board.rows == sum(
            table.num_rows
            for players in cast.players.values()
            for player in players
            for table in player.posted
        )
        capacities = {round(load.capacity, 6) for load in board.samples[-1].loads.values()}
        assert capacities == {round(10 * places.TASK_UNITS, 6)}
        # the check can fail: it misses a row that was not posted
        del cast.players["mit.edu"][0].posted[::2]
        assert cast.different()


def sum_of_loads(board: LoadBoard) -> float:
    return sum(load.load for load in board.recent.means().values())
