"""Chooses the tasks to offer to a partner at a price."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Final

from medusa.contracts.market.config import MAX_ITEMS, MarketConfig
from medusa.contracts.market.holdings import SLACK, Holdings, Key, Placed
from medusa.contracts.market.messages import Item
from medusa.contracts.market.partners import PartnerState

LOOKED_AT: Final = 2 * MAX_ITEMS
"""Tasks considered for an offer; the others come first the next time. So the cost of an offer does
not grow with the number of tasks."""


@dataclass(frozen=True, slots=True)
class Need:
    """The reason for which load should leave this peer.

    Attributes:
        units: how much; inf: all for which a move pays.
        gain: micros per unit and second that its absence is worth at most; None: the cost of
            running it here.
        within: this peer is within its capacity and no partner presses it. It then moves only tasks
            that are cheaper elsewhere even at a contract's highest price: the range below that
            price is for moving excess load, and every move disturbs a consumer.
        for_key: the partner that needs the room.
        hops: how far full peers may be asked to make room.
    """

    units: float
    gain: float | None = None
    within: bool = False
    for_key: Key | None = None
    hops: int = 0

    @property
    def over(self) -> bool:
        """Whether this peer is above its capacity."""
        return self.for_key is None and not self.within


def _largest(item: Item) -> float:
    return -item.load


class Chooser:
    """Chooses tasks for offers."""

    __slots__ = ("_config", "_held", "_partners")

    def __init__(
        self, held: Holdings, partners: dict[Key, PartnerState], config: MarketConfig
    ) -> None:
        self._held = held
        self._partners = partners
        self._config = config

    def choose(self, state: PartnerState, need: Need, price: int, now: float) -> tuple[Item, ...]:
        """The tasks to offer: the largest that fit into the need, then the smallest that covers the
        rest."""
        held, config = self._held, self._config
        seen = sorted(self._own(state), key=_largest)
        seen += sorted(self._guests(state, now), key=_largest)
        limit = min(config.batch, MAX_ITEMS, config.moving - len(held.leaving))
        free = state.partner.most_given - held.given.get(state.key, 0.0) + SLACK
        chosen: list[Item] = []
        units = 0.0
        covering: Item | None = None
        for item in seen:
            if len(chosen) >= limit or need.units - units <= SLACK:
                break
            if units + item.load > free or not self._pays(state, need, item, price, units):
                continue
            if units + item.load > need.units + SLACK:
                covering = item
                continue
            chosen.append(item)
            units += item.load
        lacking = need.units - units > SLACK and len(chosen) < limit
        if lacking and covering is not None and units + covering.load <= free:
            chosen.append(covering)
        return tuple(chosen)

    def _pays(self, state: PartnerState, need: Need, item: Item, price: int, gone: float) -> bool:
        """Whether the move of the task pays at that price, after `gone` other units have left."""
        asked: float = max(price, state.most) if need.within else price
        asked += state.partner.migration_cost / (item.load * self._config.horizon_s)
        worth = self._held.saved(item.load, gone) if need.gain is None else need.gain
        return worth >= asked * (1 + self._config.hysteresis)

    def _own(self, state: PartnerState) -> list[Item]:
        """Our own tasks. Unsuitable ones are put behind the others for the next time."""
        own, leaving, gives = self._held.own, self._held.leaving, state.partner.gives
        looked = list(islice(own.values(), LOOKED_AT))
        good = [i for i in looked if i.load > 0 and i.task not in leaving and gives(i)]
        if len(good) < len(looked):
            kept = {item.task for item in good}
            for item in looked:
                if item.task not in kept:
                    own[item.task] = own.pop(item.task)
        return good

    def _guests(self, state: PartnerState, now: float) -> list[Item]:
        """The tasks of other partners that this peer runs and may pass on to this partner. There
        are none while there are many own tasks: to pass a task on makes a chain of two contracts.
        """
        guests = self._held.guests
        if len(self._held.own) - len(self._held.leaving) >= LOOKED_AT:
            return []
        looked = list(islice(guests.items(), LOOKED_AT))
        good = [task for task, guest in looked if self._passable(state, guest, now)]
        if len(good) < len(looked):
            kept = set(good)
            for task, _ in looked:
                if task not in kept:
                    guests[task] = guests.pop(task)
        return [guests[task].item for task in good]

    def _passable(self, state: PartnerState, guest: Placed, now: float) -> bool:
        """Whether a guest may go to that partner: never back to the peer that gave it, or to its
        owner."""
        giver = self._partners.get(guest.key)
        return (
            giver is not None
            and (giver.partner.sublet or state.sibling)
            and state.partner.peer not in (guest.key[0], guest.item.owner)
            and now >= guest.since + self._config.stay_s
            and guest.item.task not in self._held.leaving
            and guest.item.load > 0
            and state.partner.gives(guest.item)
        )
