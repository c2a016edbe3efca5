"""The tasks of a peer, those about to leave or to come, and their cost."""

from __future__ import annotations

import math
from typing import Final

from medusa.contracts.market.config import MarketConfig
from medusa.contracts.market.cost import Cost, unit_cost
from medusa.contracts.market.messages import Item

SLACK: Final = 1e-6
"""Units of load below which two loads count as equal: sums of floats drift."""

Key = tuple[str, str]
"""A partner: its peer id (hex) and the contract's id."""


class Placed:
    """A task that runs under a contract: here for a partner, or at a partner for us.

    Attributes:
        key: the key of that partner. price: micros per unit and second, as agreed. since: seconds.
    """

    __slots__ = ("item", "key", "price", "since")

    def __init__(self, item: Item, key: Key, price: int, since: float) -> None:
        self.item = item
        self.key = key
        self.price = price
        self.since = since


class Reserved:
    """Room kept for a task that was accepted or recalled. until: when the room is free again if the
    task has not come, seconds."""

    __slots__ = ("key", "load", "until")

    def __init__(self, load: float, key: Key, until: float) -> None:
        self.load = load
        self.key = key
        self.until = until


class Holdings:
    """Tasks and their loads. Every operation but the scans of `lapse` takes constant time.

    Attributes:
        capacity: units that this peer is willing to run.
        own: our own tasks that run here. guests: tasks run here for partners.
        outs: our own tasks that run at partners.
        leaving: tasks that still run here but are leaving, with their load.
        coming: accepted or recalled tasks that have not arrived.
        level, left, due: units of all that runs here, of `leaving`, of `coming`.
        given, taken: units by partner, of `outs`, and of guests together with `coming`.
    """

    __slots__ = (
        "_before",
        "_confirm_s",
        "_low",
        "_since",
        "capacity",
        "coming",
        "cost",
        "due",
        "given",
        "guests",
        "lapse_at",
        "leaving",
        "left",
        "level",
        "outs",
        "own",
        "taken",
    )

    def __init__(self, cost: Cost, capacity: float, config: MarketConfig) -> None:
        self.cost = cost
        self.capacity = capacity
        self.own: dict[str, Item] = {}
        self.guests: dict[str, Placed] = {}
        self.outs: dict[str, Placed] = {}
        self.leaving: dict[str, float] = {}
        self.coming: dict[str, Reserved] = {}
        self.given: dict[Key, float] = {}
        self.taken: dict[Key, float] = {}
        self.level = self.left = self.due = 0.0
        self.lapse_at = math.inf
        self._confirm_s = config.confirm_s
        self._since, self._low, self._before = -math.inf, 0.0, 0.0

    # -- loads and costs --------------------------------------------------------------------------

    @property
    def room(self) -> float:
        """Units that still fit, counting coming tasks; negative: above capacity."""
        return self.capacity - self.level - self.due

    @property
    def staying(self) -> float:
        """Units that run here and are not leaving."""
        return self.level - self.left

    def saved(self, load: float, gone: float = 0.0) -> float:
        """Unit cost saved by shedding a task of `load`, after `gone` other units have left."""
        return unit_cost(self.cost, self.staying - gone, -load) if load > 0 else 0.0

    def added(self, load: float) -> float:
        """Unit cost of one more task of `load`, beside all coming tasks."""
        return unit_cost(self.cost, self.level + self.due, load)

    def lacking(self, units: float, load: float, price: float) -> float:
        """How many units must leave before `units` more, in tasks of `load`, can be taken at
        `price` each; 0: none, or the price is too low in any case."""
        if unit_cost(self.cost, 0.0, load) > price:
            return 0.0
        level, most = 0.0, max(self.capacity - load, 0.0)
        if unit_cost(self.cost, most, load) <= price:
            level = most
        while most - level > SLACK:
            middle = (level + most) / 2
            cheap = unit_cost(self.cost, middle, load) <= price
            level, most = (middle, most) if cheap else (level, middle)
        return max(units - (level + load - self.level - self.due) - self.left, 0.0)

    def over(self, now: float) -> tuple[float, float]:
        """Units above capacity that have lasted and are not leaving yet, and the time (seconds) of
        the next look, because more of the excess may have lasted by then.

        The excess is measured at the lowest level in the last `confirm_s` to two `confirm_s`: so a
        single high sample, or a load that varies around the capacity, moves nothing.
        """
        excess = self.staying - self.capacity
        if excess <= SLACK:
            return 0.0, math.inf
        lasting = min(self._before, self._low, self.level) - self.left - self.capacity
        return max(lasting, 0.0), math.inf if lasting >= excess else self._since + self._confirm_s

    def advance(self, now: float) -> None:
        """Time has passed at an unchanged level."""
        # added in the same order as in `over`: another order would give other floats
        if now >= self._since + self._confirm_s:
            long = now >= self._since + 2 * self._confirm_s
            self._before = self.level if long else self._low
            self._low = self.level
            self._since = now

    # -- tasks -------------------------------------------------------------------------------------

    def put(self, item: Item, key: Key | None, price: int, now: float) -> None:
        """A task runs here, for that partner, or as our own if `key` is None."""
        known = self.own.get(item.task) if key is None else None
        guest = self.guests.get(item.task) if key is not None else None
        since = now
        if guest is not None and guest.key == key:
            known, since = guest.item, guest.since
        if known is None:
            self.drop(item.task)
            self.release(item.task)
            change = item.load
        else:
            change = item.load - known.load
            if item.task in self.leaving:
                self.left += change
                self.leaving[item.task] = item.load
        self.level += change
        self._low = min(self._low, self.level)
        if key is None:
            self.own[item.task] = item
        else:
            self.guests[item.task] = Placed(item, key, price, since)
            _add(self.taken, key, change)

    def drop(self, task: str) -> Item | None:
        """A task no longer runs here; returns it, or None if it did not run here."""
        self.stay(task)
        item = self.own.pop(task, None)
        guest = self.guests.pop(task, None)
        if guest is not None:
            item = guest.item
            _add(self.taken, guest.key, -item.load)
        if item is not None:
            self.level -= item.load
            # a task that has left is certain, and needs no confirmation
            self._low -= item.load
            self._before -= item.load
        return item

    def put_out(self, item: Item, key: Key, price: int, now: float) -> None:
        """A task of ours runs at that partner."""
        self.back(item.task)
        self.outs[item.task] = Placed(item, key, price, now)
        _add(self.given, key, item.load)

    def back(self, task: str) -> None:
        """A task of ours no longer runs at a partner."""
        placed = self.outs.pop(task, None)
        if placed is not None:
            _add(self.given, placed.key, -placed.item.load)

    # -- on the way --------------------------------------------------------------------------------

    def leave(self, task: str) -> None:
        """A task that runs here begins to leave."""
        item = self.item(task)
        if item is not None and task not in self.leaving:
            self.leaving[task] = item.load
            self.left += item.load

    def stay(self, task: str) -> None:
        """A task is no longer leaving."""
        self.left -= self.leaving.pop(task, 0.0)
        if not self.leaving:
            self.left = 0.0

    def reserve(self, task: str, load: float, key: Key, until: float) -> None:
        """Keep room for a task."""
        self.release(task)
        self.coming[task] = Reserved(load, key, until)
        self.due += load
        self.lapse_at = min(self.lapse_at, until)
        _add(self.taken, key, load)

    def release(self, task: str) -> None:
        """Stop keeping room for a task."""
        reserved = self.coming.pop(task, None)
        if reserved is not None:
            self.due -= reserved.load
            _add(self.taken, reserved.key, -reserved.load)
        if not self.coming:
            self.due, self.lapse_at = 0.0, math.inf

    def lapse(self, now: float) -> None:
        """Stop keeping room for overdue tasks."""
        if now < self.lapse_at:
            return
        for task in [task for task, reserved in self.coming.items() if reserved.until <= now]:
            self.release(task)
        self.lapse_at = min((r.until for r in self.coming.values()), default=math.inf)

    def item(self, task: str) -> Item | None:
        """A task that runs here, or None."""
        guest = self.guests.get(task)
        return self.own.get(task) if guest is None else guest.item

    def knows(self, task: str) -> bool:
        """Whether a task runs here, is coming, or is our own."""
        return task in self.own or task in self.guests or task in self.outs or task in self.coming


def _add(units: dict[Key, float], key: Key, change: float) -> None:
    total = units.get(key, 0.0) + change
    if total > SLACK:
        units[key] = total
    else:
        units.pop(key, None)
