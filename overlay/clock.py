"""The clock of a peer: the machine's wall clock, as long as it can be believed.

Certificates, contracts, catalog records and the stime of arriving tuples depend on the wall clock,
and somebody can set it wrong while the peer runs.

* Between two readings the wall clock should advance as the steady clock does.
* After a leap the peer keeps its own time by the steady clock, until the clocks of most other
  participants agree with the new reading.
* Unless most of them agree with its own time, it follows the leap after some minutes
  (`OverlayTiming.clock_hold_s`).
* A peer never takes the time from others: they only confirm or contradict its machine's clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import trio

from medusa.overlay.concurrency import next_beat
from medusa.overlay.events import Events, wall_clock
from medusa.overlay.listeners import Listeners
from medusa.overlay.timing import OverlayTiming
from medusa.overlay.troubles import Reason, Trouble

MAX_AHEAD_S: Final = 600.0
"""Seconds by which a number made from another peer's clock (an incarnation, a term) may be ahead of
ours. A number further ahead is not believed: if it were, that peer, whose clock is right again,
could make no greater one."""

MAX_STEP_S: Final = 30.0
"""Seconds by which the clock may be set in each `ANCHOR_S` and be followed at once. It is half of
the error allowed for the time in a datagram, so that others still accept this peer's."""

ANCHOR_S: Final = 60.0
"""Seconds between two marks from which the wall clock is compared with the steady one: many small
steps in that time are a leap."""

FRESH_S: Final = 300.0
"""Seconds for which the time that another participant sent last counts: some exchanges."""

MEETING_S: Final = 5.0
"""How long a peer whose clock was set takes to meet the others again, seconds: some rounds of
gossip."""

AGREE_S: Final = 60.0
"""Seconds by which clocks that agree may differ: the error allowed for the time in a datagram."""

REPORT_S: Final = 600.0
"""Seconds between two events about others that contradict the clock."""

MEND: Final = "if it is wrong, set it (`timedatectl set-ntp true`)"

MEND_OF_TWO: Final = (
    "set the one that is wrong (`timedatectl set-ntp true`); until then neither side takes the "
    "other's datagrams and records"
)

FEWEST: Final = 2
"""The fewest other participants whose clocks can contradict this peer's. If there is only one other
participant, nobody can tell which of the two clocks is wrong."""


MILLIS: Final = 1_000
MICROS: Final = 1_000_000


def latest_number(now: float, per_s: int) -> int:
    """The greatest number that any peer's clock can have made by now.

    Args:
        now: seconds since the epoch, by this peer's clock.
        per_s: units of such a number in a second.
    """
    return int((now + MAX_AHEAD_S) * per_s)


def steady_clock() -> float:
    """Seconds of a clock that nobody can set; the time of a suspended machine counts."""
    # on other systems than Linux the monotonic clock counts suspended time
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return time.monotonic()
    asleep_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
    # whole seconds, because the two clocks are not read at once
    return time.monotonic() + round(asleep_s)


@dataclass(frozen=True, slots=True)
class _Mark:
    """The wall clock showed `wall` when the steady one showed `steady`."""

    wall: float
    steady: float

    def at(self, steady: float) -> float:
        """The wall clock's expected reading when the steady clock reads `steady`."""
        return self.wall + steady - self.steady


