"""Watches the executors of a cluster: the peer reports and reacts when they come and go.

Spark runs the lost part of a job again on other executors, and waits for one as long as there is
none. Only its log says so. And a standalone master that comes back without its state does not know
the application, which would wait for ever: so it has to register anew. ADR 32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from medusa.overlay.events import Level

LOOK_S: Final = 1.0
"""Seconds between two looks at the executors; one takes three calls into the JVM."""


@dataclass(frozen=True)
class Patience:
    """How long jobs wait for a first executor, seconds.

    Attributes:
        report_s: the time until the peer reports it: an executor takes five seconds to start.
            anew_s: until the application is registered anew. If other applications have all cores,
            that costs seven CPU-seconds each time.
    """

    report_s: float = 15.0
    anew_s: float = 60.0


@dataclass(frozen=True)
class Note:
    """A line of the peer's log."""

    level: Level
    text: str


class Workforce:
    """The executors of one application after another.

    Args:
        master: the address of the cluster's master, as the peer's settings name it.

    Attributes:
        trouble: why jobs wait; else empty.
    """

    def __init__(self, master: str, patience: Patience) -> None:
        self._master = master
        self._patience = patience
        self._count = 0
        self._waiting_since: float | None = None
        self.trouble = ""

    def anew(self) -> None:
        """Note that a new application begins; it has no executor yet."""
        self._count = 0
        self._waiting_since = None

    def seen(self, count: int, jobs: int, now: float) -> tuple[Note, ...]:
        """Take note of the executors.

        Args: jobs: the number of jobs under way.
            now: seconds of a steady clock.
        """
        before, self._count = self._count, count
        notes = [self._changed(before, count)] if count != before else []
        if count or not jobs:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = now
        if count:
            self.trouble = ""
        elif not self.trouble and self._waited(now) >= self._patience.report_s:
            self.trouble = (
                f"waits for an executor of {self._master}: none of its workers runs, other "
                "applications have all of its cores or memory, or executors end as they begin; "
                "their stderr in the worker's folder says why"
            )
            notes.append(Note("error", f"cannot compute: {self.trouble}"))
        return tuple(notes)

    def is_over(self, now: float) -> bool:
        """Whether the application has waited so long that a new one should begin."""
        return self._waited(now) >= self._patience.anew_s

    def _waited(self, now: float) -> float:
        return 0.0 if self._waiting_since is None else now - self._waiting_since

    def _changed(self, before: int, count: int) -> Note:
        if count > before:
            return Note("info", f"runs with executors of {self._master}: {count}")
        lost = f"{before - count} of {before}"
        then = "the others run their part again" if count else "jobs wait for another one"
        return Note("warning", f"lost executors of {self._master}: {lost}; {then}")
