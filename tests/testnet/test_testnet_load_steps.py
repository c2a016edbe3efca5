"""The whole load demonstration: four real peers, real contracts, real Spark; some five minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from testnet.load.board import LoadBoard
from testnet.load.places import EVERYBODY, A, B, C, D
from testnet.load.run import Options, run_load

pytestmark = [pytest.mark.soak, pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(1_200)]


async def test_the_four_steps(tmp_path: Path) -> None:
    picture = tmp_path / "load.png"
    result = await run_load(Options(plot=picture), LoadBoard())
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
