"""The `medusa-testnet` command."""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import click
import msgspec
import trio
from rich.console import Console

from overlay.concurrency import one_error
from overlay.errors import MedusaError
from testnet.bpm.command import bpm
from testnet.load.command import load

T = TypeVar("T")

DIFFERENT: Final = 1
FAILED: Final = 2
INTERRUPTED: Final = 130
"""Exit codes."""

ENDING_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""A closed terminal counts: it must leave no peer behind either."""


class SpeedType(click.ParamType[float | None]):
    """`max`, or how many seconds of trace pass in one second."""

    name = "speed"

    def convert(
        self,
        value: str | float | None,
        param: click.Parameter | None,
        ctx: click.Context | None,
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


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Start a federation on this machine, watch what it does, check it, and stop it."""


@main.command()
@click.option("--peers", default=3, show_default=True, metavar="N", type=click.IntRange(2, 64))
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
@click.option("--json", "as_json", is_flag=True, help="Figures as JSON on standard output.")
@click.option("--keep", is_flag=True, help="Leave the peers' homes and logs for a look.")
@click.option("--seed", default=0, show_default=True, metavar="N", help="Of the generated traffic.")
def intrusion(  # noqa: PLR0917 - click passes them by name
    peers: int,
    traces: tuple[Path, ...],
    speed: float | None,
    out: Path,
    as_json: bool,
    keep: bool,
    seed: int,
) -> None:
    """Detect intrusions over the connections of several participants.

    Each participant posts its connections at its own peer; one peer runs the query over all of
    them; a subscriber at another receives the answers, which must equal a batch run's. Exits with 1
    when they differ, with 2 when something failed.
    """
    # Late: --help and a mistyped option need none of this.
    from testnet.board import Board
    from testnet.intrusion import Options, Result, run_intrusion
    from testnet.screen import open_screen, render_result

    console = Console(stderr=as_json)
    options = Options(
        peers=peers,
        traces=traces,
        speed=speed,
        out=out,
        keep=keep,
        seed=seed,
        watch=console.is_terminal,
    )

    async def run() -> Result | None:
        board = Board()
        async with open_screen(board, console):
            return await unless_told_to_stop(partial(run_intrusion, options, board))

    try:
        with one_error():
            result = trio.run(run)
    except MedusaError as error:
        click.echo(f"error: {error}", err=True)
        for note in getattr(error, "__notes__", ()):
            click.echo(note, err=True)
        sys.exit(FAILED)
    if result is None:
        click.echo("interrupted: every peer was stopped", err=True)
        sys.exit(INTERRUPTED)
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n")
    else:
        console.print(render_result(result))
    sys.exit(0 if result.exact else DIFFERENT)


async def unless_told_to_stop(task: Callable[[], Awaitable[T]]) -> T | None:
    """The task's result, or None when a signal ended it: after it has tidied up behind itself."""
    result: T | None = None
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            with trio.open_signal_receiver(*ENDING_SIGNALS) as signals:
                async for _ in signals:
                    nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        result = await task()
        nursery.cancel_scope.cancel()
    return result


main.add_command(bpm)
main.add_command(load)
