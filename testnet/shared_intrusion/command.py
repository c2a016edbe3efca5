"""`medusa-testnet intrusion-shared`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click
import msgspec

from medusa.testnet.kit.command import Scenario, json_option, keep_option, number


@click.command("intrusion-shared")
@number("--connections", 20_000, 1, 1_000_000, "Ordinary connections of each laboratory.")
@click.option(
    "--conns",
    "traces",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Connections instead of generated ones: Parquet, CSV, or Zeek's conn.log as TSV or JSON, "
    "gzipped or not. Give it twice, for each laboratory. The list is drawn from their addresses.",
)
@number("--seed", 0, 0, 2**32, "The same seed gives the same connections, and the same list.")
@json_option
@keep_option
def intrusion_shared(as_json: bool, **given: object) -> None:
    """Detect intrusions at two participants with the list of a third: no participant sees another's
    rows.

    Creates the scripts of examples/intrusion at three peers. Each laboratory joins its connections
    with the list and looks for beacons, at its own peer; the third merges their results. Compares
    all answers with plain Python's over all rows, has each participant ask for the streams of the
    others in every way, and changes the list in the middle. Exits with 1 when an answer differs or
    a participant gets rows that it may not read, with 2 when something failed.
    """
    # imported here: --help and a mistyped option do not need it
    from medusa.testnet.kit.stages import Stages
    from medusa.testnet.shared_intrusion.generate import LABS
    from medusa.testnet.shared_intrusion.results import render_result
    from medusa.testnet.shared_intrusion.run import STAGES, Options, run_shared_intrusion

    options = msgspec.convert(given, Options)
    if len(options.traces) not in {0, len(LABS)}:
        raise click.UsageError(f"--conns: give {len(LABS)} files, one for each laboratory")
    stages = Stages(STAGES, "intrusion-shared")
    run = partial(run_shared_intrusion, options, stages)
    Scenario(stages, run, render_result).play(as_json=as_json)
