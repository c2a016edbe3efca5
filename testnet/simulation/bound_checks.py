"""Results come within the bound that was asked for, whatever is missing."""

from __future__ import annotations

from typing import Final

from testnet.simulation.history import History, Reached
from testnet.simulation.manifest import Check, Manifest
from testnet.simulation.violation import Violation, found

EPOCHS: Final = 3.0
"""Epochs that results may be later by: a task starts one at a time, and is not hurried."""

BUSY_S: Final = 0.75
"""How late a look may be, and a job, seconds."""


def check_bound(history: History, manifest: Manifest) -> list[Violation]:
    """What an input of a task had at any moment, its results have by the bound later, as long as
    the task has run all that time: tentative or stable, computed there or elsewhere."""
    slack_s = EPOCHS * manifest.settings.epoch_s + BUSY_S
    wrong: dict[str, Violation] = {}
    runs: dict[tuple[str, int, str], list[Reached]] = {}
    for now in history.of(Reached):
        run = runs.setdefault((now.peer, now.life, now.task), [])
        if run and now.look != run[-1].look + 1:
            run.clear()
        while run and run[0].at + now.bound_s + slack_s <= now.at:
            before = run.pop(0)
            if now.given < before.came:
                text = f"{now.task} at {now.peer} is later than its bound of {now.bound_s:g} s"
                wrong.setdefault(
                    text,
                    found(
                        Check.BOUND,
                        text,
                        [
                            f"an input was at {before.came} at {before.at:.3f} s, the results at "
                            f"{now.at:.3f} s at {now.given}"
                        ],
                    ),
                )
        run.append(now)
    return list(wrong.values())
