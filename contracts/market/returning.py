"""Recalls our own tasks that are cheaper here again, and returns guests: tasks that this peer
cannot carry, and tasks under a contract that is over."""

from __future__ import annotations

import math
from typing import Final

from medusa.contracts.market.config import MarketConfig
from medusa.contracts.market.events import Effect, GiveBack, Recall
from medusa.contracts.market.holdings import SLACK, Holdings, Key, Placed
from medusa.contracts.market.partners import PartnerState

SIBLING_RECALL: Final = 0.5
"""A task at a sibling peer comes home if it costs less than this share of its cost when it left.
Nobody pays for it there, so only a clear difference counts."""


class Returner:
    """Recalls own tasks and gives guests back.

    Attributes:
        wake_at: seconds at which `plan` is due again, without other events.
    """

    __slots__ = (
        "_asked",
        "_calm_at",
        "_config",
        "_dearest",
        "_held",
        "_known",
        "_partners",
        "_searched",
        "wake_at",
    )

    def __init__(
        self, held: Holdings, partners: dict[Key, PartnerState], config: MarketConfig
    ) -> None:
        self._held = held
        self._partners = partners
        self._config = config
        self._asked: dict[str, float] = {}
        self._calm_at = math.inf
        self._dearest = 0.0
        self._searched = 0.0
        self._known = False
        self.wake_at = math.inf

    def arrived(self, task: str, key: Key | None, now: float, effects: list[Effect]) -> None:
        """A task runs here, for that partner."""
        if key is None:
            self._asked.pop(task, None)
        elif self._known and key not in self._partners:
            self._give_back(task, now, effects)

    def placed(self, task: str, key: Key, now: float, effects: list[Effect]) -> None:
        """A task of ours runs at that partner."""
        self._dearest = max(self._dearest, self._worth(self._held.outs[task]))
        self._searched = 0.0
        if self._known and key not in self._partners:
            self._recall(task, now, effects)

    def drain(self, now: float, effects: list[Effect]) -> None:
        """The partners have changed: return every task whose contract is no longer in force."""
        self._known = True
        for task in [t for t, out in self._held.outs.items() if out.key not in self._partners]:
            self._recall(task, now, effects)
        for task in [t for t, g in self._held.guests.items() if g.key not in self._partners]:
            self._give_back(task, now, effects)

    def plan(self, now: float, exhausted: bool, effects: list[Effect]) -> None:
        """
        Args:
            exhausted: this peer is above its capacity, and no partner takes anything.
        """
        self.wake_at = math.inf
        if self._asked:
            self._ask_again(now, effects)
        if exhausted:
            self._relieve(now, effects)
        elif self._held.outs:
            self._recall_cheaper(now, effects)

    def _ask_again(self, now: float, effects: list[Effect]) -> None:
        held = self._held
        done = [t for t in self._asked if t not in held.outs and t not in held.guests]
        for task in done:
            del self._asked[task]
        for task in [t for t, until in self._asked.items() if until <= now]:
            del self._asked[task]
            held.stay(task)
            out, guest = held.outs.get(task), held.guests.get(task)
            if out is not None and out.key not in self._partners:
                self._recall(task, now, effects)
            elif guest is not None and guest.key not in self._partners:
                self._give_back(task, now, effects)
        self.wake_at = min(self._asked.values(), default=math.inf)

    def _relieve(self, now: float, effects: list[Effect]) -> None:
        """Give guests back until this peer is at its capacity."""
        held = self._held
        excess = held.over(now)[0]
        for task, guest in list(held.guests.items()):
            # the guest may be passed on after the first `stay_s`, which is better for its giver
            stays_until = guest.since + 2 * self._config.stay_s
            if excess <= SLACK:
                return
            if task in held.leaving:
                continue
            if now < stays_until:
                self.wake_at = min(self.wake_at, stays_until)
                continue
            excess -= guest.item.load
            self._give_back(task, now, effects)

    def _recall_cheaper(self, now: float, effects: list[Effect]) -> None:
        held = self._held
        room = held.room
        if room <= self._searched + SLACK or held.added(min(1.0, room)) >= self._dearest:
            self._calm_at = math.inf
            return
        if self._calm_at == math.inf:
            self._calm_at = now + self._config.settle_s
        if now >= self._calm_at:
            self._calm_at = self._search(now, effects)
        self.wake_at = min(self.wake_at, self._calm_at)

    def _search(self, now: float, effects: list[Effect]) -> float:
        """Recall tasks that are cheaper here, the dearest first.

        Returns:
            seconds at which a task may have stayed long enough; inf: search again when there is
            more room.
        """
        held = self._held
        again = math.inf
        room = held.room
        recalled = False
        for task, out in sorted(held.outs.items(), key=lambda entry: -self._worth(entry[1])):
            load = out.item.load
            if not 0 < load <= held.room + SLACK or held.added(load) >= self._worth(out):
                continue
            stays_until = out.since + self._config.stay_s
            if now < stays_until:
                again = min(again, stays_until)
            else:
                recalled |= self._recall(task, now, effects)
        if not recalled and again == math.inf:
            self._searched = room
        return again

    def _worth(self, out: Placed) -> float:
        """The unit cost here below which the task should come home, micros."""
        state = self._partners.get(out.key)
        if state is None or state.sibling:
            return out.price * SIBLING_RECALL
        migration = state.partner.migration_cost / (
            max(out.item.load, SLACK) * self._config.horizon_s
        )
        return out.price * (1 - self._config.recall) - migration

    def _recall(self, task: str, now: float, effects: list[Effect]) -> bool:
        if task in self._asked:
            return False
        out = self._held.outs[task]
        until = now + self._config.reserve_s
        self._asked[task] = until
        self._held.reserve(task, out.item.load, ("", ""), until)
        effects.append(Recall(task))
        self.wake_at = min(self.wake_at, until)
        return True

    def _give_back(self, task: str, now: float, effects: list[Effect]) -> None:
        if task in self._asked:
            return
        until = now + self._config.reserve_s
        self._asked[task] = until
        self._held.leave(task)
        effects.append(GiveBack(task))
        self.wake_at = min(self.wake_at, until)
