"""A campaign: many seeds over worker processes, until one fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec
import trio

from testnet.simulation.simulate import Result
from testnet.simulation.worker import Request
from testnet.simulation.workers import CPU_LIMIT_S, open_worker


class Summary(msgspec.Struct, frozen=True):
    """What a campaign came to.

    Attributes:
        tentative: tuples that subscribers were given before they were final.
        failed: the seeds that failed, the first one first.
    """

    first: int
    seeds: int
    green: int
    cpu_s: float
    virtual_s: float
    rows: int
    epochs: int
    faults: int
    tentative: int = 0
    failed: tuple[Result, ...] = ()

    @property
    def good(self) -> bool:
        return not self.failed


@dataclass
class Campaign:
    """
    Attributes:
        go_on: whether the seeds after one that failed are run all the same.
        cpu_limit_s: of one seed, seconds.
        report: told of every seed that is done.
    """

    first: int
    seeds: int
    jobs: int = 1
    go_on: bool = False
    cpu_limit_s: float = CPU_LIMIT_S
    report: Callable[[Result], None] = lambda _: None
    results: list[Result] = field(default_factory=list)
    _stopped: bool = False

    async def run(self) -> Summary:
        """
        Raises:
            UnavailableError: a worker cannot be started.
        """
        left = iter(range(self.first, self.first + self.seeds))
        async with trio.open_nursery() as nursery:
            for _ in range(min(self.jobs, self.seeds)):
                nursery.start_soon(self._work, left)
        return self.summary()

    def summary(self) -> Summary:
        """Of the seeds that are done."""
        done = sorted(self.results, key=lambda result: result.seed)
        return Summary(
            self.first,
            len(done),
            sum(result.good for result in done),
            round(sum(result.cpu_s for result in done), 3),
            round(sum(result.virtual_s for result in done), 3),
            sum(result.rows for result in done),
            sum(result.epochs for result in done),
            sum(result.faults for result in done),
            sum(result.tentative for result in done),
            tuple(result for result in done if not result.good),
        )

    async def _work(self, left: Iterator[int]) -> None:
        """One worker after the other: the next one where a seed was the last one's end."""
        seed = next(left, None)
        while seed is not None and not self._stopped:
            async with open_worker() as worker:
                while seed is not None and worker.alive and not self._stopped:
                    # The others finish the lower seeds that they are at: the first one counts.
                    result = await worker.run(Request(seed), self.cpu_limit_s)
                    self.results.append(result)
                    self.report(result)
                    self._stopped = self._stopped or not (result.good or self.go_on)
                    seed = next(left, None)
