"""Figures and checks of the high-availability demonstration, and its JSON.

The checks are the promises of each mode, and the papers' findings. Hwang et al. (ICDE 2005):
passive standby adds most to the delay, because answers wait for the checkpoint; active standby
costs most and recovers fastest; upstream backup costs least and pays at recovery, when the
secondary repeats the work since then.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from msgspec import Struct

from medusa.engine.objects.availability import Mode, Recovery
from medusa.testnet.ha.chain import NONE, SERVERS, Answer, Reading, Variant
from medusa.testnet.kit.report import Check


class ModeResult(Struct, frozen=True):
    """One run of the chain.

    Attributes:
        lost, duplicated: missing answers, and repeated ones. wrong: incorrect answers, from windows
            of which a part was forgotten. Null if the run failed before the kill.
        expected: the number of right answers.
        recovery_ms: delay by the kill: by how much the first answer after it was later than usual,
            or `stall_ms` if that is more; null: none came.
        first_new_ms: time from the kill to that answer, the chain's usual delay included.
        stall_ms: the longest time without an answer after the kill, less the longest before it.
        delay_ms: the time from the close of a window to its answer, the median before the kill.
        added_delay_ms: more than without a secondary, before the kill.
        cpu_s: CPU seconds per second of all peers and their JVMs before the kill; bytes_s: bytes
            per second that they sent to each other.
        cpu_overhead, network_overhead: their increase over a run without secondaries, as a share.
            These three are null without such a run.
        returned: killed peers that came back, and do not claim what another has taken over.
            secured: queries whose secondary was caught up in the end.
        seconds: duration of the run.
    """

    mode: str
    recovery: str
    lost: int | None
    duplicated: int | None
    recovery_ms: float | None
    added_delay_ms: float | None
    cpu_overhead: float | None
    network_overhead: float | None
    wrong: int | None = 0
    expected: int = 0
    first_new_ms: float | None = None
    stall_ms: float = 0.0
    delay_ms: float = 0.0
    cpu_s: float = 0.0
    bytes_s: float = 0.0
    returned: int = 0
    secured: int = 0
    seconds: float = 0.0
    failure: str = ""
    """Why the run did not complete; "" if it did."""

    @property
    def begun(self) -> bool:
        """Whether the run reached its kill."""
        return self.lost is not None

    @property
    def label(self) -> str:
        """The name of the row in a table."""
        return self.mode if self.mode == "none" else f"{self.mode.split('_')[0]}/{self.recovery}"


class Claimed(Check, frozen=True):
    """A promise of a mode, which is certain; or a claim of the papers, which is not."""

    certain: bool = True


class HaResult(Struct, frozen=True):
    """The results of all runs.

    Attributes:
        rate: readings posted per second.
        folders: the folders with the homes and logs of each run, if kept.
    """

    modes: tuple[ModeResult, ...]
    checks: tuple[Claimed, ...]
    rate: int = 0
    seconds: float = 0.0
    plot: str | None = None
    folders: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether some run did not reach its kill."""
        return not all(mode.begun for mode in self.modes)

    @property
    def good(self) -> bool:
        """Whether all certain checks hold."""
        return all(check.good for check in self.checks if check.certain)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One epoch's answers at the client.

    Attributes:
        at: when, seconds since the epoch.
        stimes: the stimes of the answers, microseconds; not empty, ascending.
    """

    at: float
    stimes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """Resources that all peers have used so far. at: seconds. cpu: seconds. sent: bytes to each
    other."""

    at: float
    cpu: float
    sent: int


@dataclass
class Observations:
    """The data of one run.

    Attributes:
        posted: every acknowledged reading. answers: every received answer, in order.
        before, after: the costs at the two ends of the steady time.
        killed_at: seconds since the epoch; 0.0: not yet. watched_at: end of the observation after
            the kill; then the killed peers come back.
        returned, secured: see `ModeResult`.
        failure: why the run did not complete, if so.
    """

    variant: Variant
    posted: list[Reading] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)
    before: Cost | None = None
    after: Cost | None = None
    killed_at: float = 0.0
    watched_at: float = 0.0
    returned: int = 0
    secured: int = 0
    began: float = 0.0
    ended: float = 0.0
    failure: str = ""

    def received(self, at: float, stimes: Iterable[int], answers: list[Answer]) -> None:
        """Note answers with their time; no answers are no arrival."""
        if answers:
            self.arrivals.append(Arrival(at, tuple(stimes)))
            self.answers += answers

    @property
    def steady(self) -> list[Arrival]:
        """The arrivals in the time in which the costs were measured."""
        if self.before is None or self.after is None:
            return []
        begin, end = self.before.at, self.after.at
        return [arrival for arrival in self.arrivals if begin < arrival.at <= end]

    def first_new(self) -> float | None:
        """The time of the first answer about readings after the kill, seconds since the epoch."""
        kill_us = self.killed_at * 1e6
        if not kill_us:
            return None
        return next((each.at for each in self.arrivals if each.stimes[-1] > kill_us), None)


@dataclass(frozen=True, slots=True)
class Errors:
    """The differences between the received answers and the right ones."""

    lost: int
    duplicated: int
    wrong: int


def compare(received: Iterable[Answer], right: set[Answer]) -> Errors:
    """Compare the received answers with the right ones. A repeated answer is a duplicate, right or
    wrong; an answer that is not right is wrong."""
    counts = Counter(received)
    return Errors(
        lost=len(right - counts.keys()),
        duplicated=sum(count - 1 for count in counts.values()),
        wrong=len(counts.keys() - right),
    )


def delay_ms(arrivals: Iterable[Arrival]) -> float:
    """The median time from the stime of an answer, when its window closed, to its arrival."""
    delays = [each.at - stime / 1e6 for each in arrivals for stime in each.stimes]
    return 1e3 * statistics.median(delays) if delays else 0.0


def longest_gap(times: Iterable[float]) -> float:
    """The longest time between two consecutive times, seconds; 0.0 if there are not two."""
    return max((later - earlier for earlier, later in pairwise(times)), default=0.0)


def stall_ms(run: Observations) -> float:
    """The longest silence after the kill, beyond the usual one."""
    if not run.killed_at:
        return 0.0
    watched = [each.at for each in run.arrivals if each.at <= run.watched_at]
    before = [at for at in watched if at <= run.killed_at][-1:]
    after = [at for at in watched if at > run.killed_at]
    usual = longest_gap(arrival.at for arrival in run.steady)
    return max(1e3 * (longest_gap((*before, *after, run.watched_at)) - usual), 0.0)


def figures(run: Observations, right: set[Answer], none: ModeResult | None) -> ModeResult:
    """Compute the figures of a run.

    Args:
        right: the right answers.
        none: the run without secondaries; None if this is it, or there is none.
    """
    errors = compare(run.answers, right) if run.killed_at else None
    delay = delay_ms(run.steady)
    cpu_s, bytes_s = _rates(run)
    first_new = run.first_new()
    new_ms = None if first_new is None else round(1e3 * (first_new - run.killed_at), 1)
    stall = stall_ms(run)
    return ModeResult(
        mode=run.variant.mode,
        recovery=run.variant.recovery,
        lost=None if errors is None else errors.lost,
        duplicated=None if errors is None else errors.duplicated,
        wrong=None if errors is None else errors.wrong,
        expected=len(right),
        recovery_ms=None if new_ms is None else round(max(new_ms - delay, stall), 1),
        first_new_ms=new_ms,
        stall_ms=round(stall, 1),
        delay_ms=round(delay, 1),
        added_delay_ms=_added(delay, run, none),
        cpu_s=round(cpu_s, 3),
        bytes_s=round(bytes_s),
        cpu_overhead=_more(cpu_s, run, None if none is None else none.cpu_s),
        network_overhead=_more(bytes_s, run, None if none is None else none.bytes_s),
        returned=run.returned,
        secured=run.secured,
        seconds=round(run.ended - run.began, 1),
        failure=run.failure,
    )


def _rates(run: Observations) -> tuple[float, float]:
    if run.before is None or run.after is None:
        return 0.0, 0.0
    seconds = run.after.at - run.before.at
    cpu, sent = run.after.cpu - run.before.cpu, run.after.sent - run.before.sent
    return cpu / seconds, sent / seconds


def _added(delay: float, run: Observations, none: ModeResult | None) -> float | None:
    if none is None:
        return 0.0 if run.variant == NONE else None
    return round(delay - none.delay_ms, 1) if delay else 0.0


def _more(value: float, run: Observations, than: float | None) -> float | None:
    """The increase as a share; None without a reference."""
    if than is None:
        return 0.0 if run.variant == NONE else None
    return round(value / than - 1, 3) if value > 0 and than > 0 else 0.0


ACTIVE_MS: Final = 1_000.0
"""Longest recovery of active standby."""

WITHOUT_LOSS: Final = (Mode.UPSTREAM_BACKUP, Mode.PASSIVE_STANDBY, Mode.ACTIVE_STANDBY)


def judge(modes: Sequence[ModeResult]) -> tuple[Claimed, ...]:
    """The checks that can be made of these runs."""
    checks: list[Claimed] = []
    for mode in modes:
        checks += promises(mode)
    return (*checks, *comparisons(modes))


def promises(mode: ModeResult) -> list[Claimed]:
    """The promises of one mode, without regard to the others."""
    if not mode.begun:
        return [Claimed(f"{mode.label} could be set up", False, mode.failure)]
    if mode.failure:
        return [Claimed(f"{mode.label} runs to its end", False, mode.failure)]
    found = f"{mode.lost} lost, {mode.duplicated} duplicated, {mode.wrong} wrong"
    checks = [
        Claimed(
            f"{mode.label} goes on after the kill",
            mode.recovery_ms is not None,
            _ms(mode.recovery_ms),
        )
    ]
    if mode.mode == Mode.AMNESIA:
        loses = bool(mode.lost) and not mode.duplicated
        checks.append(Claimed("amnesia loses, and repeats nothing", loses, found))
    elif mode.mode == Mode.NONE or mode.recovery == Recovery.PRECISE:
        exact = not mode.lost and not mode.duplicated and not mode.wrong
        checks.append(Claimed(f"{mode.label} loses and repeats nothing", exact, found))
    elif mode.recovery == Recovery.ROLLBACK:
        whole = not mode.lost and not mode.wrong
        checks.append(Claimed(f"{mode.label} loses nothing", whole, found))
    back = f"{mode.returned} of {len(SERVERS)}"
    checks.append(
        Claimed(f"{mode.label}: the killed come back", mode.returned == len(SERVERS), back)
    )
    if mode.mode == Mode.ACTIVE_STANDBY:
        quick = mode.recovery_ms is not None and mode.recovery_ms <= ACTIVE_MS
        claim = f"{mode.label} recovers within {ACTIVE_MS:.0f} ms"
        checks.append(Claimed(claim, quick, _ms(mode.recovery_ms)))
    return checks


def comparisons(modes: Sequence[ModeResult]) -> list[Claimed]:
    """The papers' comparisons of modes that were run."""
    runs = [run for run in modes if run.mode in WITHOUT_LOSS and run.recovery_ms is not None]
    if {run.mode for run in runs} != set(WITHOUT_LOSS):
        return []
    return [claim.check(runs) for claim in CLAIMS]


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim that one mode has the most, or least, of a figure among those that lose nothing.

    Attributes:
        figure: the name of a field of `ModeResult`. extreme: `max` or `min`. shown: the format of
            the figure.
    """

    text: str
    mode: Mode
    figure: str
    extreme: Callable[..., ModeResult]
    shown: str

    def check(self, runs: Sequence[ModeResult]) -> Claimed:
        def value(run: ModeResult) -> float:
            return getattr(run, self.figure) or 0.0

        found = ", ".join(f"{run.label} {self.shown.format(value(run))}" for run in runs)
        good = self.extreme(runs, key=value).mode == self.mode
        return Claimed(self.text, good, found, certain=False)


ACTIVE, PASSIVE, UPSTREAM = Mode.ACTIVE_STANDBY, Mode.PASSIVE_STANDBY, Mode.UPSTREAM_BACKUP
MORE_MS, SHARE, MS = "{:+.0f} ms", "{:+.0%}", "{:.0f} ms"

CLAIMS: Final = (
    Claim("passive standby adds most to the delay", PASSIVE, "added_delay_ms", max, MORE_MS),
    Claim("active standby costs most CPU", ACTIVE, "cpu_overhead", max, SHARE),
    Claim("active standby recovers fastest", ACTIVE, "recovery_ms", min, MS),
    Claim("upstream backup costs least CPU", UPSTREAM, "cpu_overhead", min, SHARE),
    Claim("upstream backup costs the network least", UPSTREAM, "network_overhead", min, SHARE),
    Claim("upstream backup recovers slowest", UPSTREAM, "recovery_ms", max, MS),
)


def _ms(value: float | None) -> str:
    return "never" if value is None else f"{value:.0f} ms"
