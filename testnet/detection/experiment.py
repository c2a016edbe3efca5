"""Runs of the detector: a quiet time, then crashes, until every peer knows all of them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import psutil

from medusa.testnet.detection.figures import Figures, Options, Result
from medusa.testnet.detection.predictions import Predicted, predict
from medusa.testnet.detection.world import World
from medusa.testnet.virtual.garbage import without_collection

WARM_PERIODS: Final = 2
"""Probe periods before anything is measured: all have probed, and been probed."""
QUIET_PERIODS: Final = 5
"""Probe periods in which traffic is measured without crashes."""
SPREAD_PERIODS: Final = 10
"""Least probe periods over which crashes are spread, so that they do not coincide."""
APART_S: Final = 0.2
"""Least mean seconds between crashes."""
LIMIT_SUSPICIONS: Final = 3
"""The time after the last crash, in longest suspicions, when the run ends even if some peers do not
know the crash."""
LOOK_S: Final = 0.5
"""Virtual seconds between two looks."""


@dataclass(frozen=True)
class Progress:
    """The progress of a run, for a screen.

    Attributes:
        world: the number of the present world, from 1. now: virtual seconds in that world.
        known: crashes of this world that every peer knows, and the number of all its crashes.
    """

    world: int
    worlds: int
    now: float = 0.0
    crashed: int = 0
    known: int = 0
    false_positives: int = 0


Watch = Callable[[Progress], None]


class _Run:
    """One world from its first probe until all its crashes are known."""

    def __init__(self, options: Options, number: int, predicted: Predicted, watch: Watch) -> None:
        self.world = World(
            options.nodes,
            preset=options.preset,
            loss=options.loss,
            slow=options.slow,
            killed=options.killed,
            streams=not options.datagrams_only,
            rng=random.Random(f"{options.seed}/{number}"),
        )
        self._options = options
        self._number = number
        self._limit = LIMIT_SUSPICIONS * predicted.suspicion_max_s
        self._watch = watch

    def go(self, crashes: int, figures: Figures) -> None:
        """Simulate a quiet time, `crashes` crashes, and the end."""
        world, period = self.world, self._options.config.probe_interval_s
        self._look()
        self._pass(WARM_PERIODS * period)
        before = world.snapshot()
        self._pass((WARM_PERIODS + QUIET_PERIODS) * period)
        figures.quiet.add(world, before)
        before = world.snapshot()
        begin = world.clock.now
        end = begin + max(SPREAD_PERIODS * period, crashes * APART_S)
        for _ in range(crashes):
            world.clock.at(world.rng.uniform(begin, end), world.crash_one)
        self._pass(max(end, self._options.seconds))
        limit = world.clock.now + self._limit
        while world.tally.unknown and world.clock.now < limit:
            self._pass(world.clock.now + LOOK_S)
        figures.busy.add(world, before)
        figures.add(world)

    def _pass(self, until: float) -> None:
        clock = self.world.clock
        while clock.now < until:
            clock.run(min(until, clock.now + LOOK_S))
            self._look()

    def _look(self) -> None:
        tally = self.world.tally
        crashed = len(tally.crashes)
        self._watch(
            Progress(
                world=self._number + 1,
                worlds=self._options.worlds,
                now=self.world.clock.now,
                crashed=crashed,
                known=crashed - tally.unknown,
                false_positives=len({victim for victim, _ in tally.alarms.pairs}),
            )
        )


def run(options: Options, watch: Watch = lambda progress: None) -> Result:
    """Run as many worlds as needed, one after the other.

    Args:
        watch: called every half a virtual second.
    """
    began, process = time.process_time(), psutil.Process()
    memory, grown = process.memory_info().rss, 0
    predicted = predict(options.nodes, options.config)
    figures, left = Figures(), options.crashes
    for number in range(options.worlds):
        count = -(-left // (options.worlds - number))
        left -= count
        with without_collection():
            _Run(options, number, predicted, watch).go(count, figures)
            grown = max(grown, process.memory_info().rss - memory)
    took = time.process_time() - began
    return figures.result(options, predicted, seconds=took, memory=grown)
