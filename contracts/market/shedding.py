"""The offering half of the market: one offer at a time, to the cheapest partner first."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random  # noqa: TID251  # the type; the generator is passed in

from medusa.contracts.market.choosing import Chooser, Need
from medusa.contracts.market.config import MarketConfig
from medusa.contracts.market.events import Effect, Move, Note, Send
from medusa.contracts.market.holdings import SLACK, Holdings, Key
from medusa.contracts.market.messages import Answer, Item, Offer
from medusa.contracts.market.partners import NONE, PartnerState
from medusa.contracts.market.pressing import Pressing
from medusa.contracts.market.prices import MAX_PRICE
from medusa.contracts.market.taking import Taker


class Outstanding:
    """The offer that waits for an answer.

    Attributes:
        state: the state of the partner. offer: the message. until: seconds until which an answer
            counts.
    """

    __slots__ = ("items", "offer", "state", "until")

    def __init__(self, state: PartnerState, offer: Offer, until: float) -> None:
        self.state = state
        self.offer = offer
        self.until = until
        self.items: dict[str, Item] = {item.task: item for item in offer.items}


class Shedder:
    """Offers tasks to partners.

    Attributes:
        offer: the offer that waits for an answer. number: the number of the latest offer.
        wake_at: seconds at which `plan` is due again, without other events.
    """

    __slots__ = (
        "_cheapest",
        "_chooser",
        "_config",
        "_held",
        "_moves",
        "_over_since",
        "_partners",
        "_press",
        "_rng",
        "_taker",
        "exhausted",
        "number",
        "offer",
        "wake_at",
    )

    def __init__(
        self,
        held: Holdings,
        partners: dict[Key, PartnerState],
        taker: Taker,
        config: MarketConfig,
        rng: Random,
        *,
        number: int,
    ) -> None:
        self._held = held
        self._partners = partners
        self._taker = taker
        self._config = config
        self._rng = rng
        self._moves: dict[str, Key] = {}
        self._cheapest: float = math.inf
        self._press = Pressing(config)
        self._chooser = Chooser(held, partners, config)
        self._over_since = math.inf
        self.exhausted = False
        self.number = number
        self.offer: Outstanding | None = None
        self.wake_at = math.inf

    # -- answers -----------------------------------------------------------------------------------

    def answered(self, key: Key, answer: Answer, now: float, effects: list[Effect]) -> bool:
        """Take in an answer, to the present offer or, as a repetition, to a refused one.

        Returns:
            whether it is news of room.
        """
        state, out = self._partners[key], self.offer
        bid = answer.bid if 0 < answer.bid <= MAX_PRICE else NONE
        if out is not None and out.state is state and out.offer.number == answer.number:
            self.offer = None
            self._settle(out, answer, bid, now, effects)
        elif state.refused == answer.number and not answer.accepted:
            state.refused = 0
            state.pressed = 0
            self._press.resume()
            if bid != NONE:
                state.bid = bid
                state.waits.succeeded()
                state.welcome()
            return self._need(now) is None
        return False

    def _settle(
        self, out: Outstanding, answer: Answer, bid: int, now: float, effects: list[Effect]
    ) -> None:
        state, price = out.state, out.offer.price
        state.broken = False
        accepted = [out.items.pop(task) for task in answer.accepted if task in out.items]
        if len(accepted) < len(answer.accepted):
            effects.append(
                Note("warning", f"saw peer {state.partner.peer} accept tasks it was not offered")
            )
        for item in accepted:
            self._held.leave(item.task)
            self._moves[item.task] = state.key
            effects.append(Move(item, state.partner.peer, state.partner.contract, price))
        state.bid = bid
        state.doubtful = False
        if accepted:
            state.price = price
            state.waits.succeeded()
            self._press.resume()
        if out.items:
            state.refused = answer.number
        need = self._need(now)
        dear = need is not None and bid > self._ceiling(state, need)
        # a partner that refuses at its own bid is put off; others are asked again at their bid
        if bid == NONE or dear or (out.items and bid <= price):
            state.put_off(now, self._rng)

    def unreachable(self, peer: str, now: float) -> None:
        """Messages do not reach that peer."""
        for state in self._partners.values():
            if state.partner.peer == peer:
                self._broke(state, now)
        if self.offer is not None and self.offer.state.partner.peer == peer:
            self.offer = None

    def ended(self, task: str, failed: bool, now: float) -> None:
        """A move ended. A partner that accepts and does not start is not asked for a while."""
        key = self._moves.pop(task, None)
        if key in self._partners and failed:
            self._broke(self._partners[key], now)

    def changed(self, gone: set[Key]) -> None:
        """Note that the partners have changed. gone: the former partners."""
        self._press.pressed -= gone
        if self.offer is not None and self.offer.state.key in gone:
            self.offer = None
        paid = [state.most for state in self._partners.values() if not state.sibling]
        self._cheapest = min(paid, default=math.inf)

    # -- planning ----------------------------------------------------------------------------------

    def plan(self, now: float, effects: list[Effect]) -> None:
        """Send the next offer, if one is needed and none is under way."""
        self.exhausted = False
        if self.offer is not None:
            if now < self.offer.until:
                return
            self._broke(self.offer.state, now)
            self.offer = None
        self.wake_at = self._held.over(now)[1]
        need = self._need(now)
        turn = self._turn(need, now)
        if need is None:
            self._withdraw(effects)
        elif now < turn:
            self.wake_at = min(self.wake_at, turn)
        elif len(self._held.leaving) < self._config.moving:
            self._offer(need, now, effects)

    def _turn(self, need: Need | None, now: float) -> float:
        """The time, seconds, at which this peer may offer: more overloaded peers go first.

        They need the room nearby to save moves; other peers find room elsewhere (at 95 % load this
        saves a third of the moves beyond the fewest possible).
        """
        if need is None or not need.over:
            self._over_since = math.inf
            return now
        if self._over_since == math.inf:
            self._over_since = now
            self._begin()
        share = min(self._held.capacity / need.units, 1.0)
        return self._over_since + self._config.confirm_s * share

    def _begin(self) -> None:
        """Forget refusals when this peer gets above its capacity: they answered lower offers."""
        self._press.resume()
        for state in self._partners.values():
            if not state.full and not state.broken:
                state.until = -math.inf
                state.waits.succeeded()

    def _need(self, now: float) -> Need | None:
        held = self._held
        if held.staying > held.capacity + SLACK:
            excess = held.over(now)[0]
            return Need(excess, hops=self._press.reach) if excess > SLACK else None
        wanted = self._taker.demand(now)
        if wanted is not None:
            key, wait = wanted
            gain = wait.price / (1 + self._config.hysteresis)
            units = held.lacking(wait.units, wait.least, gain)
            if units > SLACK:
                return Need(units, gain, for_key=key, hops=wait.hops - 1)
        worth = held.saved(min(1.0, held.staying)) if held.staying > SLACK else 0.0
        return Need(math.inf, within=True) if worth > self._cheapest else None

    def _offer(self, need: Need, now: float, effects: list[Effect]) -> None:
        for price, state in self._askable(need, now):
            # a partner without room is first asked with one task: mostly it still has none
            probed = replace(need, units=2 * SLACK) if state.doubtful else need
            items = self._chooser.choose(state, probed, price, now)
            if items:
                self._send(state, self._made(state, price, items, 0), now, effects)
                return
            if not need.within:
                # the partner may run none of them, or not yet
                state.until = now + self._config.retry_s
        if not need.within and not self._press.resting(need.hops, now):
            self._ask_for_room(need, now, effects)
        self.exhausted = need.over and self._press.resting(need.hops, now)
        if self.offer is None and need.for_key is None:
            self._wait(now)

    def _ask_for_room(self, need: Need, now: float, effects: list[Effect]) -> None:
        full = self._full(need)
        # each partner makes room for its share, or together they would make too much
        share = replace(need, units=need.units / max(len(full), 1))
        while (state := self._press.following(full, need.hops, now, widen=need.over)) is not None:
            price = self._ceiling(state, need)
            items = self._chooser.choose(state, share, price, now)
            if items:
                self._press.pressed.add(state.key)
                offer = self._made(state, price, items, self._press.hops)
                self._send(state, offer, now, effects)
                return
        self.wake_at = min(self.wake_at, self._press.wake_at)
        if self._press.wake_at == math.inf:
            self._press.rest(need.hops, now, self._rng)

    def _wait(self, now: float) -> None:
        """Wait until a partner may be asked again, unless one reports room before."""
        waits = [s.until for s in self._partners.values() if s.until > now]
        if self._press.rest_until > now:
            waits.append(self._press.rest_until)
        self.wake_at = min([self.wake_at, *waits])

    def _askable(self, need: Need, now: float) -> list[tuple[int, PartnerState]]:
        """Partners that may take a task, the cheapest first, with the price for each."""
        found = []
        for state in self._partners.values():
            state.expire(now)
            if state.until > now or state.bid == NONE or state.key == need.for_key:
                continue
            ceiling = self._ceiling(state, need)
            price = ceiling if state.sibling else max(state.bid, state.least)
            if price <= ceiling and not (need.within and state.most > ceiling):
                found.append((0 if state.sibling else price, state.bid, price, state))
        found.sort(key=lambda entry: entry[:2])
        return [(price, state) for _, _, price, state in found]

    def _full(self, need: Need) -> list[PartnerState]:
        """Partners without room that could be asked to make some."""
        return [
            state
            for state in self._partners.values()
            if state.full
            and not state.broken
            and state.key != need.for_key
            and self._ceiling(state, need) >= max(state.least, 1)
        ]

    def _ceiling(self, state: PartnerState, need: Need) -> int:
        """The highest price for a unit that pays at that partner."""
        held = self._held
        gain = held.saved(min(1.0, held.staying)) if need.gain is None else need.gain
        worth = gain / (1 + self._config.hysteresis)
        return min(state.most, int(worth)) if worth < MAX_PRICE else state.most

    def _made(self, state: PartnerState, price: int, items: tuple[Item, ...], hops: int) -> Offer:
        return Offer(self.number + 1, state.partner.contract, price, items, hops)

    def _send(
        self,
        state: PartnerState,
        offer: Offer,
        now: float,
        effects: list[Effect],
    ) -> None:
        self.number = offer.number
        self.offer = Outstanding(state, offer, now + self._config.offer_s)
        self.wake_at = self.offer.until
        effects.append(Send(state.partner.peer, offer))

    def _withdraw(self, effects: list[Effect]) -> None:
        """Tell the pressed partners that the room is no longer needed."""
        for key in sorted(self._press.pressed):  # the order of a set differs between processes
            state = self._partners[key]
            self.number += 1
            effects.append(Send(key[0], Offer(self.number, key[1], state.least, ())))
        self._press.pressed.clear()

    def _broke(self, state: PartnerState, now: float) -> None:
        state.broken = True
        state.put_off(now, self._rng)
