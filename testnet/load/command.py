"""`medusa-testnet load`."""

from __future__ import annotations

from functools import partial

import click
import msgspec

from medusa.testnet.kit.command import Scenario, json_option, keep_option, number
from medusa.testnet.kit.picture import picture_option


@click.command()
@json_option
@picture_option
@keep_option
@click.option("--seed", default=0, show_default=True, metavar="N", help="Of the traffic.")
@number(
    "--step-seconds step_s",
    *(150.0, 1.0, None, "Longest that a step may take to become acceptable.", "S"),
)
@click.option(
    "--short", is_flag=True, help="Two peers and the first step alone: under three minutes."
)
def load(as_json: bool, short: bool, **given: object) -> None:
    """Trade load until nobody is overloaded: the demonstration of the papers in four steps.

    A is overloaded and sheds to B and C; load rises at B until all are full; D joins with a cheaper
    contract with C; load flows on to it. That takes about seven minutes on two cores. Exits with 1
    when an answer differs from a batch run's or a step ended not acceptable, with 2 when something
    failed.
    """
    # imported here: --help and a mistyped option do not need it
    from medusa.testnet.kit.stages import about
    from medusa.testnet.load.board import SHORT_STAGES, STAGES, LoadBoard
    from medusa.testnet.load.run import Options, run_load
    from medusa.testnet.load.screen import render_result
    from medusa.testnet.load.script import FULL, SHORT

    options = msgspec.convert(given, Options)
    board = LoadBoard(words=SHORT_STAGES if short else STAGES)
    run = partial(run_load, options, board, SHORT if short else FULL)
    opening = f"{'one step' if short else 'four steps'}: {about(board.left_s)}"
    Scenario(board, run, render_result, opening).play(as_json=as_json)
