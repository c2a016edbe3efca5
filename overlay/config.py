"""The overlay's settings, and the waits that only tests shorten."""

from __future__ import annotations

from dataclasses import dataclass, field

from medusa.overlay.addresses import Address
from medusa.overlay.gossip.config import Preset
from medusa.overlay.memory import MEMORY_BYTES, Budgets


@dataclass(frozen=True)
class OverlayTiming:
    """Intervals and waits of the overlay, in seconds. Only tests choose others, to be quick.

    Attributes:
        clock_look_s: between two readings of the machine's clock.
        clock_hold_s: after which a leap of the clock is believed, unless most others agree with the
            peer's own count. A person has time to see the error and set the clock back before
            anything irrevocable follows.
        save_gap_s: between two writes of learned news: a burst of news is one write.
    """

    clock_look_s: float = 1.0
    clock_hold_s: float = 900.0
    save_gap_s: float = 0.5


@dataclass(frozen=True)
class OverlayConfig:
    """
    Attributes:
        listen: where to listen, TCP and UDP; port 0: any that is free on both.
        advertise: where others reach us, if that differs (behind NAT); port 0: the listening port.
        bootstrap: addresses of peers to join by.
        preset: how fast news spreads: local, lan or wan.
        memory_bytes: memory of the process, about (Spark's JVM is another process). Beyond it
            readers and posts wait, and a remote that takes too much of it is refused.
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
