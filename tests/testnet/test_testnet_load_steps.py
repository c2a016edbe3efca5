"""The load demonstration: real peers, real contracts, real Spark; short, and with all its steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from testnet.load.board import SHORT_STAGES, LoadBoard
from testnet.load.run import Options, run_load
from testnet.load.script import EVERYBODY, SHORT, A, B, C, D

pytestmark = [pytest.mark.process, pytest.mark.spark]


async def test_who_has_too_much_sheds() -> None:
    """The short form: what `medusa-testnet load --short` runs."""
    result = await run_load(Options(short=True), LoadBoard(words=SHORT_STAGES))
    assert result.answers_exact, result.different
    assert result.answers == sum(place.tasks for place in SHORT.founders)
    (shed,) = result.steps
    assert shed.acceptable
    assert shed.before[A.participant] > shed.capacities[A.participant]
    assert shed.loads[A.participant] <= 1.03 * shed.capacities[A.participant]
    assert (A.participant, B.participant) in {(move.origin, move.to) for move in result.moves}


@pytest.mark.soak
@pytest.mark.timeout(3_600)
async def test_the_four_steps(tmp_path: Path) -> None:
    """Some five minutes."""
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
