"""What is going on in the demonstration, for whoever shows it or draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from testnet.ha.observations import Observations
from testnet.ha.result import ModeResult
from testnet.ha.variants import Variant
from testnet.stages import Stages

STAGES: Final[dict[str, str]] = {
    "start": "start the peers",
    "define": "publish the chain",
    "warm": "until the chain is warm",
    "steady": "measure delay and costs",
    "kill": "kill B, C, D and E; watch",
    "return": "the killed come back",
    "end": "end and compare",
}
"""Stage of a run -> what a person reads."""


RUN_S: Final = 110.0
SHORT_RUN_S: Final = 100.0


@dataclass
class HaBoard(Stages):
    """
    Attributes:
        planned: the runs there will be; the stages are those of the run under way.
        runs: what was seen of each run so far. results: of those that ended.
        run_s: about how long a run takes on two cores, seconds.
    """

    words: Mapping[str, str] = field(default_factory=lambda: STAGES)
    planned: Sequence[Variant] = ()
    runs: list[Observations] = field(default_factory=list)
    results: list[ModeResult] = field(default_factory=list)
    run_s: float = RUN_S

    def begin(self, run: Observations) -> None:
        """Another run: its stages are to come."""
        self.runs.append(run)
        self.begin_again()

    @property
    def left_s(self) -> float:
        """About how long it goes on, seconds: as the runs so far have it."""
        took = [result.seconds for result in self.results if result.begun]
        each = sum(took) / len(took) if took else self.run_s
        since = self.now - sum(result.seconds for result in self.results)
        return max(each * (len(self.planned) - len(self.results)) - since, 0.0)
