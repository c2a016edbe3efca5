"""The waits of the overlay that only tests shorten."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OverlayTiming:
    """Intervals and waits of the overlay, in seconds. Only tests choose others, to be quick.

    Attributes:
        clock_look_s: the time between two readings of the machine's clock.
        clock_hold_s: the time after which a leap of the clock is believed, unless most others agree
            with the peer's own count. A person has time to see the error and set the clock back
            before anything irrevocable follows.
        save_gap_s: the time between two writes of learned news: a burst of news is one write.
    """

    clock_look_s: float = 1.0
    clock_hold_s: float = 900.0
    save_gap_s: float = 0.5
