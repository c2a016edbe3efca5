"""The simulator finds each seeded bug, and nothing without it."""

from __future__ import annotations

import pytest
from simulation_bugs import BUGS, Bug

from medusa.testnet.simulation.simulate import Result, simulate

CASES = [
    pytest.param(bug, id=bug.name, marks=() if bug.quick else pytest.mark.soak) for bug in BUGS
]


def first_found(bug: Bug) -> Result | None:
    """Return the first seed in which the intended check finds something."""
    for seed in range(1, bug.seeds + 1):
        result = simulate(bug.manifest(seed), seed)
        if any(violation.check == bug.check for violation in result.violations):
            return result
    return None


@pytest.mark.parametrize("bug", CASES)
def test_a_seeded_bug_is_the_only_bug_found(bug: Bug) -> None:
    with pytest.MonkeyPatch.context() as patch:
        bug.turn_off(patch)
        result = first_found(bug)
    assert result is not None, f"not within {bug.seeds} seeds"
    sound = simulate(bug.manifest(result.seed), result.seed)
    assert sound.violations == ()
