"""Lifeguard's local health (Dadgar et al., arXiv 1707.00788, 4.1): how far we trust our ears."""

from __future__ import annotations

from overlay.gossip.config import AWARENESS_MAX


class Awareness:
    """A score from 0 (healthy) to `AWARENESS_MAX`: it rises with every sign that the slow one is
    us, and falls with every probe that is answered."""

    def __init__(self) -> None:
        self.score = 0

    def change(self, delta: int) -> None:
        self.score = min(AWARENESS_MAX, max(0, self.score + delta))

    def scale(self, seconds: float) -> float:
        """That wait, longer by as much as we are unwell."""
        return seconds * (self.score + 1)
