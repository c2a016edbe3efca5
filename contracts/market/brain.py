"""The Brain of a peer: it decides which tasks to offer and which to take.

It knows the peer's own cost, load and contracts. Together the Brains make the federation converge
to an acceptable allocation. The mechanism is the bounded-price one of Balazinska, Balakrishnan and
Stonebraker (Contract-Based Load Management in Federated Distributed Systems, NSDI 2004, section 3):
a task moves where the unit marginal cost is above the price at the giver and below it at the taker.
Additions, and their reasons:

* An answer carries a bid, so the next offer goes at once to the cheapest partner, at its price.
* A peer within its capacity passes load on only in two cases: another peer pays it more for the
  room than it pays (a *pressing* offer), or the task is cheaper elsewhere even at the contract's
  highest price. So load flows through full peers at falling prices, as far as the price range goes,
  and no further than needed.
* A refused partner is told when there is room, so no peer needs to ask again and again.
"""

from __future__ import annotations

from random import Random  # noqa: TID251  # the type; the generator is passed in

from medusa.contracts.market.config import MarketConfig
from medusa.contracts.market.cost import Cost
from medusa.contracts.market.events import (
    Effect,
    Event,
    MoveEnded,
    PartnersChanged,
    Received,
    TaskBack,
    TaskGone,
    TaskHere,
    TaskOut,
    Tick,
    Unreachable,
)
from medusa.contracts.market.holdings import Holdings, Key
from medusa.contracts.market.messages import Answer, Offer
from medusa.contracts.market.partners import PartnerState
from medusa.contracts.market.returning import Returner
from medusa.contracts.market.shedding import Outstanding, Shedder
from medusa.contracts.market.taking import Taker, refusal


class Brain:
    """Trades load for one peer: events in, effects out.

    Attributes:
        peer: its id (hex).
        held: the tasks that it runs, and those that are leaving and coming.
        partners: the state of each partner.
    """

    __slots__ = ("_returner", "_shedder", "_taker", "_waits", "held", "partners", "peer")

    def __init__(  # noqa: PLR0917  # the order in which a driver knows them
        self,
        peer: str,
        cost: Cost,
        capacity: float,
        config: MarketConfig,
        rng: Random,
        number: int = 0,
    ) -> None:
        """
        Args:
            capacity: units that the peer is willing to run, below `cost.total`.
            number: the number of the latest offer of earlier runs, or any higher number.
        """
        self.peer = peer
        self.held = Holdings(cost, capacity, config)
        self.partners: dict[Key, PartnerState] = {}
        self._taker = Taker(peer, self.held, config)
        self._shedder = Shedder(self.held, self.partners, self._taker, config, rng, number=number)
        self._returner = Returner(self.held, self.partners, config)
        self._waits = config.waits

    @property
    def wake_at(self) -> float:
        """Seconds at which a Tick is due; inf: not before another event."""
        return min(
            self._shedder.wake_at,
            self._taker.collect_at,
            self._returner.wake_at,
            self.held.lapse_at,
        )

    @property
    def offer(self) -> Outstanding | None:
        """The offer that waits for an answer, if there is one."""
        return self._shedder.offer

    @property
    def number(self) -> int:
        """The number of the latest offer."""
        return self._shedder.number

    def handle(self, event: Event, now: float) -> list[Effect]:
        """The effects of an event.

        Args:
            now: seconds, of a clock that never goes back.
        """
        effects: list[Effect] = []
        self.held.advance(now)
        self.held.lapse(now)
        self._note(event, now, effects)
        self._taker.collect(now, effects)
        self._taker.notify(self.partners, effects)
        self._shedder.plan(now, effects)
        self._returner.plan(now, self._shedder.exhausted, effects)
        return effects

    def _note(self, event: Event, now: float, effects: list[Effect]) -> None:
        match event:
            case Tick():
                pass
            case PartnersChanged():
                self._set_partners(event, now, effects)
            case TaskHere():
                key = (event.giver, event.contract) if event.giver else None
                self.held.put(event.item, key, event.price, now)
                self._returner.arrived(event.item.task, key, now, effects)
            case TaskOut():
                key = (event.worker, event.contract)
                self.held.put_out(event.item, key, event.price, now)
                self._returner.placed(event.item.task, key, now, effects)
            case TaskGone():
                self.held.drop(event.task)
            case TaskBack():
                self.held.back(event.task)
            case Received():
                self._receive(event, now, effects)
            case Unreachable():
                self._shedder.unreachable(event.peer, now)
            case MoveEnded():
                # if the task has gone elsewhere meanwhile, the partner did not fail
                failed = not event.ok and self.held.item(event.task) is not None
                self.held.stay(event.task)
                self._shedder.ended(event.task, failed, now)

    def _set_partners(self, event: PartnersChanged, now: float, effects: list[Effect]) -> None:
        """Replace the partners; known ones keep their state."""
        known = dict(self.partners)
        self.partners.clear()
        for partner in event.partners:
            key = (partner.peer, partner.contract)
            state = known.pop(key, None) or PartnerState(partner, self._waits())
            state.partner = partner
            self.partners[key] = state
        gone = set(known)
        self._taker.forget(gone)
        self._shedder.changed(gone)
        self._returner.drain(now, effects)

    def _receive(self, event: Received, now: float, effects: list[Effect]) -> None:
        message = event.message
        if isinstance(message, Offer):
            state = self.partners.get((event.peer, message.contract))
            if state is None:
                why = "there is no such contract in force between us"
                effects.append(refusal(event.peer, message, why))
                return
            self._note_alive(state)
            self._taker.receive(state, message, now, effects)
        elif isinstance(message, Answer):
            for key, state in self.partners.items():
                if key[0] == event.peer:
                    self._note_alive(state)
                    if self._shedder.answered(key, message, now, effects):
                        self._taker.pass_on(self.partners, effects)

    def _note_alive(self, state: PartnerState) -> None:
        """A message of a partner arrived, so it is alive."""
        if state.broken:
            state.welcome()
