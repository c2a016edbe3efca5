"""The `medusa-testnet bpm` command."""

from __future__ import annotations

import sys
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

import click
import msgspec

from medusa.testnet.kit.command import choice, json_option, number, print_results, run_each
from medusa.testnet.kit.picture import picture_option

MOST_NODES: Final = 1_000_000
MOST_SEEDS: Final = 1_000
MOST_LOAD: Final = 4.0
"""The greatest load, as a share of all capacity: a higher one needs a larger machine than was ever
tried, or shows nothing new."""
MOST_PERCENT: Final = 90


@click.command()
@number("--nodes", 995, 1, MOST_NODES)
@number("--contracts", 7, 0, 1000, "The least of each node; the graph is random.")
@choice(
    "--graph",
    ("drawn", "grown"),
    "drawn: every node signs that many, and others sign with it; grown: as a tree, then"
    " whoever has too few signs more, so that most have few more than the least.",
)
@number(
    *("--load", 0.75, 0, MOST_LOAD),
    "Of all capacity; above 1 the whole system is overloaded.",
    "SHARE",
    above=True,
)
@number(
    "--range-tasks", 2, 0, 10_000, "Width of the price range, in tasks; 0: one fixed price.", "K"
)
@number("--seed", 1, 0)
@number("--seeds", 1, 1, MOST_SEEDS, "The number of seeds to run, from --seed on.")
@number("--capacity", 80.0, 1, 100_000, "Of each node; a task is one unit, 1 % of a core.", "UNITS")
@choice(
    "--prices",
    ("uniform", "mixed"),
    "Whether every contract has the same price range, or each its own.",
)
@number(
    *("--vary", 0.0, 0, MOST_PERCENT),
    "Once settled, change every node's own load by up to that much, 20 times.",
    "PERCENT",
    shown=False,
)
@number(
    *("--churn", 0.0, 0, MOST_PERCENT),
    "Once settled, let that many nodes leave and come back, 20 times.",
    "PERCENT",
    shown=False,
)
@click.option("--sweep", is_flag=True, help="Run every price range and number of contracts.")
@json_option
@picture_option
def bpm(seeds: int, sweep: bool, as_json: bool, plot: Path | None, **given: object) -> None:
    """Simulate the bounded-price mechanism: real Brains, thousands of them, in virtual time.

    Load starts skewed; nodes pass it on over pairwise contracts until no node wants to. Exits with
    1 if a node stays above capacity although there is room.
    """
    # imported here: --help and a mistyped option do not need it
    from rich.console import Console

    from medusa.testnet.bpm import show
    from medusa.testnet.bpm.experiment import (
        Options,
        Result,
        name_of,
        over_contracts,
        over_seeds,
        run,
    )

    options = msgspec.convert(given, Options)
    runs = list(over_seeds(options, seeds))
    if sweep:
        runs = list(chain.from_iterable(over_contracts(each) for each in runs))
    names = [f"{number}/{len(runs)} {name_of(each)}:" for number, each in enumerate(runs, 1)]
    console = Console(stderr=as_json)

    def draw(results: list[Result]) -> None:
        if plot is not None:
            show.draw_sweep(results, plot) if sweep else show.draw(results[-1], plot)

    named = zip(names if len(runs) > 1 else ["bpm:"], runs, strict=True)
    results = run_each(
        [(name, partial(run, each)) for name, each in named], console, show.render_progress, draw
    )
    if as_json:
        print_results(results)
    else:
        console.print(
            show.render_result(results[0]) if len(runs) == 1 else show.render_results(results)
        )
    sys.exit(
        0 if sweep or all(not result.nodes_over or result.load > 1 for result in results) else 1
    )
