"""One Brain, with nobody around it but who a test says; for tests only."""

from __future__ import annotations

import random
from typing import Any

from contracts_market import item, name

from contracts.market.brain import Brain
from contracts.market.config import MarketConfig
from contracts.market.cost import QueueingCost
from contracts.market.events import Effect, Partner, PartnersChanged, Received, Send, TaskHere, Tick
from contracts.market.messages import Answer, Item, Offer

LOW, HIGH = 800_000, 1_000_000
B, C, D = name(1), name(2), name(3)


def partner(peer: str, low: int = LOW, high: int = HIGH, **terms: Any) -> Partner:
    return Partner(peer, f"with {peer[-1]}", low, high, **terms)


def brain(*partners: Partner, tasks: int = 0, config: MarketConfig | None = None) -> Brain:
    made = Brain(
        name(0), QueueingCost(80, HIGH), 80, config or MarketConfig(), random.Random(1), number=10
    )
    made.handle(PartnersChanged(partners), 0)
    for task in range(tasks):
        made.handle(TaskHere(item(f"t{task}", 0)), 0)
    return made


def wait(made: Brain, until: float) -> list[Effect]:
    """All it does up to that time, left alone."""
    effects: list[Effect] = []
    while made.wake_at <= until:
        now = made.wake_at
        effects += made.handle(Tick(), now)
        assert made.wake_at > now
    return effects


def offers(effects: list[Effect]) -> list[tuple[str, Offer]]:
    return [
        (effect.peer, effect.message)
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, Offer)
    ]


def answer(made: Brain, offer: Offer, peer: str = B) -> Answer:
    """Its answer to an offer."""
    effects = made.handle(Received(peer, offer), 100) + wait(made, 101)
    (said,) = [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Answer)]
    return said


def offer_of(*items: Item, price: int = HIGH, number: int = 1, hops: int = 0) -> Offer:
    return Offer(number, "with 1", price, items, hops)
