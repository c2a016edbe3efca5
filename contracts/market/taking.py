"""The receiving half of the market: collects offers, and takes the best paid first."""

from __future__ import annotations

import math
from typing import Final

from medusa.contracts.market.config import MAX_HOPS, MAX_ITEMS, MarketConfig
from medusa.contracts.market.events import Effect, Note, Send
from medusa.contracts.market.holdings import SLACK, Holdings, Key
from medusa.contracts.market.messages import Answer, Item, Offer
from medusa.contracts.market.partners import NONE, PartnerState
from medusa.overlay.errors import printable

MAX_LOAD: Final = 1e6
"""Units of one task: ten thousand cores; more is nonsense."""

MAX_NAME: Final = 1000
"""Characters of a task's name, as of an object name."""

PRESSED_ROUNDS: Final = 2
"""How long a request to make room counts, as a multiple of `retry_s`. The offerer renews the
request while it needs the room; so a request that goes round in a circle of full peers ends."""


class Waiting:
    """A partner's offer of which tasks were refused, for lack of room or as too cheap.

    Attributes:
        number, price: the number and the price of the offer. units: the load of the refused tasks.
        least: the load of the smallest of them. bid: the price in our answer. hops: as in the
        offer: over how many peers room may be asked for.
        until: seconds until which the room is needed.
    """

    __slots__ = ("bid", "hops", "least", "number", "price", "units", "until")

    def __init__(self, offer: Offer, refused: list[Item], bid: int, until: float) -> None:
        self.number = offer.number
        self.price = offer.price
        self.units = sum(item.load for item in refused)
        self.least = min(item.load for item in refused)
        self.bid = bid
        self.hops = offer.hops
        self.until = until


