"""Failure detection and dissemination between peers that distrust each other."""

from overlay.gossip.events import Health

__all__ = ["Health"]
