"""`medusa-testnet ha`."""

from __future__ import annotations

from functools import partial

import click
import msgspec

from medusa.engine.objects.availability import Mode, Recovery
from medusa.overlay.errors import InvalidInputError
from medusa.testnet.kit.command import Scenario, choice, json_option, keep_option
from medusa.testnet.kit.picture import picture_option


@click.command()
@choice(
    "--mode",
    ("all", *(mode.value for mode in Mode)),
    "What the secondaries keep; a run without any comes first, to compare with.",
)
@click.option(
    "--recovery",
    type=click.Choice([recovery.value for recovery in Recovery]),
    help="What consumers may notice; all that the mode is shown with, unless given.",
)
@json_option
@click.option(
    "--short",
    is_flag=True,
    help="One mode alone, active_standby unless --mode names another, watched for shorter and "
    "compared with nothing: under three minutes.",
)
@picture_option
@keep_option
def ha(mode: str, recovery: str | None, as_json: bool, **given: object) -> None:
    """Kill a chain of servers all at once, mode by mode: the poster's high-availability experiment.

    B, C, D and E work on A's stream, a query each, with secondaries on two standby peers. After a
    steady time all four are killed with SIGKILL. For each mode: lost and duplicated answers, the
    recovery time, and the delay, CPU and network that it adds. All modes take about a quarter of an
    hour on two cores. Exits with 1 when a mode breaks its promise, with 2 when a run failed.
    """
    # imported here: --help and a mistyped option do not need it
    from medusa.testnet.ha.chain import chosen
    from medusa.testnet.ha.run import Options, run_ha
    from medusa.testnet.ha.screen import RUN_S, SHORT_RUN_S, HaBoard, render_result
    from medusa.testnet.kit.stages import about

    try:
        variants = chosen(mode, recovery, short=bool(given["short"]))
    except InvalidInputError as error:
        raise click.UsageError(str(error)) from None
    options = msgspec.convert({**given, "variants": variants}, Options)
    board = HaBoard(planned=variants, run_s=SHORT_RUN_S if options.short else RUN_S)
    runs = "one run" if len(variants) == 1 else f"{len(variants)} runs"
    opening = f"{runs} of the chain: {about(board.left_s)}"
    Scenario(board, partial(run_ha, options, board), render_result, opening).play(as_json=as_json)
