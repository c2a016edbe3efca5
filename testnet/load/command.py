"""`medusa-testnet load`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click
from rich.console import Console

from testnet.kit.command import json_option, keep_option, run_scenario
from testnet.kit.picture import picture_option


@click.command()
@json_option
@picture_option
@keep_option
@click.option("--seed", default=0, show_default=True, metavar="N", help="Of the traffic.")
@click.option(
    "--step-seconds",
    "step_s",
    default=150.0,
    show_default=True,
    metavar="S",
    type=click.FloatRange(min=1.0),
    help="Longest that a step may take to become acceptable.",
)
@click.option(
    "--short",
    is_flag=True,
    help="Two peers and the first step alone: under three minutes.",
)
def load(  # noqa: PLR0917 - click passes them by name
    as_json: bool, plot: Path | None, keep: bool, seed: int, step_s: float, short: bool
) -> None:
    """Trade load until nobody is overloaded: the demonstration of the papers in four steps.

    A is overloaded and sheds to B and C; load rises at B until all are full; D joins with a cheaper
    contract with C; load flows on to it. That takes about seven minutes on two cores. Exits with 1
    when an answer differs from a batch run's or a step ended not acceptable, with 2 when something
    failed.
    """
    # Late: --help and a mistyped option need none of this.
    from testnet.kit.stages import about
    from testnet.load.board import SHORT_STAGES, STAGES, LoadBoard
    from testnet.load.run import Options, run_load
    from testnet.load.screen import open_screen, render_result

    console = Console(stderr=as_json)
    options = Options(keep=keep, plot=plot, seed=seed, step_s=step_s, short=short)
    board = LoadBoard(words=SHORT_STAGES if short else STAGES)
    console.print(f"{'one step' if short else 'four steps'}: {about(board.left_s)}")
    run_scenario(
        partial(run_load, options, board),
        open_screen(board, console),
        console,
        as_json=as_json,
        render=render_result,
        good=lambda result: result.good,
    )
