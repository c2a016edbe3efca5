"""The producers that a source stream's boundary waits for. Sans IO.

Each producer promises for its own rows: by its times, and by the boundaries that it sends. The
stream's boundary is the least of those of the producers that are present, as a watermark over
partitions is. A producer is present from its first row in time until it says that it is done, or
until it has posted nothing for the stream's idle timeout. So no producer delays the others for
longer, and none moves the boundary beyond the present producers (ADR 41).
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.streams.source.remembered import Remembered

MAX_PRESENT: Final = 1_000
"""Producers that one stream waits for. Beyond it the stream stops waiting for one producer of the
participant with the most: the one that has been silent longest. Each post visits all of them, which
takes 0.1 ms."""

OWNER: Final = ""
"""Stands for the owner's name in a writer: see `acceptance.Writer`."""


class Claim(Struct, frozen=True, array_like=True):
    """The claim of one or more producers about their later rows.

    Attributes:
        greatest: the greatest stime of the producers' rows. promised: the greatest promise of the
            producers.
    """

    greatest: int = BEGINNING
    promised: int = BEGINNING

    def boundary(self, slack_us: int) -> int:
        """Return the boundary that this producer's rows and promises allow: a later row at or
        before it is late."""
        by_rows = BEGINNING if self.greatest == BEGINNING else self.greatest - slack_us - 1
        return max(by_rows, self.promised)

    def and_also(self, other: Claim) -> Claim:
        """The claim with the greater value of both in each field."""
        return Claim(max(self.greatest, other.greatest), max(self.promised, other.promised))


class Present(Struct, frozen=True, array_like=True):
    """A producer that is present.

    Attributes:
        moved_us: when its last row in time, or a new promise, came; by the leader's clock.
    """

    claim: Claim
    moved_us: int


class PresenceState(Struct, frozen=True, array_like=True):
    """The state in a snapshot.

    Attributes:
        present: the present producers, by participant and name; participants, and the producers of
            each, are in the order of their last row or promise, the oldest first.
        paced_us: see `Presence`.
        owner: the combined claim of all the owner's producers that ever posted, present or not.
        others: the same of the other participants' producers.
    """

    present: dict[str, dict[str, Present]] = {}
    paced_us: dict[str, int] = {}
    owner: Claim = Claim()
    others: Claim = Claim()


class Presence:
    """The producers that are present, and how far all that ever posted have come. Another
    participant could send rows very slowly. So its producers also count as standing still if their
    least boundary grows by less than the clock: `_paced_us` is the time of the clock up to which it
    has kept pace. The owner's own producers stand still only if they are silent. Attributes:
    idle_us: how long the stream waits for a producer that stands still, microseconds; 0: for none.
    """

    def __init__(self, idle_us: int) -> None:
        self.idle_us = idle_us
        self._forget()

    def _forget(self) -> None:
        self._present: Remembered[str, Present] = Remembered(MAX_PRESENT, lambda _: 1)
        self._paced_us: dict[str, int] = {}
        self._owner = Claim()
        self._others = Claim()

    @property
    def state(self) -> PresenceState:
        present = {who: dict(of) for who, of in self._present.by_participant.items()}
        return PresenceState(present, dict(self._paced_us), self._owner, self._others)

    def restore(self, state: PresenceState) -> None:
        self._forget()
        for participant, producers in state.present.items():
            for producer, present in producers.items():
                self._present.note(participant, producer, present)
        self._paced_us = dict(state.paced_us)
        self._owner, self._others = state.owner, state.others

    @property
    def count(self) -> int:
        """The number of present producers."""
        return sum(map(len, self._present.by_participant.values()))

    def claim(self, participant: str, producer: str) -> Claim | None:
        """A producer's claim; None: it is not present."""
        present = self._present.get(participant, producer)
        return None if present is None else present.claim

    def least(self, slack_us: int, besides: tuple[str, str] | None = None) -> int:
        """The least boundary of the present producers; END: there are none.

        Args:
            besides: a (participant, producer) to leave out.
        """
        return min(
            (
                each.claim.boundary(slack_us)
                for participant, producer, each in self._present
                if (participant, producer) != besides
            ),
            default=END,
        )

    def reached(self, slack_us: int, limit: int) -> int:
        """How far the stream may move while no producer holds it: as far as any producer has ever
        come. limit: the farthest that other participants alone may move it."""
        others = min(self._others.boundary(slack_us), limit)
        return max(self._owner.boundary(slack_us), others)

    def cap(self, participant: str, slack_us: int, limit: int) -> int:
        """How far a producer of that participant may move the stream. limit: as in `reached`."""
        return END if participant == OWNER else max(self._owner.boundary(slack_us), limit)

    def move(self, participant: str, producer: str, claim: Claim, slack_us: int, now: int) -> None:
        """Note that a producer is present, and how far it has come. now: microseconds."""
        if participant == OWNER:
            self._owner = self._owner.and_also(claim)
        else:
            self._others = self._others.and_also(claim)
        if not self.idle_us:
            return
        before = self._least_of(participant, slack_us)
        self._present.note(participant, producer, Present(claim, now))
        if participant != OWNER:
            self._keep_pace(participant, before, slack_us, now)

    def leave(self, participant: str, producer: str, slack_us: int, now: int) -> None:
        """Note that a producer is done: its rows so far count, and the stream does not wait for
        more."""
        before = self._least_of(participant, slack_us)
        self._present.forget(participant, producer)
        if participant != OWNER:
            self._keep_pace(participant, before, slack_us, now)

    def leave_all(self) -> None:
        """Note that the stream has ended."""
        for participant, producer, _ in tuple(self._present):
            self._present.forget(participant, producer)
        self._paced_us.clear()

    def expire(self, slack_us: int, now: int) -> None:
        """Stop waiting for the producers that have stood still for too long."""
        for participant in tuple(self._present.by_participant):
            for producer, each in tuple(self._present.of(participant)):
                # The clock may have been set: a promise far ahead of it is no sign of progress
                # either.
                if abs(now - each.moved_us) < self.idle_us:
                    break  # the later ones have moved more recently
                self.leave(participant, producer, slack_us, now)
            while abs(now - self._paced_us.get(participant, now)) >= max(self.idle_us, 1):
                self._drop_least(participant, slack_us, now)

    def wait_anew(self, now: int) -> None:
        """Start the waits for all of them anew, because the leader itself was away."""
        for participant, producer, each in tuple(self._present):
            self._present.note(participant, producer, Present(each.claim, now))
        self._paced_us = dict.fromkeys(self._paced_us, now)

    def _drop_least(self, participant: str, slack_us: int, now: int) -> None:
        producers = dict(self._present.of(participant))
        slowest = min(producers, key=lambda name: producers[name].claim.boundary(slack_us))
        self.leave(participant, slowest, slack_us, now)

    def _least_of(self, participant: str, slack_us: int) -> int | None:
        claims = (each.claim.boundary(slack_us) for _, each in self._present.of(participant))
        return min(claims, default=None)

    def _keep_pace(self, participant: str, before: int | None, slack_us: int, now: int) -> None:
        """Advance a participant's pace by the growth of its least boundary since `before`."""
        least = self._least_of(participant, slack_us)
        if least is None:
            self._paced_us.pop(participant, None)
        elif before is None:
            self._paced_us[participant] = now
        else:
            grown = max(0, least - before)
            self._paced_us[participant] = min(now, self._paced_us[participant] + grown)
