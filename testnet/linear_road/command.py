"""The `medusa-testnet linear-road` command."""

from __future__ import annotations

from functools import partial

import click
import msgspec

from medusa.testnet.kit.command import Scenario, json_option, number
from medusa.testnet.kit.stages import Stages


@click.command("linear-road")
@number("--xways", 1, 1, 20, "Expressways; with --rating the most that are tried.")
@number("--minutes", 20, 1, 180, "How long the traffic is driven; a whole benchmark has 180.")
@number(
    "--cars-per-minute", 600, 1, 5_000, "Cars that enter each direction of an expressway at last."
)
@number("--seed", 1, 0, 2**32, "The same seed gives the same traffic.")
@click.option("--rating", is_flag=True, help="Find how many expressways are answered in time.")
@number("--live-seconds", 120, 1, 10_800, "With --rating, the last seconds, at the recorded speed.")
@json_option
def linear_road(rating: bool, live_seconds: int, as_json: bool, **given: object) -> None:
    """Run the benchmark Linear Road at a peer with Spark, and check the messages to its cars.

    Cars report every 30 s. They are notified of tolls and accidents, and ask for balances and past
    expenditures; the rules of the benchmark's validator give the right answers. The query of the
    first paper's figure 1, with tolls and tow trucks, runs over the same traffic. Exits with 1 when
    an answer is not right.

    With --rating, the traffic comes at the recorded speed in its last seconds, with ever more
    expressways: the rating is the most that are answered in time. Exits with 1 when an answer is
    not right, however late it is.
    """
    # imported here: --help and a mistyped option do not need it
    from medusa.testnet.linear_road.generate import Traffic

    traffic = msgspec.convert(given, Traffic)
    if not rating:
        from medusa.testnet.linear_road.workload import linear_road_workload
        from medusa.testnet.workload.command import run_command

        run_command("linear-road", partial(linear_road_workload, traffic), as_json=as_json)
    if live_seconds >= traffic.minutes * 60:
        raise click.UsageError(
            f"--live-seconds {live_seconds} is not less than --minutes {traffic.minutes}"
        )
    from medusa.testnet.linear_road.rating import STAGES, rate, render_rating

    stages = Stages(STAGES, "linear-road")
    run = partial(rate, traffic, live_seconds, traffic.xways, stages)
    Scenario(stages, run, render_rating).play(as_json=as_json)
