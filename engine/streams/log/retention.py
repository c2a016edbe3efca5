from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from medusa.engine.objects.schema import BEGINNING, END
from medusa.overlay.errors import NotRetainedError
from medusa.overlay.listeners import Listeners

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


Kind = Literal[
    "bill",
    "call",
    "carry",
    "here",
    "home",
    "left",
    "limit",
    "located",
    "past",
    "primary",
    "replica",
    "secondary",
    "subscriber",
    "task",
    "view",
    "worker",
]


class Hold(NamedTuple):
    """The consumer for which rows of a log are kept. Ids that other participants choose have a kind
    of their own."""

    kind: Kind
    id: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.id}".rstrip()


@dataclass(slots=True)
class _Need:
    """Rows with stime > boundary are needed. Times are of trio's clock, seconds: a hold does not
    depend on the machine's clock.

    Attributes:
        expires: when the need ends; None: never. holder: the participant that needs the rows, if it
            is not ours. since: since when it has kept rows from that boundary on.
    """

    boundary: int
    expires: float | None
    holder: str = ""
    since: float | None = None


class Retention:
    """The holds on a log, and its history. Sans IO.

    Attributes:
        rests_until: the time of trio's clock, seconds, before which no more rows can be dropped
            unless the log or a hold changes; -inf after such a change.
        stirred: called at the first such change after `rest`.
    """

    def __init__(self, history_us: int) -> None:
        self._history_us = history_us
        self._holds: dict[Hold, _Need] = {}
        self.rests_until = -math.inf
        self.stirred: Listeners[[]] = Listeners()

    @property
    def history_us(self) -> int:
        """How much stime behind the boundary is kept in any case, microseconds."""
        return self._history_us

    @history_us.setter
    def history_us(self, history_us: int) -> None:
        self._history_us = history_us
        self.stir()

    def stir(self) -> None:
        """Note a change of the log, or of its holds."""
        if self.rests_until > -math.inf:
            self.rests_until = -math.inf
            self.stirred.notify()

    def rest(self) -> None:
        """Note that no more rows can be dropped until a hold expires, or something changes."""
        ends = (hold.expires for hold in self._holds.values() if hold.expires is not None)
        self.rests_until = min(ends, default=math.inf)

    @property
    def is_at_rest(self) -> bool:
        """Whether only a change can allow to drop more rows, or begin to keep rows for another
        participant."""
        return self.rests_until == math.inf and not self.is_held_by_others

    @property
    def is_held_by_others(self) -> bool:
        """Whether another participant needs rows."""
        return any(hold.holder for hold in self._holds.values())

    @property
    def consumers(self) -> tuple[Hold, ...]:
        return tuple(self._holds)

    def hold(
        self, consumer: Hold, boundary: int, expires: float | None = None, holder: str = ""
    ) -> None:
        """Note that a consumer needs the rows with stime > boundary, until it is released or
        `expires`. holder: its participant, if it is not ours."""
        before = self._holds.get(consumer)
        since = before.since if before is not None and before.boundary == boundary else None
        self._holds[consumer] = _Need(boundary, expires, holder, since)
        self.stir()

    def release(self, consumer: Hold) -> None:
        self._holds.pop(consumer, None)
        self.stir()

    def held(self, without: frozenset[Hold]) -> int:
        """The least boundary of all holds but these; END if there are none."""
        others = (hold.boundary for name, hold in self._holds.items() if name not in without)
        return min(others, default=END)

    def floor(self, boundary: int, newest: int | None, now: float, *, foreign: bool = True) -> int:
        """The boundary up to which rows may be dropped.

        Args:
            boundary: the boundary of the log. newest: the log's greatest stime, None without rows.
            now: seconds of trio's clock.
            foreign: whether the holds of other participants count.
        """
        expired = [
            name for name, h in self._holds.items() if h.expires is not None and h.expires <= now
        ]
        for name in expired:
            del self._holds[name]
        # The boundary of an ended stream is END, so its history counts from its last tuple.
        present = boundary if boundary != END else newest
        if present is None:
            return BEGINNING
        holds = (h.boundary for h in self._holds.values() if foreign or not h.holder)
        return min([present - self.history_us, *holds])

    def lagging(self, floor: int, now: float) -> Iterator[tuple[Hold, str, int, float]]:
        """(consumer, holder, boundary, since) of other participants' holds on rows with stime <=
        floor. since: when the consumer began to lag; since and now: seconds of trio's clock."""
        for consumer, hold in self._holds.items():
            if not hold.holder or hold.boundary >= floor:
                hold.since = None
                continue
            hold.since = now if hold.since is None else hold.since
            yield consumer, hold.holder, hold.boundary, hold.since


def too_old(stream: str, oldest: int, asked: int, why: str = "") -> NotRetainedError:
    """The error for a reader that asks for older tuples than are kept.

    Args:
        oldest, asked: boundaries, microseconds.
        why: unacknowledged tuples of the reader were dropped; "": not known.
    """
    reason = f" ({why})" if why else ""
    return NotRetainedError(
        f"{stream} is kept from boundary {oldest} on{dated(oldest)}; {asked}{dated(asked)} is "
        f"older{reason}: begin at {oldest}, or at the beginning"
    )


def dated(boundary: int) -> str:
    """A boundary's date and time behind it, in brackets; empty beyond all calendars."""
    try:
        moment = _EPOCH + datetime.timedelta(microseconds=boundary)
    except OverflowError:
        return ""
    return f" ({moment.isoformat().removesuffix('+00:00')}Z)"
