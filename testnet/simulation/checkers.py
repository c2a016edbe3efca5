"""What must hold of every run, read off its history alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from testnet.simulation.bound_checks import check_bound
from testnet.simulation.history import Failed, History, Overdue, Quiescent
from testnet.simulation.manifest import Check, Manifest
from testnet.simulation.peer_checks import (
    check_gossip,
    check_membership,
    check_money,
    check_owners,
    gossip_of,
    membership_of,
    money_of,
    owners_of,
)
from testnet.simulation.standby_checks import check_standbys
from testnet.simulation.stream_checks import check_streams
from testnet.simulation.violation import Violation

Checker = Callable[[History, Manifest], list[Violation]]


def check_liveness(history: History, _: Manifest) -> list[Violation]:
    """After the heal everything came, and no client met what trying again cannot mend."""
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
    """Everything that the manifest's checks find, the worst first: what was lost or wrong before
    what was late."""
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
    """Whether the peers agree about all that is checked at rest."""
    return not any(
        check in manifest.checks and holds(now, manifest) for check, holds in _AT_REST.items()
    )
