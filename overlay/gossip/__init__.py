"""Failure detection and dissemination between peers that distrust each other."""

from medusa.overlay.gossip.events import Health

__all__ = ["Health"]
