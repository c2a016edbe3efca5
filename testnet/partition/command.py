"""`medusa-testnet partition`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click
from rich.console import Console

from testnet.kit.command import json_option, keep_option, run_scenario
from testnet.kit.picture import picture_option


@click.command()
@click.option(
    "--seconds",
    default=10.0,
    show_default=True,
    type=click.FloatRange(0.1, 600.0),
    help="How long the federation is split.",
)
@click.option(
    "--bound",
    "bound_s",
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(0.5, 60.0),
    help="X: how much longer than usual new results may take.",
)
@click.option(
    "--chain",
    default=2,
    show_default=True,
    metavar="N",
    type=click.IntRange(1, 4),
    help="Servers, one after the other.",
)
@click.option(
    "--corrections",
    default="undo",
    show_default=True,
    type=click.Choice(["undo", "revisions"]),
    help="How the client is told what was wrong.",
)
@click.option(
    "--missing",
    default=1 / 3,
    show_default="a third",
    metavar="SHARE",
    type=click.FloatRange(0.002, 0.9),
    help="Of the input, on the far side of the split.",
)
@click.option(
    "--replica",
    is_flag=True,
    help="The poster's demonstration: the first server (B) is cut off from the sources (A) and the "
    "other servers (C), which have a replica of it (R) on their side.",
)
@click.option(
    "--netns",
    is_flag=True,
    help="Peers in network namespaces, and real cables between them that are pulled; needs root.",
)
@json_option
@picture_option
@keep_option
def partition(  # noqa: PLR0917 - click passes them by name
    seconds: float,
    bound_s: float,
    chain: int,
    corrections: str,
    missing: float,
    replica: bool,
    netns: bool,
    as_json: bool,
    plot: Path | None,
    keep: bool,
) -> None:
    """Split a federation for a while: results go on within the bound, and are corrected.

    Three sources are merged and sent through a chain of servers, a peer each. One source is cut off
    from the others, and comes back. Shows how late new results were, what was given tentatively and
    how it was corrected, and whether the client ends with exactly the stream of a failure-free run.
    Exits with 1 when something is not as it must be, with 2 when something failed.
    """
    # Late: --help and a mistyped option need none of this.
    from engine.streams.corrections import Corrections
    from testnet.kit.stages import Stages
    from testnet.partition.run import STAGES, Options, run_partition
    from testnet.partition.screen import open_screen, render_result

    if replica and chain < 2:
        raise click.UsageError("--replica takes a chain of at least 2: B, and C behind it")
    options = Options(
        seconds=seconds,
        bound_s=bound_s,
        chain=chain,
        corrections=Corrections(corrections),
        missing=missing,
        replica=replica,
        netns=netns,
        keep=keep,
        plot=plot,
    )
    console = Console(stderr=as_json)
    stages = Stages(STAGES)
    run_scenario(
        partial(run_partition, options, stages),
        open_screen(stages, console),
        console,
        as_json=as_json,
        render=render_result,
        good=lambda result: result.good,
    )