class Taker:
    """Answers offers.

    Attributes:
        waiting: refused partners, which get a message when there is room.
        collect_at: seconds at which the collected offers are answered.
    """

    __slots__ = ("_config", "_held", "_inbox", "_peer", "collect_at", "waiting")

    def __init__(self, peer: str, held: Holdings, config: MarketConfig) -> None:
        self._peer = peer
        self._held = held
        self._config = config
        self._inbox: dict[Key, tuple[PartnerState, Offer]] = {}
        self.waiting: dict[Key, Waiting] = {}
        self.collect_at = math.inf

    def receive(self, state: PartnerState, offer: Offer, now: float, effects: list[Effect]) -> None:
        """Take in an offer. A repeated one gets the same answer, an older one none."""
        if offer.number <= state.heard:
            answer = state.answer
            if answer is not None and answer.number == offer.number:
                effects.append(Send(state.partner.peer, answer))
            return
        state.heard = offer.number
        state.answer = None
        self.waiting.pop(state.key, None)
        self._inbox.pop(state.key, None)
        if not offer.items:
            return
        fault = _fault(state, offer)
        if fault:
            effects.append(
                Note("warning", f"refused an offer of peer {state.partner.peer}: {fault}")
            )
            self._reply(state, Answer(offer.number, (), NONE, fault), effects)
            return
        self._inbox[state.key] = (state, offer)
        self.collect_at = min(self.collect_at, now + self._config.collect_s)

    def collect(self, now: float, effects: list[Effect]) -> None:
        """Answer the collected offers, once it is time."""
        if now < self.collect_at:
            return
        self.collect_at = math.inf
        offers = sorted(self._inbox.values(), key=_best_paid)
        self._inbox.clear()
        for state, offer in offers:
            self._decide(state, offer, now, effects)

    def forget(self, keys: set[Key]) -> None:
        """Forget former partners."""
        for key in keys:
            self._inbox.pop(key, None)
            self.waiting.pop(key, None)

    def demand(self, now: float) -> tuple[Key, Waiting] | None:
        """The partner that pays most for room that we should make."""
        pressing = [(k, e) for k, e in self.waiting.items() if e.hops and e.until > now]
        return max(pressing, key=lambda e: (e[1].price, e[1].units), default=None)

    def notify(self, partners: dict[Key, PartnerState], effects: list[Effect]) -> None:
        """Notify refused partners that there is room now: as many partners as the room suffices
        for."""
        room = self._held.room
        if not self.waiting or room <= SLACK:
            return
        for key, wait in sorted(self.waiting.items(), key=lambda entry: -entry[1].price):
            bid = self._bid(partners[key], wait.least)
            better = not wait.bid or bid <= wait.price or bid < wait.bid * (1 - self._config.recall)
            # more is about to leave: wait and take it all at once
            soon = self._held.left > SLACK and room < wait.units
            if bid == NONE or wait.least > room + SLACK or soon or not better:
                continue
            del self.waiting[key]
            room -= wait.units
            effects.append(Send(partners[key].partner.peer, Answer(wait.number, (), bid)))

    def pass_on(self, partners: dict[Key, PartnerState], effects: list[Effect]) -> None:
        """Pass the news of another peer's room, which we do not need, on to the partners that we
        refused: they may press us again. Each gets it once, so the news dies out."""
        if self._held.room > SLACK:
            return  # `notify` reports our own room to them
        for key, wait in self.waiting.items():
            effects.append(Send(partners[key].partner.peer, Answer(wait.number, (), NONE)))
        self.waiting.clear()

    def _decide(self, state: PartnerState, offer: Offer, now: float, effects: list[Effect]) -> None:
        accepted: list[str] = []
        refused: list[Item] = []
        reason = ""
        until = now + self._config.reserve_s
        for item in offer.items:
            if not 0 < item.load <= MAX_LOAD:
                why = f"a load of {item.load} units"
            elif not self._fits(state, item, offer.price):
                refused.append(item)
                why = "no room at that price"
            else:
                why = self._never(state, item)
            if why:
                reason = reason or f"{printable(item.task[:MAX_NAME])}: {why}"
                continue
            accepted.append(item.task)
            self._held.reserve(item.task, item.load, state.key, until)
        sample = min((item.load for item in refused), default=0.0)
        bid = self._bid(state, sample or offer.items[-1].load)
        if refused:
            pressed_until = now + PRESSED_ROUNDS * self._config.retry_s
            self.waiting[state.key] = Waiting(offer, refused, bid, pressed_until)
        self._reply(state, Answer(offer.number, tuple(accepted), bid, reason), effects)

    def _reply(self, state: PartnerState, answer: Answer, effects: list[Effect]) -> None:
        state.answer = answer
        effects.append(Send(state.partner.peer, answer))

    def _never(self, state: PartnerState, item: Item) -> str:
        """Why this task is refused at any price; "" if it is not."""
        if not 0 < len(item.task) <= MAX_NAME or item.cost_ns < 0:
            return "not a task"
        if item.owner == self._peer:
            return "it is this peer's own"
        if self._held.knows(item.task):
            return "it is here already"
        if not state.partner.takes(item):
            return "the contract does not cover it"
        return ""

    def _fits(self, state: PartnerState, item: Item, price: int) -> bool:
        if item.load > self._room(state) + SLACK:
            return False
        return self._held.added(item.load) * (1 + self._config.hysteresis) <= price

    def _room(self, state: PartnerState) -> float:
        """Units that the partner may give us."""
        taken = self._held.taken.get(state.key, 0.0)
        return min(self._held.room, state.partner.most_taken - taken)

    def _bid(self, state: PartnerState, load: float) -> int:
        if not (0 < load <= self._room(state) + SLACK):
            return NONE
        cost = self._held.added(load)
        return max(1, math.ceil(cost * (1 + self._config.hysteresis))) if cost < math.inf else NONE


def _best_paid(entry: tuple[PartnerState, Offer]) -> tuple[int, int]:
    """Sort key: the best paid first; at the same price, the longest offer first."""
    return -entry[1].price, -len(entry[1].items)


def refusal(peer: str, offer: Offer, why: str) -> Send:
    """The answer to an offer that cannot be considered."""
    return Send(peer, Answer(offer.number, (), NONE, why))


def _fault(state: PartnerState, offer: Offer) -> str:
    """Why the whole offer is invalid; "" if it is valid."""
    if not state.least <= offer.price <= state.most:
        return f"price {offer.price} is outside the contract's {state.least} to {state.most}"
    if not 0 <= offer.hops <= MAX_HOPS:
        return f"{offer.hops} hops, at most {MAX_HOPS} make sense"
    if len(offer.items) > MAX_ITEMS:
        return f"{len(offer.items)} tasks, at most {MAX_ITEMS} go into an offer"
    if len({item.task for item in offer.items}) < len(offer.items):
        return "a task is in it twice"
    return ""
