"""The load demonstration: real peers, real contracts; short, and with all its steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from interpreting_peer import ROW_S
from killed_peers import let_crash
from peer_intervals import INTERVALS, intervals

from medusa.testnet.load.board import MEAN_S, SHORT_STAGES, LoadBoard
from medusa.testnet.load.run import Options, run_load
from medusa.testnet.load.script import EVERYBODY, FULL, SHORT, A, B, C, D, Script

pytestmark = pytest.mark.process


async def test_an_overloaded_peer_sheds_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is `medusa-testnet load --short`, but quicker and without Spark: the test sets the cost
    of a task."""
    let_crash(tmp_path, monkeypatch, interpreting=True)
    monkeypatch.setenv(ROW_S, "5.5e-5")
    hasty = {"confirm_s": 1.0, "market": {"retry_s": 2.0}}
    monkeypatch.setenv(INTERVALS, intervals(contracts=hasty))
    await short_form(replace(SHORT, warm_s=15.0, rounds=0, hold_s=5.0), mean_s=4.0)


@pytest.mark.soak
@pytest.mark.spark
async def test_an_overloaded_peer_sheds_tasks_with_spark() -> None:
    """This is the run of `medusa-testnet load --short`."""
    await short_form(SHORT, MEAN_S)


async def short_form(script: Script, mean_s: float) -> None:
    result = await run_load(Options(), LoadBoard(words=SHORT_STAGES, mean_s=mean_s), script)
    assert result.answers_exact, result.different
    assert result.answers == sum(place.tasks for place in SHORT.founders)
    (shed,) = result.steps
    assert shed.acceptable
    assert shed.before[A.participant] > shed.capacities[A.participant]
    assert shed.loads[A.participant] <= 1.03 * shed.capacities[A.participant]
    assert (A.participant, B.participant) in {(move.origin, move.to) for move in result.moves}


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(3_600)
async def test_the_four_steps(tmp_path: Path) -> None:
    """This takes some five minutes."""
    picture = tmp_path / "load.png"
    result = await run_load(Options(plot=picture), LoadBoard(), FULL)
    assert result.answers_exact, result.different
    assert result.answers == sum(place.tasks for place in EVERYBODY)
    for step in result.steps:
        assert step.acceptable or not step.due, step
    shed, rise, join, flow = result.steps
    assert [shed.overload, rise.overload, join.overload, flow.overload] == [
        False,
        True,
        False,
        False,
    ]
    assert not join.acceptable
    assert shed.before[A.participant] > shed.capacities[A.participant]
    ways = {(move.origin, move.to) for move in result.moves}
    assert {(A.participant, B.participant), (A.participant, C.participant)} <= ways
    assert (C.participant, D.participant) in ways
    assert picture.stat().st_size > 10_000
