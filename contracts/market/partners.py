"""The state of each partner that a peer trades load with."""

from __future__ import annotations

import math
from random import Random  # noqa: TID251 - the type only: the generator is passed in
from typing import Final

from medusa.contracts.market.events import Partner
from medusa.contracts.market.holdings import Key
from medusa.contracts.market.messages import Answer
from medusa.contracts.market.prices import MAX_PRICE
from medusa.overlay.backoff import Backoff

UNKNOWN: Final = -1
"""The partner's bid is not known: it is asked at the lowest price."""

NONE: Final = 0
"""The partner takes nothing at any price."""


class PartnerState:
    """A partner, and the latest messages exchanged with it.

    Attributes:
        partner: the partner's peer and the terms of its contract.
        bid: the price (micros) at which it takes one more unit, by its latest answer, or UNKNOWN,
            NONE.
        until: seconds before which it is not asked again. waits: how long it is not asked, longer
            after each refusal.
        doubtful: it had no room when it last answered.
        broken: it did not answer, or did not run a task that it had accepted.
        refused: number of our latest offer that it refused in whole or in part.
        pressed: the hops of the latest request to it to make room, until it answers that it has
            room.
        price: the price at which it last took a task; -1: never. heard: the number of the latest
            offer received from it. answer: our answer to it.
    """

    __slots__ = (
        "answer",
        "bid",
        "broken",
        "doubtful",
        "heard",
        "key",
        "partner",
        "pressed",
        "price",
        "refused",
        "until",
        "waits",
    )

    def __init__(self, partner: Partner, waits: Backoff) -> None:
        self.partner = partner
        self.key: Key = (partner.peer, partner.contract)
        self.bid = UNKNOWN
        self.until = -math.inf
        self.waits = waits
        self.doubtful = False
        self.broken = False
        self.refused = 0
        self.pressed = 0
        self.price = -1
        self.heard = -1
        self.answer: Answer | None = None

    @property
    def full(self) -> bool:
        """Whether the partner takes no task now, or none at any price of the contract."""
        return self.bid == NONE or self.bid > self.most

    @property
    def sibling(self) -> bool:
        """Whether the partner is a peer of our own participant: no money is paid, costs are
        compared."""
        return not self.partner.contract

    @property
    def least(self) -> int:
        """The lowest price, micros per unit and second."""
        return 0 if self.sibling else self.partner.min_price

    @property
    def most(self) -> int:
        """The highest price, micros per unit and second."""
        return MAX_PRICE if self.sibling else self.partner.max_price

    def put_off(self, now: float, rng: Random) -> None:
        """Do not ask the partner for a while, which grows each time."""
        self.until = now + self.waits.failed(rng)

    def welcome(self) -> None:
        """Allow asking the partner at once."""
        self.doubtful = False
        self.until = -math.inf
        self.broken = False
        self.pressed = 0

    def expire(self, now: float) -> None:
        """Drop the partner's bid once the wait is over: the bid is outdated."""
        if -math.inf < self.until <= now:
            self.doubtful = self.full
            self.until = -math.inf
            self.broken = False
            self.bid = UNKNOWN
