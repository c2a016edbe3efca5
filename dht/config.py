"""The settings of the catalog and of the DHT under it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from medusa.overlay.errors import InvalidInputError

MAX_LIFETIME_S: Final = 86_400.0
"""Seconds a record may live without being renewed. It bounds how long a replayed or orphaned record
is believed, and how long a withdrawal must be remembered."""


@dataclass(frozen=True)
class DhtConfig:
    """
    Attributes:
        copies: nodes that hold each record (Kademlia's k). 8, not 20: publishers renew every few
            minutes and every node sees the complete peer table, so churn between renewals is small.
        quorum: answers that end a lookup once it has found a value. More than half of `copies`, so
            every lookup sees a record that reached half of its nodes.
        parallel: requests under way at a time in one lookup (Kademlia's alpha). As many as the
            quorum: a settled network then answers in one round trip.
        attempts, attempt_s: tries of one request and seconds to wait for each. Measured in
            simulation: 200 / 200 / 198 of 200 keys found at 5 / 10 / 20 % loss.
        lifetime_s: seconds until a record expires unless renewed.
        republish_s: seconds between renewals by the publisher.
        refresh_s: seconds between crawls that keep the routing table full.
        meet_s: seconds between looks into the peer table for nodes not met yet.
        shun_s: seconds for which lookups leave out a node that did not answer.
        keep_expired_s: seconds for which an expired record still answers while no node can be
            asked.
    """

    copies: int = 8
    quorum: int = 5
    parallel: int = 5
    attempts: int = 3
    attempt_s: float = 1.0
    lifetime_s: float = 3600.0
    republish_s: float = 600.0
    refresh_s: float = 600.0
    meet_s: float = 0.5
    shun_s: float = 30.0
    keep_expired_s: float = 7 * 86_400.0

    def __post_init__(self) -> None:
        """
        Raises:
            InvalidInputError: a number out of range, or two that contradict each other.
        """
        _demand(1 <= self.copies <= 20, "dht.copies: 1 to 20")
        _demand(
            self.copies < 2 * self.quorum <= 2 * self.copies,
            "dht.quorum: more than half of dht.copies and at most all of them",
        )
        _demand(1 <= self.parallel <= 20, "dht.parallel: 1 to 20")
        _demand(1 <= self.attempts <= 10, "dht.attempts: 1 to 10")
        _demand(
            0 < self.lifetime_s <= MAX_LIFETIME_S,
            f"dht.lifetime_s: more than 0, at most {MAX_LIFETIME_S:.0f}",
        )
        _demand(
            0 < 2 * self.republish_s < self.lifetime_s,
            "dht.republish_s: less than half of dht.lifetime_s, so that one lost renewal is no gap",
        )
        positive = (self.attempt_s, self.refresh_s, self.meet_s, self.shun_s, self.keep_expired_s)
        _demand(min(positive) > 0, "dht: every time must be more than 0 seconds")


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise InvalidInputError(otherwise)
