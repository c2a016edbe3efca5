"""The overlay's settings, and what it waits for."""

from __future__ import annotations

from dataclasses import dataclass, field

from overlay.addresses import Address
from overlay.gossip.config import Preset
from overlay.memory import MEMORY_BYTES, Budgets


@dataclass(frozen=True)
class OverlayTiming:
    """How often the overlay looks, and how long it waits, where nobody needs it otherwise but
    tests, which are in a hurry. Seconds.

    Attributes:
        clock_look_s: between two looks at the machine's clock.
        clock_hold_s: after which a leap of the clock is believed, unless most others agree with our
            own count: time for a person to see the error and set the clock back, before anything
            irrevocable follows from it.
        save_gap_s: between two writes of what was learned: a burst of news is one write.
    """

    clock_look_s: float = 1.0
    clock_hold_s: float = 900.0
    save_gap_s: float = 0.5


@dataclass(frozen=True)
class OverlayConfig:
    """
    Attributes:
        listen: where to listen, TCP and UDP; port 0: any that is free on both.
        advertise: where others reach us, if that differs (behind NAT); port 0: the one listened on.
        bootstrap: addresses of peers to join by.
        preset: how fast news spreads: local, lan or wan.
        memory_bytes: what the process takes at most, about (Spark's JVM is another process): past
            it readers and posts wait, and a remote that takes too much of it is refused.
        timing: no setting: medusa.toml does not have it.
    """

    listen: Address = ("127.0.0.1", 0)
    advertise: Address | None = None
    bootstrap: tuple[Address, ...] = ()
    preset: Preset = Preset.LAN
    memory_bytes: int = MEMORY_BYTES
    timing: OverlayTiming = field(default=OverlayTiming(), metadata={"setting": False})

    def __post_init__(self) -> None:
        Budgets.of_process(self.memory_bytes)
