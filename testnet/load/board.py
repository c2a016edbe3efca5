"""What is going on in the demonstration, for whoever shows it or draws it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from testnet.load.judge import Load, Recent, Sample
from testnet.load.result import Moved
from testnet.stages import Stages, State

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

SHORT_STAGES: Final = {
    **{name: STAGES[name] for name in STAGES if name not in {"rise", "join", "flow"}},
    "start": "start A and B",
    "shed": "1 A sheds to B",
}

EXPECTED_S: Final = {
    "start": 15.0,
    "define": 15.0,
    "calibrate": 90.0,
    "shed": 60.0,
    "rise": 120.0,
    "join": 60.0,
    "flow": 60.0,
    "end": 20.0,
    "compare": 5.0,
}
"""About how long each takes on two cores, seconds."""
SHORT_SHARE: Final = 0.7
"""Of that, where there are two peers."""


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

    @property
    def left_s(self) -> float:
        """About how long it goes on, seconds."""
        share = 1.0 if "flow" in self.stages else SHORT_SHARE
        left = 0.0
        for name, stage in self.stages.items():
            if stage.state is State.WAITING:
                left += share * EXPECTED_S[name]
            elif stage.state is State.RUNNING:
                left += max(share * EXPECTED_S[name] - (self.now - stage.began), 0.0)
        return left

    def sampled(self, loads: dict[str, Load]) -> None:
        """What the peers say now."""
        sample = Sample(self.now, loads)
        self.samples.append(sample)
        self.recent.add(sample)

    def forget(self) -> None:
        """Judge by what comes from now on: something has changed on purpose."""
        self.recent = Recent()
