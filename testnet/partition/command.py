"""`medusa-testnet partition`."""

from __future__ import annotations

from functools import partial

import click
import msgspec

from medusa.testnet.kit.command import Scenario, choice, json_option, keep_option, number
from medusa.testnet.kit.picture import picture_option


@click.command()
@number("--seconds", 10.0, 0.1, 600.0, "How long the federation is split.", None)
@number(
    "--bound bound_s",
    2.0,
    0.5,
    60.0,
    "X: how much longer than usual new results may take.",
    "SECONDS",
)
@number("--chain", 2, 1, 4, "Servers, one after the other.")
@choice("--corrections", ("undo", "revisions"), "How the client is told what was wrong.")
@number(
    *("--missing", 1 / 3, 0.002, 0.9, "Of the input, on the far side of the split.", "SHARE"),
    shown="a third",
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
def partition(as_json: bool, **given: object) -> None:
    """Split a federation for a while: results continue within the bound, and are corrected.

    Three sources are merged and sent through a chain of servers, a peer each. One source is cut off
    from the others, and comes back. Shows the delay of new results, the tentative ones and their
    correction, and whether the client ends with exactly the stream of a failure-free run. Exits
    with 1 when a check fails, with 2 when the run failed.
    """
    # imported here: --help and a mistyped option do not need it
    from medusa.testnet.kit.stages import Stages
    from medusa.testnet.partition.figures import Options, render_result
    from medusa.testnet.partition.run import STAGES, run_partition

    options = msgspec.convert(given, Options)
    if options.replica and options.chain < 2:
        raise click.UsageError("--replica takes a chain of at least 2: B, and C behind it")
    stages = Stages(STAGES, "partition")
    Scenario(stages, partial(run_partition, options, stages), render_result).play(as_json=as_json)
