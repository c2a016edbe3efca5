"""The overlay's settings."""

from __future__ import annotations

from dataclasses import dataclass, field

from medusa.overlay.addresses import Address
from medusa.overlay.gossip.config import Preset
from medusa.overlay.memory import MEMORY_BYTES, Budgets
from medusa.overlay.timing import OverlayTiming


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
