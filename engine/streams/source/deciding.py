"""The decisions of a source stream's leader: which rows are late, and where the boundary is.

An entry of the journal has the decision. So a replay and a replica decide nothing. Sans IO.
"""

from __future__ import annotations

from typing import Final

import pyarrow.compute as pc
from msgspec import structs

from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.streams.source.acceptance import Acceptance, Entry, Inserted
from medusa.engine.streams.source.lateness import chosen, judge
from medusa.engine.streams.validate import Batch

LEAP_US: Final = 86_400 * 1_000_000
"""A day: if a stream was idle, or a peer was off, for less time, the clock may move the boundary at
once."""


def decide(state: Acceptance, entry: Entry, batch: Batch, lateness_us: int) -> Entry:
    """Complete a new entry with its effects. Args: batch: its rows; None for an entry of revisions.
    lateness_us: see `StreamDefinition`.
    """
    assert entry.taken is not None, "a post comes at a time"
    presence, slack_us, now = state.presence, state.slack_us, entry.taken
    if not state.arrival:
        presence.expire(slack_us, now)
    least = presence.least(slack_us, besides=(entry.participant, entry.producer))
    limit = _limit(state, now)
    cap = END if state.arrival else presence.cap(entry.participant, slack_us, limit)
    entry = structs.replace(
        entry, boundary=state.boundary, slack_us=slack_us, ceiling=min(least, cap)
    )
    if entry.position is None:
        late, inserted = _late(state, entry, batch, lateness_us)
        entry = structs.replace(entry, late=late, inserted=inserted)
    if END in {state.boundary, entry.promise}:
        becomes = END
    elif state.arrival:
        becomes = _by_arrival(state, entry, limit)
    else:
        becomes = max(state.boundary, _by_claims(state, entry, least, limit))
    return structs.replace(entry, becomes=becomes)


def _late(
    state: Acceptance, entry: Entry, batch: Batch, lateness_us: int
) -> tuple[int, Inserted | None]:
    """How many rows of a post are too late, and which of the late rows are revisions."""
    found = judge(batch, entry.boundary, entry.slack_us, entry.ceiling, lateness_us)
    if found is None:
        return 0, None
    late, near = chosen(found.late), chosen(found.near)
    if not near:
        return late, None
    last = pc.max(found.bounds.filter(found.near)).as_py() + 1
    position = max(last, state.revised_at)
    return late, Inserted(lateness_us, near, state.revisions, state.revised_at, position)


def _by_arrival(state: Acceptance, entry: Entry, limit: int) -> int:
    """The boundary of a stream by arrival: the next arrival is later, whatever the clock does."""
    by_rows = max(state.greatest, entry.greatest) if entry.count else BEGINNING
    promised = BEGINNING if entry.promise is None else entry.promise
    return max(state.boundary, by_rows, min(promised, limit) if entry.participant else promised)


def _by_claims(state: Acceptance, entry: Entry, least: int, limit: int) -> int:
    """The least boundary of all producers after an entry. least: that of the others."""
    presence, slack_us = state.presence, state.slack_us
    reached = presence.reached(slack_us, limit)
    claim = entry.claim(presence.claim(entry.participant, entry.producer))
    if claim is None:
        return min(least, reached)
    own = claim.boundary(slack_us)
    cap = presence.cap(entry.participant, slack_us, limit)
    return min(least if entry.done else min(least, own), max(reached, min(own, cap)))


def by_clock(state: Acceptance, now_us: int, *, present: bool, may_leap: bool) -> int:
    """The boundary that the stream may have at this time: first it stops waiting for the producers
    that have stood still for too long.

    Args:
        present: whether the stream's stime is the present, so that it follows the clock while no
            producer holds it. may_leap: whether it may move by more than `LEAP_US`: not while the
            clock may be wrong. A new stream never leaps.
    """
    if state.boundary == END:
        return END
    if not state.arrival:
        state.presence.expire(state.slack_us, now_us)
    limit = _limit(state, now_us)
    if not may_leap and BEGINNING < state.boundary < limit - LEAP_US:
        limit = state.boundary
    reached = state.presence.reached(state.slack_us, limit)
    least = state.presence.least(state.slack_us)
    return max(state.boundary, min(least, max(reached, limit) if present else reached))


def by_slack(state: Acceptance, slack_us: int) -> int:
    """The boundary with a new slack: a smaller slack takes effect at once, not with the next
    post."""
    reached = state.presence.reached(slack_us, limit=state.boundary)
    return max(state.boundary, min(state.presence.least(slack_us), reached))


def is_held(state: Acceptance) -> bool:
    """Whether a producer that has come farther lets the boundary move by the clock alone."""
    return state.boundary < state.presence.reached(state.slack_us, limit=END)


def _limit(state: Acceptance, now_us: int) -> int:
    """How far the clock may move the boundary, and how far participants other than the owner may
    move it: a row of the present must be in time."""
    return min(now_us - (0 if state.arrival else state.slack_us) - 1, END)
