"""Decides when a secondary takes over, by its primary's signs of life. Sans IO.

The failure detector's report is enough: a primary that was only slow steps down afterwards, and
both compute the same. A bound on the query is enough as well: the secondary succeeds a primary
whose consumers wait for longer, dead or not (a stalled stream is evidence).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.streams.config import Timing
from medusa.overlay.gossip.events import Health

MAX_PASSED: Final = 512
"""The most boundaries that this peer passed and whose time it remembers. Beyond that number it
forgets the oldest, and may report a long lag as shorter."""

DOUBT_S: Final = 1.5
"""Silence of a primary after which the failure detector probes it, seconds: three messages."""


@dataclass(frozen=True, slots=True)
class SignOfLife:
    """A message of the primary. behind_us: its outputs' lag behind ours, microseconds; 0: this peer
    does not compute them."""

    behind_us: int = 0


@dataclass(frozen=True, slots=True)
class Detected:
    """The failure detector's report on the primary."""

    health: Health


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = SignOfLife | Detected | Tick


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Take the query over. reason: for people."""

    reason: str


@dataclass(frozen=True, slots=True)
class Doubt:
    """Let the failure detector probe the primary."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the primary whether this peer is still its secondary."""


Effect = TakeOver | Doubt | Ask


class Watch:
    """One secondary's watch on its primary.

    Args:
        bound_s: how long consumers may wait, seconds; 0: without limit. now: on any clock, seconds;
            the same for all calls. resumed: whether the last message came before a restart: then
            the primary is asked soon. Attributes: silent: whether no message has come since that
            restart.
    """

    def __init__(
        self, bound_s: float, now: float, timing: Timing, *, resumed: bool = False
    ) -> None:
        self._bound_s = bound_s
        self._timing = timing
        self._last_sign_at = now
        self._asked_at = now
        self._ask_s = DOUBT_S if resumed else timing.ask_s
        self.silent = resumed
        self._behind_since: float | None = None

    def sure(self, now: float) -> bool:
        """Whether this peer is surely the secondary, and knows the query as it is now."""
        return not self.silent and now - self._last_sign_at <= self._timing.sure_s

    def handle(self, event: Event, now: float) -> list[Effect]:
        match event:
            case SignOfLife(behind_us):
                self._last_sign_at = self._asked_at = now
                self._ask_s = self._timing.ask_s
                self.silent = False
                return self._weigh_lag(behind_us, now)
            case Detected(Health.DEAD):
                return [TakeOver("it is dead")]
            case Detected(Health.LEFT):
                return [TakeOver("it has stopped")]
            case Detected():
                return []
            case Tick():
                return self._weigh_silence(now)

    def _weigh_lag(self, behind_us: int, now: float) -> list[Effect]:
        if not self._bound_s or behind_us <= self._bound_s * 1e6:
            self._behind_since = None
            return []
        if self._behind_since is None:
            self._behind_since = now
        if now - self._behind_since <= self._bound_s:
            return []
        return [TakeOver(f"its results are {behind_us / 1e6:.1f} s behind")]

    def _weigh_silence(self, now: float) -> list[Effect]:
        silence = now - self._last_sign_at
        if self._bound_s and silence > max(self._bound_s, DOUBT_S):
            return [TakeOver(f"nothing was heard of it for {silence:.1f} s")]
        effects: list[Effect] = []
        if silence > DOUBT_S:
            effects.append(Doubt())
        if now - self._asked_at > self._ask_s:
            self._asked_at = now
            effects.append(Ask())
        return effects


class Lag:
    """How long one peer has had tuples that another lacks, by the clock and not by event time."""

    def __init__(self) -> None:
        self._passed: deque[tuple[int, float]] = deque(maxlen=MAX_PASSED)

    def note(self, boundary: int, now: float) -> None:
        """Note our boundary, microseconds. now: on any clock, seconds; the same for all calls."""
        if not self._passed or self._passed[-1][0] < boundary:
            self._passed.append((boundary, now))

    def over(self, boundary: int, now: float) -> float:
        """How long this peer has had tuples after `boundary`, which is the boundary of the other
        peer, seconds; 0.0: this peer has none. `boundary` must not decrease: boundaries that the
        other peer has passed are forgotten."""
        while self._passed and self._passed[0][0] <= boundary:
            self._passed.popleft()
        return now - self._passed[0][1] if self._passed else 0.0


class Comparison:
    """Compares a standby's boundaries with those that its primary reports."""

    def __init__(self) -> None:
        self._reported: Mapping[str, int] = {}
        self._lags: dict[str, Lag] = {}

    def receive(self, boundaries: Mapping[str, int]) -> None:
        """Take the primary's report: its boundaries, by output, microseconds."""
        self._reported = boundaries

    def note(self, boundaries: Mapping[str, int], now: float) -> None:
        """Note the standby's boundaries. now: on any clock, seconds; the same for all calls."""
        for output, boundary in boundaries.items():
            self._lag(output).note(boundary, now)

    def behind_us(self, boundaries: Mapping[str, int]) -> int:
        """Our lag behind the primary, as last reported, microseconds. boundaries: ours."""
        gaps = [
            reported - boundaries[output]
            for output, reported in self._reported.items()
            if output in boundaries and BEGINNING < reported < END
        ]
        return max(0, *gaps) if gaps else 0

    def ahead_us(self, outputs: Collection[str], now: float) -> int:
        """How long this peer has had tuples of these outputs that the primary lacks,
        microseconds."""
        ahead_s = [
            self._lag(output).over(reported, now)
            for output, reported in self._reported.items()
            if output in outputs and reported > BEGINNING
        ]
        return int(1e6 * max(ahead_s, default=0.0))

    def _lag(self, output: str) -> Lag:
        return self._lags.setdefault(output, Lag())
