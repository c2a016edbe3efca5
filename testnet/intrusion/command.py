"""`medusa-testnet intrusion`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from medusa.testnet.kit.command import Scenario, choice, json_option, keep_option, number

if TYPE_CHECKING:
    from medusa.testnet.intrusion.run import Result


class SpeedType(click.ParamType[float | None]):
    """`max`, or seconds of trace in one second."""

    name = "speed"

    def convert(
        self, value: str | float | None, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | None:
        if value is None or value == "max":
            return None
        try:
            speed = float(value)
        except ValueError:
            speed = 0.0
        if not 0 < speed < float("inf"):
            self.fail(f"{value!r}: 'max', or seconds of trace per second, like 60", param, ctx)
        return speed


@click.command()
@number("--peers", 3, 2, 64)
@click.option(
    "--trace",
    "traces",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Connections: Parquet, CSV, or Zeek's conn.log as TSV or JSON, gzipped or not. Give it "
    "several times: trace i is posted at peer i. Without it, traffic is generated.",
)
@click.option(
    "--speed",
    default="max",
    show_default=True,
    metavar="max|N",
    type=SpeedType(),
    help="As fast as the peers take it, or N seconds of trace per second.",
)
@click.option(
    "--out",
    default="out",
    show_default=True,
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where busy.csv, scan.csv and cluster.csv go.",
)
@json_option
@keep_option
@click.option(
    "--seed", default=0, show_default=True, metavar="N", help="Of generated traffic, and of kills."
)
@number(
    *("--kills", 0, 0, 1_000),
    "Kill peers N times with SIGKILL, at random, and start them again. Without --speed, "
    "posting goes on for as long as that.",
    shown=False,
)
@choice(
    "--ha mode",
    ("none", "upstream_backup", "passive_standby", "active_standby"),
    "What a second peer of the query's owner keeps of it. Killed, one of the two is started "
    "again once the answers go on without it.",
)
@number(
    *("--k-safety", 0, 0, 3),
    "Posts are acknowledged when K further peers of who posts have them, of 2 K that it gets.",
    "K",
)
@number(
    *("--split split_s", None, 0.5, 600.0),
    "Cut the participants in the middle off from the first, who subscribes, and the last, who "
    "owns the query, for so long.",
    "SECONDS",
    shown=False,
)
@number(
    *("--bound bound_s", 2.0, 0.5, 60.0),
    "With --split: how long answers may wait for what is missing.",
    "SECONDS",
)
@click.option("--netns", is_flag=True, help="With --split: cut real cables; needs root.")
@click.option(
    "--trade",
    is_flag=True,
    help="With --split: the query's owner is overloaded, and has contracts with the others.",
)
def intrusion(
    as_json: bool, kills: int, split_s: float | None, bound_s: float, **given: object
) -> None:
    """Detect intrusions over the connections of several participants.

    Each participant posts its connections at its own peer; one peer runs the query over all of
    them; a subscriber at another receives the answers, which must equal the answers of a batch run.
    Exits with 1 when they differ, with 2 when something failed.
    """
    # imported here: --help and a mistyped option do not need it
    from medusa.testnet.intrusion.board import Board
    from medusa.testnet.intrusion.kills import run_intrusion_kills
    from medusa.testnet.intrusion.run import Options, run_intrusion
    from medusa.testnet.intrusion.screen import render_result
    from medusa.testnet.intrusion.split import Split, run_intrusion_split

    options = msgspec.convert(given, Options)
    if split_s is not None and (kills or options.peers < 3):
        raise click.UsageError("--split takes 3 peers at least, and no --kills")
    board = Board()
    scenario: Callable[[], Awaitable[Result]] = partial(run_intrusion, options, board)
    if kills:
        scenario = partial(run_intrusion_kills, options, kills, board)
    elif split_s is not None:
        split = msgspec.convert({**given, "seconds": split_s, "bound_s": bound_s}, Split)
        scenario = partial(run_intrusion_split, options, split, board)
    Scenario(board, scenario, render_result).play(as_json=as_json)
