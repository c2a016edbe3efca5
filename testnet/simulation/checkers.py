"""The checks of every run, which read only its history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from medusa.testnet.simulation.history import (
    Covered,
    Failed,
    History,
    Overdue,
    Quiescent,
    Reached,
    Received,
    Violation,
    found,
)
from medusa.testnet.simulation.manifest import Check, Manifest
from medusa.testnet.simulation.peer_checks import (
    check_gossip,
    check_membership,
    check_money,
    check_owners,
    gossip_of,
    membership_of,
    money_of,
    owners_of,
)
from medusa.testnet.simulation.stream_checks import check_streams

EPOCHS: Final = 3.0
"""Tolerance, in epochs, by which results may be later than the task's bound: a task computes one
epoch at a time, and its `Pacer` keeps a minimum time between their starts."""

BUSY_S: Final = 0.75
"""A further tolerance, in seconds: a check of the observer, or a job, may be late by so much."""


def check_bound(history: History, manifest: Manifest) -> list[Violation]:
    """Check the bound: the results of a task include, at most one bound later, all input that it
    had at any moment, if it has run all that time. The results may be tentative or stable, and
    computed there or elsewhere."""
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


@dataclass(frozen=True)
class _Promise:
    """An uninterrupted promise of a primary. before: for each output, the boundaries that consumers
    had before it, or that were being sent."""

    last: Covered
    before: Mapping[str, int]


def check_standbys(history: History, _: Manifest) -> list[Violation]:
    """Check precise passive standbys: from the moment that the secondary has caught up, a primary
    sends consumers no tuple that the secondary lacks (messages under way before may still arrive).
    """
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
    """Boundaries by output. A primary that is cut off from its secondary may have emitted more than
    its successor has."""
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


Checker = Callable[[History, Manifest], list[Violation]]


def check_liveness(history: History, _: Manifest) -> list[Violation]:
    """Check that all rows were delivered after the heal, and that no client got an error that
    retries cannot solve."""
    overdue = [Violation(Check.LIVENESS, f"overdue: {each.what}") for each in history.of(Overdue)]
    failed = [
        Violation(Check.LIVENESS, f"{each.client} failed at {each.at:.3f} s: {each.error}")
        for each in history.of(Failed)
    ]
    return overdue + failed


CHECKERS: Final[Mapping[Check, Checker]] = {
    Check.STREAMS: check_streams,
    Check.STANDBYS: check_standbys,
    Check.BOUND: check_bound,
    Check.OWNERS: check_owners,
    Check.MEMBERSHIP: check_membership,
    Check.MONEY: check_money,
    Check.GOSSIP: check_gossip,
    Check.LIVENESS: check_liveness,
}


def violations(history: History, manifest: Manifest) -> list[Violation]:
    """All violations that the manifest's checks find, the worst first: lost or wrong before
    late."""
    return [
        found
        for check in CHECKERS
        if check in manifest.checks
        for found in CHECKERS[check](history, manifest)
    ]


_AT_REST: Final = {
    Check.OWNERS: owners_of,
    Check.MEMBERSHIP: membership_of,
    Check.MONEY: money_of,
    Check.GOSSIP: gossip_of,
}


def converged(now: Quiescent, manifest: Manifest) -> bool:
    """Whether the peers agree in everything that is checked at rest."""
    return not any(
        check in manifest.checks and holds(now, manifest) for check, holds in _AT_REST.items()
    )
