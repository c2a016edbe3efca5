"""What is seen of one run of the chain, and the figures that come of it."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from testnet.ha.chain import Answer, Reading
from testnet.ha.result import ModeResult
from testnet.ha.variants import NONE, Variant


@dataclass(frozen=True, slots=True)
class Arrival:
    """One epoch's answers, as the client received them.

    Attributes:
        at: when, seconds since the epoch.
        stimes: of the answers, microseconds; not empty, ascending.
    """

    at: float
    stimes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """What all peers have used so far. at: seconds. cpu: seconds. sent: bytes to each other."""

    at: float
    cpu: float
    sent: int


@dataclass
class Observations:
    """
    Attributes:
        posted: every reading that was acknowledged. answers: every answer received, in order.
        before, after: the costs at the two ends of the steady time.
        killed_at: seconds since the epoch; 0.0: not yet. watched_at: until when it was watched how
            the chain goes on; after that the killed peers come back.
        returned, secured: see `ModeResult`.
        failure: why the run did not come to its end, if it did not.
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
        """Answers that came at a time; none is no arrival."""
        if answers:
            self.arrivals.append(Arrival(at, tuple(stimes)))
            self.answers += answers

    @property
    def steady(self) -> list[Arrival]:
        """Those of the time in which the costs were measured."""
        if self.before is None or self.after is None:
            return []
        begin, end = self.before.at, self.after.at
        return [arrival for arrival in self.arrivals if begin < arrival.at <= end]

    def first_new(self) -> float | None:
        """When the first answer came that is of after the kill, seconds since the epoch."""
        kill_us = self.killed_at * 1e6
        if not kill_us:
            return None
        return next((each.at for each in self.arrivals if each.stimes[-1] > kill_us), None)


@dataclass(frozen=True, slots=True)
class Errors:
    """How the answers received differ from those that are right."""

    lost: int
    duplicated: int
    wrong: int


def compare(received: Iterable[Answer], right: set[Answer]) -> Errors:
    """An answer that comes again is a duplicate, right or wrong; one that is none is wrong."""
    counts = Counter(received)
    return Errors(
        lost=len(right - counts.keys()),
        duplicated=sum(count - 1 for count in counts.values()),
        wrong=len(counts.keys() - right),
    )


def delay_ms(arrivals: Iterable[Arrival]) -> float:
    """From the stime of an answer, when its window closed, to its arrival: the median."""
    delays = [each.at - stime / 1e6 for each in arrivals for stime in each.stimes]
    return 1e3 * statistics.median(delays) if delays else 0.0


def longest_gap(times: Iterable[float]) -> float:
    """Between two that follow each other, seconds; 0.0 if there are not two."""
    return max((later - earlier for earlier, later in pairwise(times)), default=0.0)


def stall_ms(run: Observations) -> float:
    """The longest silence that the kill made, beyond what is usual."""
    if not run.killed_at:
        return 0.0
    watched = [each.at for each in run.arrivals if each.at <= run.watched_at]
    before = [at for at in watched if at <= run.killed_at][-1:]
    after = [at for at in watched if at > run.killed_at]
    usual = longest_gap(arrival.at for arrival in run.steady)
    return max(1e3 * (longest_gap((*before, *after, run.watched_at)) - usual), 0.0)


def figures(run: Observations, right: set[Answer], none: ModeResult | None) -> ModeResult:
    """
    Args:
        right: the answers that there should be.
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
    """As a share; None where there is nothing to compare with."""
    if than is None:
        return 0.0 if run.variant == NONE else None
    return round(value / than - 1, 3) if value > 0 and than > 0 else 0.0
