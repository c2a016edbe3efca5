"""Counts crashes as they become known, and live peers declared dead."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Crash:
    """One peer's crash, and the spread of the news; times in virtual seconds.

    Attributes:
        suspected: when the first live peer suspected it; declared: when the first declared it dead;
            known: when the last one did.
    """

    node: int
    at: float
    knows: bytearray
    waiting: int
    waiting_healthy: int
    suspected: float | None = None
    declared: float | None = None
    known_healthy: float | None = None
    known: float | None = None

    def count(self, change: int, *, healthy: bool, now: float) -> None:
        """Change the number of live peers that do not know."""
        self.waiting += change
        self.waiting_healthy += change * healthy
        if self.waiting_healthy:
            self.known_healthy = None
        elif self.known_healthy is None:
            self.known_healthy = now
        if self.waiting:
            self.known = None
        elif self.known is None:
            self.known = now


@dataclass
class FalseAlarms:
    """Live peers declared dead.

    As in the Lifeguard paper (section V) they are counted over all observers, and over observers
    that were not slow themselves ("FP-"). That paper counts only victims that are not slow; here
    slow ones are counted too, separately.

    Attributes:
        pairs: (victim, observer).
    """

    pairs: set[tuple[int, int]] = field(default_factory=set)

    def among(self, victims: bytearray, observers: bytearray) -> tuple[int, int]:
        """(victims, pairs) among the nodes marked with one in these arrays."""
        chosen = [pair for pair in self.pairs if victims[pair[0]] and observers[pair[1]]]
        return len({victim for victim, _ in chosen}), len(chosen)


class Tally:
    """Crashes and false alarms of one world.

    Attributes:
        live, healthy: by node: 1 if it is; 0 if it crashed, or is slow. crashes: by node.
        suspicions: number of times that a live peer suspected a live one.
    """

    def __init__(self, nodes: int) -> None:
        self.live = bytearray(b"\1" * nodes)
        self.healthy = bytearray(b"\1" * nodes)
        self.crashes: dict[int, Crash] = {}
        self.alarms = FalseAlarms()
        self.suspicions = 0
        self._unknown: set[int] = set()

    @property
    def unknown(self) -> int:
        """Crashes that some live peer does not know."""
        return len(self._unknown)

    def crash(self, node: int, now: float) -> None:
        """A node is gone."""
        assert self.live[node], "nobody crashes twice"
        self.live[node] = False
        waiting = sum(self.live)
        healthy = sum(live & well for live, well in zip(self.live, self.healthy, strict=True))
        crash = Crash(node, now, bytearray(len(self.live)), waiting, healthy)
        self.crashes[node] = crash
        self._unknown.add(node)
        for other in sorted(self._unknown):
            crash = self.crashes[other]
            if other != node and not crash.knows[node]:
                self._count(crash, -1, node, now)

    def suspect(self, observer: int, subject: int, now: float) -> None:
        """A live node suspects another."""
        if self.live[subject]:
            self.suspicions += 1
            return
        crash = self.crashes[subject]
        if crash.suspected is None:
            crash.suspected = now

    def dead(self, observer: int, subject: int, now: float) -> None:
        """A live node takes another for dead."""
        if self.live[subject]:
            self.alarms.pairs.add((subject, observer))
            return
        crash = self.crashes[subject]
        if crash.knows[observer]:
            return
        crash.knows[observer] = True
        if crash.declared is None:
            crash.declared = now
        self._count(crash, -1, observer, now)

    def alive(self, observer: int, subject: int, now: float) -> None:
        """A live node takes another for alive again."""
        if self.live[subject]:
            return
        crash = self.crashes[subject]
        if crash.knows[observer]:
            crash.knows[observer] = False
            self._count(crash, +1, observer, now)

    def _count(self, crash: Crash, change: int, observer: int, now: float) -> None:
        crash.count(change, healthy=bool(self.healthy[observer]), now=now)
        if crash.waiting:
            self._unknown.add(crash.node)
        else:
            self._unknown.discard(crash.node)
