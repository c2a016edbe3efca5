"""Bounds, in bytes and time, on the disk that a peer keeps for other participants' consumers.

The log keeps what a subscriber of another participant has not acknowledged, so that it can go on
after an absence. That must not stop posts, to this stream or to another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from engine.streams.retention import Hold
from engine.streams.stream_state import LogKey

OF_ALL: Final = 1 / 4
"""The part of `engine.disk_bytes` for all other participants together: most of it is ours."""

OF_PARTICIPANT: Final = OF_ALL / 2
"""The part for one participant, on all streams: there is always room for another one."""

OF_STREAM: Final = OF_PARTICIPANT / 2
"""The part for one participant on one stream: it can read a second stream."""


@dataclass(frozen=True, slots=True)
class Held:
    """The part of one stream's log that is kept for one consumer of another participant.

    Attributes:
        key: of the log. consumer: the subscriber, or the task, that the log waits for.
        holder: its participant.
        bytes: of files that are kept for it, and that none of our own consumers needs.
        since: when it last acknowledged anything, or began to lag; seconds.
    """

    key: LogKey
    consumer: Hold
    holder: str
    bytes: int
    since: float


def to_let_go(
    held: Iterable[Held], *, disk_bytes: int, short_bytes: int, hold_s: float, now: float
) -> dict[Held, str]:
    """The consumers to let go of, each with the reason, for people; those that keep the most first.

    Args:
        disk_bytes: the quota of this peer's streams. short_bytes: missing at the moment.
        hold_s: how long a consumer that acknowledges nothing is waited for, seconds.
    """
    gone: dict[Held, str] = {}
    for each in held:
        if now - each.since > hold_s:
            gone[each] = f"it acknowledged nothing for {hold_s:g} s (engine.foreign_hold_s)"
    left = sorted((each for each in held if each not in gone), key=lambda each: each.bytes)

    def let_go(group: Callable[[Held], object], limit: float, reason: str) -> None:
        for name in {group(each): None for each in left}:
            while (kept := _kept(members := [e for e in left if group(e) == name])) > limit:
                gone[members[-1]] = f"{kept} bytes were kept {reason}"
                left.remove(members[-1])

    let_go(lambda each: (each.holder, each.key), disk_bytes * OF_STREAM, "for it in this stream")
    let_go(lambda each: each.holder, disk_bytes * OF_PARTICIPANT, "for its participant")
    let_go(lambda each: None, disk_bytes * OF_ALL, "for other participants")
    if short_bytes > 0:
        let_go(lambda each: None, max(0, _kept(left) - short_bytes), "while room is short")
    return gone


def _kept(held: Iterable[Held]) -> int:
    """Bytes that they keep together: of each stream, those of the consumer that lags most."""
    most: dict[LogKey, int] = {}
    for each in held:
        most[each.key] = max(most.get(each.key, 0), each.bytes)
    return sum(most.values())
