"""What is going on in the demonstration, for whoever shows it or draws it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from testnet.load.judge import Load, Recent, Sample
from testnet.load.result import Moved
from testnet.stages import Stages

STAGES: Final[dict[str, str]] = {
    "start": "start A, B and C",
    "define": "publish streams and queries",
    "calibrate": "find the traffic's speed",
    "shed": "1 A sheds to B and C",
    "rise": "2 load rises at B",
    "join": "3 D joins at 0.8 p",
    "flow": "4 load flows to D",
    "end": "end the traffic",
    "compare": "compare with a batch run",
}
"""Stage -> what a person reads."""


@dataclass
class LoadBoard(Stages):
    """
    Attributes:
        samples: the loads over time. recent: their means. moves: by when they ended.
        rows: posted so far, by participant. answers: rows received of all answers.
    """

    words: Mapping[str, str] = field(default_factory=lambda: STAGES)
    samples: list[Sample] = field(default_factory=list)
    recent: Recent = field(default_factory=Recent)
    moves: list[Moved] = field(default_factory=list)
    rows: int = 0
    answers: int = 0

    def sampled(self, loads: dict[str, Load]) -> None:
        """What the peers say now."""
        sample = Sample(self.now, loads)
        self.samples.append(sample)
        self.recent.add(sample)

    def forget(self) -> None:
        """Judge by what comes from now on: something has changed on purpose."""
        self.recent = Recent()
