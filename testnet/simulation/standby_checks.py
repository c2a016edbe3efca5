"""Consumers never have what a secondary that is to take over precisely has not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from testnet.simulation.history import Covered, History, Received
from testnet.simulation.manifest import Check, Manifest
from testnet.simulation.violation import Violation, found


@dataclass(frozen=True)
class _Promise:
    """One that was seen without a break. before: by output, how far consumers were before it was
    given, or were being sent."""

    last: Covered
    before: Mapping[str, int]


def check_standbys(history: History, _: Manifest) -> list[Violation]:
    """Passive standby, precise: from the moment that its secondary has caught up, a primary gives
    its consumers nothing that the secondary has not (what was under way before may still come)."""
    wrong: list[Violation] = []
    promises: dict[str, _Promise] = {}
    furthest: dict[str, Received] = {}
    for event in history.events:
        if isinstance(event, Received):
            known = furthest.get(event.stream)
            if known is None or known.upto < event.upto:
                furthest[event.stream] = event
        elif isinstance(event, Covered):
            promise = promises.get(event.query)
            if promise is None or not _goes_on(promise.last, event):
                promises[event.query] = _Promise(event, _given(event, furthest))
                continue
            promises[event.query] = _Promise(event, promise.before)
            wrong += _ahead(event, promise.before, furthest)
    return list({each.text: each for each in reversed(wrong)}.values())[::-1]


def _goes_on(before: Covered, now: Covered) -> bool:
    return (now.look, now.under) == (before.look + 1, before.under) and all(
        before.theirs.get(output, boundary) <= boundary for output, boundary in now.theirs.items()
    )


def _given(now: Covered, furthest: Mapping[str, Received]) -> dict[str, int]:
    """A primary that was cut off from its secondary may have given more than its successor has."""
    had = {output: got.upto for output, got in furthest.items()}
    return {output: max(at, had.get(output, at)) for output, at in now.ours.items()}


def _ahead(
    now: Covered, before: Mapping[str, int], furthest: Mapping[str, Received]
) -> list[Violation]:
    return [
        found(
            Check.STANDBYS,
            f"{got.subscriber} has more of {output} than the secondary of {now.query}",
            [
                f"up to {got.upto} at {got.peer} since {got.at:.3f} s, the secondary at "
                f"{now.at:.3f} s up to {boundary}; {now.under}"
            ],
        )
        for output, boundary in now.theirs.items()
        if (got := furthest.get(output)) is not None and got.upto > max(boundary, before[output])
    ]
