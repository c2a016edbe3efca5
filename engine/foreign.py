"""What other participants hold of our disk: bounded in bytes and time, and the first to go.

A subscriber of another participant that does not acknowledge keeps what it has not acknowledged,
so that it can go on after an absence. It must not stop posts by that, to this stream or another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

OF_ALL: Final = 1 / 4
"""Of `engine.disk_bytes`, for all other participants together: most of it is ours."""

OF_PARTICIPANT: Final = OF_ALL / 2
"""For one of them, on all streams: there is always room for another."""

OF_STREAM: Final = OF_PARTICIPANT / 2
"""For one of them on one stream: it can read a second one."""


@dataclass(frozen=True, slots=True)
class Held:
    """What one consumer of another participant keeps in one stream's log.

    Attributes:
        key: of the log. consumer: who is waited for. holder: its participant.
        bytes: that would go without it, and without any other foreign one.
        since: when it last acknowledged anything, or began to lag; seconds.
    """

    key: str
    consumer: str
    holder: str
    bytes: int
    since: float


def to_let_go(
    held: Iterable[Held], *, disk_bytes: int, short_bytes: int, hold_s: float, now: float
) -> dict[Held, str]:
    """Which of them are waited for no longer, and why, for people.

    Those that keep the most go first.

    Args:
        disk_bytes: that the streams of this peer may take. short_bytes: missing at the moment.
        hold_s: how long one is waited for that acknowledges nothing, seconds.
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
    """What they keep together: in one stream, what the one of them that lags most does."""
    most: dict[str, int] = {}
    for each in held:
        most[each.key] = max(most.get(each.key, 0), each.bytes)
    return sum(most.values())
