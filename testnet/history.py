"""What a subscriber received, epoch by epoch, and whether a stream may be received like that.

The checks read the history alone: they know nothing of how the epochs came about.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow.compute as pc

from engine.objects.schema import BEGINNING
from engine.streams.recent import Epoch


@dataclass(frozen=True)
class Received:
    """One epoch as it came.

    Attributes:
        at: when, seconds of the run.
        first, last: the least and the greatest stime of its rows; None without rows.
    """

    at: float
    after: int
    upto: int
    first: int | None = None
    last: int | None = None

    @staticmethod
    def of(epoch: Epoch, at: float) -> Received:
        ends = pc.min_max(epoch.table.column("stime")).as_py()
        return Received(at, epoch.after, epoch.upto, ends["min"], ends["max"])


@dataclass
class History:
    """By stream, in the order of arrival."""

    streams: dict[str, list[Received]] = field(default_factory=dict)

    def add(self, stream: str, received: Received) -> None:
        self.streams.setdefault(stream, []).append(received)

    def faults(self) -> tuple[str, ...]:
        """What no stream may do: go back, leave out, repeat, break its boundary's promise."""
        return tuple(
            f"{stream}: {fault}"
            for stream, received in self.streams.items()
            for fault in _faults(received)
        )

    def longest_pause_s(self, since: float) -> float:
        """The longest that any of the streams stood still, seconds; from `since` on."""
        return max((_longest_pause(each, since) for each in self.streams.values()), default=0.0)

    def last_at(self) -> float | None:
        """When the last epoch of any stream came; None before the first."""
        return max((each[-1].at for each in self.streams.values() if each), default=None)


def _faults(received: Sequence[Received]) -> list[str]:
    faults = []
    boundary = BEGINNING
    for epoch in received:
        span = f"({epoch.after}, {epoch.upto}]"
        if epoch.after < boundary:
            faults.append(f"{span} goes back behind {boundary}")
        elif epoch.after > boundary:
            faults.append(f"{span} leaves out what follows {boundary}")
        if epoch.upto <= epoch.after:
            faults.append(f"{span} is no interval")
        if epoch.first is not None and epoch.first <= epoch.after:
            faults.append(f"{span} has a tuple of stime {epoch.first}")
        if epoch.last is not None and epoch.last > epoch.upto:
            faults.append(f"{span} has a tuple of stime {epoch.last}")
        boundary = max(boundary, epoch.upto)
    return faults


def _longest_pause(received: Sequence[Received], since: float) -> float:
    times = [since, *(epoch.at for epoch in received if epoch.at > since)]
    return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)
