"""Limits the time that a peer spends on one participant's messages (sans-IO)."""

from __future__ import annotations

from typing import Final

SHARE: Final = 0.5
"""The part of the event loop's time for all connections of one participant together; the others and
the failure detector have the rest."""

BURST_S: Final = 0.25
"""Seconds of work that may come at once: hundreds of calls of a restarting peer."""

FRAME_S: Final = 4e-6
CALL_S: Final = 250e-6
MESSAGE_S: Final = 100e-6
"""The least cost of a frame, a call or a message, seconds, on a core of 2020 (measured: frames of
one byte 3 us, calls of a method that does not exist 200 us, acknowledgements 70 us)."""

DECODED_S: Final = 10e-9
"""Seconds to decode one byte of a long message into Python objects (measured: 7 ns for a task to
run, 13 ns for the lists of an exchange)."""


class Pace:
    """A participant's account of time. Its frames, calls and messages are charged to it; while it
    has spent too much, its connections are not read."""

    def __init__(self) -> None:
        self._free_at = 0.0

    def spend(self, cost_s: float, now: float) -> None:
        """Charge that many seconds. now: seconds, always by the same clock."""
        self._free_at = max(self._free_at, now) + cost_s / SHARE

    def pause_s(self, now: float) -> float:
        """Return the seconds for which the reader must pause; 0: none."""
        return max(0.0, self._free_at - now - BURST_S)
