"""Many runs: over seeds, and over contracts and price ranges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from testnet.bpm.experiment import Options

CONTRACTS: Final = (1, 2, 3, 5, 7, 10)
RANGES: Final = (0, 1, 2, 4)
"""The least contracts of a node, and the width of the price range in tasks. The paper has excess
load by contracts (The Medusa Distributed Stream-Processing System, section 4, figure 3b).
"""


def over_seeds(options: Options, count: int) -> Iterator[Options]:
    """The same run with that many seeds, from its own on."""
    for number in range(count):
        yield replace(options, seed=options.seed + number)


def over_contracts(options: Options) -> Iterator[Options]:
    """The same run with every price range and number of contracts."""
    for range_tasks in RANGES:
        for contracts in CONTRACTS:
            yield replace(options, range_tasks=range_tasks, contracts=contracts)


def name_of(options: Options) -> str:
    """What tells a run of a sweep from the others."""
    width = f"range {options.range_tasks}" if options.range_tasks else "fixed price"
    return f"{options.contracts} contracts, {width}, seed {options.seed}"
