"""The `medusa-testnet linear-road` command."""

from __future__ import annotations

from functools import partial

import click

from testnet.kit.command import json_option, number


@click.command("linear-road")
@number("--xways", 1, 1, 20, "Expressways.")
@number("--minutes", 20, 1, 180, "How long the traffic is driven; a whole benchmark has 180.")
@number(
    "--cars-per-minute", 600, 1, 5_000, "Cars that enter each direction of an expressway at last."
)
@number("--seed", 1, 0, 2**32, "The same seed gives the same traffic.")
@json_option
def linear_road(xways: int, minutes: int, cars_per_minute: int, seed: int, as_json: bool) -> None:
    """Run the benchmark Linear Road at a peer with Spark, and check what its cars are told."""
    # late: --help and a mistyped option do not need it
    from testnet.linear_road.generate import Traffic
    from testnet.linear_road.workload import linear_road_workload
    from testnet.workload.command import run_command

    traffic = Traffic(seed, xways, minutes, cars_per_minute)
    run_command("linear-road", partial(linear_road_workload, traffic), as_json=as_json)
