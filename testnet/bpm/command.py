"""The `medusa-testnet bpm` command."""

from __future__ import annotations

import sys
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, Literal

import click

from testnet.kit.command import NumberRange, ending_in_one_line, json_option, print_json
from testnet.kit.picture import picture_option

MOST_NODES: Final = 1_000_000
MOST_SEEDS: Final = 1_000
MOST_LOAD: Final = 4.0
"""More needs a bigger machine than any this was tried on, or says nothing new."""
MOST_PERCENT: Final = 90


@click.command()
@click.option(
    "--nodes", default=995, show_default=True, metavar="N", type=click.IntRange(1, MOST_NODES)
)
@click.option(
    "--contracts",
    default=7,
    show_default=True,
    metavar="N",
    type=click.IntRange(0, 1000),
    help="The least of each node; the graph is random.",
)
@click.option(
    "--graph",
    default="drawn",
    show_default=True,
    type=click.Choice(["drawn", "grown"]),
    help="drawn: every node signs that many, and others sign with it; grown: as a tree, then"
    " whoever has too few signs more, so that most have few more than the least.",
)
@click.option(
    "--load",
    default=0.75,
    show_default=True,
    metavar="SHARE",
    type=NumberRange(0, MOST_LOAD, min_open=True),
    help="Of all capacity; above 1 the whole system is overloaded.",
)
@click.option(
    "--range-tasks",
    default=2,
    show_default=True,
    metavar="K",
    type=click.IntRange(0, 10_000),
    help="Width of the price range, in tasks; 0: one fixed price.",
)
@click.option("--seed", default=1, show_default=True, metavar="N", type=click.IntRange(0))
@click.option(
    "--seeds",
    default=1,
    show_default=True,
    metavar="N",
    type=click.IntRange(1, MOST_SEEDS),
    help="Run so many seeds, from --seed on.",
)
@click.option(
    "--capacity",
    default=80.0,
    show_default=True,
    metavar="UNITS",
    type=NumberRange(1, 100_000),
    help="Of each node; a task is one unit, 1 % of a core.",
)
@click.option(
    "--prices",
    default="uniform",
    show_default=True,
    type=click.Choice(["uniform", "mixed"]),
    help="Whether every contract has the same price range, or each its own.",
)
@click.option(
    "--vary",
    default=0.0,
    metavar="PERCENT",
    type=NumberRange(0, MOST_PERCENT),
    help="Once settled, change every node's own load by up to that much, 20 times.",
)
@click.option(
    "--churn",
    default=0.0,
    metavar="PERCENT",
    type=NumberRange(0, MOST_PERCENT),
    help="Once settled, let that many nodes leave and come back, 20 times.",
)
@click.option("--sweep", is_flag=True, help="Run every price range and number of contracts.")
@json_option
@picture_option
def bpm(
    *,
    nodes: int,
    contracts: int,
    graph: Literal["drawn", "grown"],
    load: float,
    range_tasks: int,
    seed: int,
    seeds: int,
    capacity: float,
    prices: Literal["uniform", "mixed"],
    vary: float,
    churn: float,
    sweep: bool,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Simulate the bounded-price mechanism: real Brains, thousands of them, in virtual time.

    Load starts skewed; nodes pass it on over pairwise contracts until nobody wants to. Exits with
    1 when somebody is left above capacity although there was room.
    """
    # Late: --help and a mistyped option need none of this.
    from rich.console import Console

    from testnet.bpm import picture, show
    from testnet.bpm.experiment import Options, Result, name_of, over_contracts, over_seeds, run
    from testnet.kit.stages import open_progress

    options = Options(
        nodes, contracts, load, range_tasks, seed, capacity, prices, vary, churn, graph
    )
    runs = list(over_seeds(options, seeds))
    if sweep:
        runs = list(chain.from_iterable(over_contracts(each) for each in runs))
    console = Console(stderr=as_json)
    results: list[Result] = []
    with ending_in_one_line():
        with open_progress(console, show.render_progress) as progress:
            for number, each in enumerate(runs, 1):
                name = f"{number}/{len(runs)} {name_of(each)}:" if len(runs) > 1 else "bpm:"
                results.append(run(each, partial(progress, name)))
        if plot is not None:
            picture.draw_sweep(results, plot) if sweep else picture.draw(results[-1], plot)
    if as_json:
        print_json(results[0] if len(runs) == 1 else results)
    else:
        console.print(
            show.render_result(results[0]) if len(runs) == 1 else show.render_results(results)
        )
    sys.exit(
        0 if sweep or all(not result.nodes_over or result.load > 1 for result in results) else 1
    )
