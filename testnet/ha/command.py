"""`medusa-testnet ha`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click
from rich.console import Console

from engine.objects.availability import Mode, Recovery
from overlay.errors import InvalidInputError
from testnet.ha.variants import ALL, chosen
from testnet.kit.command import json_option, keep_option, run_scenario
from testnet.kit.picture import picture_option


@click.command()
@click.option(
    "--mode",
    default=ALL,
    show_default=True,
    type=click.Choice([ALL, *(mode.value for mode in Mode)]),
    help="What the secondaries keep; a run without any comes first, to compare with.",
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
def ha(  # noqa: PLR0917 - click passes them by name
    mode: str, recovery: str | None, short: bool, as_json: bool, plot: Path | None, keep: bool
) -> None:
    """Kill a chain of servers all at once, mode by mode: the poster's high-availability experiment.

    B, C, D and E work on A's stream, a query each, with secondaries on two standby peers. After a
    steady time all four are killed with SIGKILL. For each mode: what was lost and duplicated, how
    long recovery took, and the delay, CPU and network that it adds. All modes take about a quarter
    of an hour on two cores. Exits with 1 when a mode breaks its promise, with 2 when something
    failed.
    """
    # Late: --help and a mistyped option need none of this.
    from testnet.ha.run import Options, run_ha
    from testnet.ha.screen import RUN_S, SHORT_RUN_S, HaBoard, open_screen, render_result
    from testnet.kit.stages import about

    try:
        variants = chosen(mode, recovery, short=short)
    except InvalidInputError as error:
        raise click.UsageError(str(error)) from None
    console = Console(stderr=as_json)
    board = HaBoard(planned=variants, run_s=SHORT_RUN_S if short else RUN_S)
    runs = "one run" if len(variants) == 1 else f"{len(variants)} runs"
    console.print(f"{runs} of the chain: {about(board.left_s)}", highlight=False)
    run_scenario(
        partial(run_ha, Options(variants, keep, plot, short), board),
        open_screen(board, console),
        console,
        as_json=as_json,
        render=render_result,
        good=lambda result: result.good,
        failed=lambda result: result.failed,
    )