class Clock:
    """The peer's clock. Calling it gives seconds since the epoch.

    Args:
        events: receives the clock's leaps, and the contradictions of others.
        wall: the machine's seconds since the epoch.
        steady: seconds of a clock that nobody sets.

    Attributes:
        set: called by `look` when the peer begins to follow a leap instead of its own count.
    """

    def __init__(
        self,
        events: Events,
        timing: OverlayTiming,
        wall: Callable[[], float] = wall_clock,
        steady: Callable[[], float] = steady_clock,
    ) -> None:
        self._events = events
        self._timing = timing
        self._wall = wall
        self._steady = steady
        self._mark = _Mark(wall(), steady())
        self._believed_at = self._mark.steady
        self._followed_at = float("-inf")
        self._leap: _Mark | None = None
        self._others: dict[str, _Mark] = {}
        self._told_at = float("-inf")
        self.set: Listeners[[]] = Listeners()

    def __call__(self) -> float:
        wall, ours = self._wall(), self._mark.at(self._steady())
        return wall if abs(wall - ours) <= MAX_STEP_S else ours

    async def run(self) -> None:
        """Read the machine's clock every `clock_look_s` seconds, for ever."""
        while True:
            self.look()
            await trio.sleep_until(next_beat(self._timing.clock_look_s))

    def look(self) -> None:
        """Follow the machine's clock, or note its leap."""
        wall, steady = self._wall(), self._steady()
        ours = self._mark.at(steady)
        if abs(wall - ours) <= MAX_STEP_S:
            self._leap = None
            if steady - self._mark.steady >= ANCHOR_S:
                self._mark = _Mark(wall, steady)
            return
        if self._leap is None or abs(wall - self._leap.at(steady)) > MAX_STEP_S:
            self._leap = _Mark(wall, steady)
            self._note_leap(ours, wall)
        if self._is_believed(self._leap, ours, steady):
            self._follow(wall, steady)

    def troubles(self) -> Iterator[Trouble]:
        """The troubles of this machine's clock: it is wrong, or seems wrong to most others; or this
        one and the only other one differ."""
        ours = self()
        if self._leap is not None:
            reads = shown(self._leap.at(self._steady()))
            what = f"leapt to {reads}; this peer goes on by its own count, {shown(ours)}"
            yield Trouble(Reason.CLOCK, "this machine's clock", what, MEND)
        elif len(differing := self._differing(self._steady())) >= FEWEST:
            most = shown(_middle(differing))
            what = f"says {shown(ours)}, those of most other participants {most}"
            yield Trouble(Reason.CLOCK, "this machine's clock", what, MEND)
        else:
            for participant, theirs in differing.items():
                both = f"says {shown(theirs)}, this machine's {shown(ours)}"
                what = f"{both}: one of the two is wrong"
                yield Trouble(Reason.CLOCK, f"the clock of {participant}", what, MEND_OF_TWO)

    def receive(self, participant: str, theirs: float) -> None:
        """Take in the time, in seconds since the epoch, that a peer of that participant sends."""
        if not math.isfinite(theirs):
            return
        steady = self._steady()
        self._others[participant] = _Mark(theirs, steady)
        differing = self._differing(steady)
        if differing and steady - self._told_at >= REPORT_S:
            self._told_at = steady
            self._note_contradiction(self(), differing)

    @property
    def is_confirmed(self) -> bool:
        """Whether the time is safe for irrevocable steps: most others agree or, where the others
        neither agree nor differ, the clock has stood for `OverlayTiming.clock_hold_s`."""
        ours, steady = self(), self._steady()
        if _most(self._others_say(steady).values(), ours):
            return True
        if len(self._differing(steady)) >= FEWEST:
            return False
        return self._leap is None and steady - self._believed_at >= self._timing.clock_hold_s

    @property
    def is_contradicted(self) -> bool:
        """Whether most of the participants that answered lately, or the only one, have another
        time. Then this peer may take others' records for expired or of the future. It stays true
        for `MEETING_S` after the clock was set, because until then the peers refused each other."""
        steady = self._steady()
        return steady - self._followed_at < MEETING_S or bool(self._differing(steady))

    def _differing(self, steady: float) -> dict[str, float]:
        """The times of the other participants that differ from ours, if most of them do, the
        earliest first."""
        ours, others = self(), self._others_say(steady)
        differing = {who: each for who, each in others.items() if abs(each - ours) > AGREE_S}
        return differing if 2 * len(differing) > len(others) else {}

    def _is_believed(self, leap: _Mark, ours: float, steady: float) -> bool:
        others = self._others_say(steady).values()
        if _most(others, leap.at(steady)):
            return True
        return not _most(others, ours) and steady - leap.steady >= self._timing.clock_hold_s

    def _others_say(self, steady: float) -> dict[str, float]:
        """The present time by the clocks of the participants that answered lately, the earliest
        first."""
        said = self._others.items()
        self._others = {who: mark for who, mark in said if steady - mark.steady <= FRESH_S}
        times = ((who, mark.at(steady)) for who, mark in self._others.items())
        return dict(sorted(times, key=lambda each: each[1]))

    def _follow(self, wall: float, steady: float) -> None:
        self._mark, self._leap = _Mark(wall, steady), None
        self._believed_at = self._followed_at = steady
        self._events.note("warning", f"believes this machine's clock: it is {shown(wall)}")
        self.set.notify()

    def _note_leap(self, ours: float, wall: float) -> None:
        self._events.note(
            "error",
            f"saw this machine's clock leap from {shown(ours)} to {shown(wall)}: {MEND}; this peer "
            "goes on by its own count until other participants' clocks agree with the leap or, if "
            f"they do not agree with that count, for {self._timing.clock_hold_s / 60:.0f} minutes",
        )

    def _note_contradiction(self, ours: float, others: dict[str, float]) -> None:
        if len(others) < FEWEST:
            ((participant, theirs),) = others.items()
            self._events.note(
                "error",
                f"cannot tell whose clock is wrong: this peer's says {shown(ours)}, that of "
                f"{participant} {shown(theirs)} ({theirs - ours:+.0f} s): {MEND_OF_TWO}",
            )
            return
        middle = _middle(others)
        self._events.note(
            "error",
            f"doubts this peer's clock: it says {shown(ours)}, those of its peers {shown(middle)} "
            f"({middle - ours:+.0f} s; {len(others)} participants): {MEND}; as long as they differ "
            "neither side takes the other's datagrams and records",
        )


def _middle(times: dict[str, float]) -> float:
    return list(times.values())[len(times) // 2]


def _most(others: Collection[float], moment: float) -> bool:
    """Whether more than half of these times agree with that moment."""
    return 2 * sum(abs(each - moment) <= AGREE_S for each in others) > len(others)


def shown(moment: float) -> str:
    """A time as text for people, UTC."""
    try:
        return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{moment:.0f} s"
