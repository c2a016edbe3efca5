"""`medusa-testnet simulate`: a campaign of seeds, one seed with its trace, or a manifest."""

from __future__ import annotations

import os
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console, RenderableType

from medusa.testnet.kit.command import json_option, run_scenario

if TYPE_CHECKING:
    from medusa.testnet.simulation.simulate import Result


@click.command()
@click.argument("manifest", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--seeds", default=100, show_default=True, metavar="N", type=click.IntRange(1, 10_000_000)
)
@click.option("--first", default=1, show_default=True, metavar="N", help="Of the campaign's seeds.")
@click.option("--seed", metavar="N", type=int, help="This one alone.")
@click.option("--trace", is_flag=True, help="With --seed: print a line for every event.")
@click.option("--jobs", metavar="N", type=click.IntRange(1, 256), help="Processes; one a core.")
@click.option("--go-on", is_flag=True, help="Do not stop at the first seed that fails.")
@click.option("--real", is_flag=True, help="Run the MANIFEST as real processes on this machine.")
@json_option
def simulate(  # noqa: PLR0917 - click passes them by name
    manifest: Path | None,
    seeds: int,
    first: int,
    seed: int | None,
    trace: bool,
    jobs: int | None,
    go_on: bool,
    real: bool,
    as_json: bool,
) -> None:
    """Run federations of production peers under simulated faults, and check what happened.

    Every seed gives another federation, on virtual time and a simulated network; the first seed
    that breaks a promise is printed, with the command that replays it. With a MANIFEST, the testnet
    of that file is run instead. Exits with 1 when something was found, with 2 when it could not be
    run.
    """
    console = Console(stderr=as_json)
    if real and manifest is None:
        raise click.UsageError("--real needs a MANIFEST")
    if manifest is not None or seed is not None:
        run_scenario(
            partial(_one, manifest, seed, real=real, trace=trace),
            nullcontext(),
            console,
            as_json=as_json,
            render=partial(_rendered, trace=trace),
        )
    from medusa.testnet.simulation.campaign import Campaign
    from medusa.testnet.simulation.screen import open_progress, render_summary

    campaign = Campaign(first, seeds, jobs or os.cpu_count() or 1, go_on)
    run_scenario(
        campaign.run,
        open_progress(campaign, console),
        console,
        as_json=as_json,
        render=render_summary,
    )


async def _one(manifest: Path | None, seed: int | None, *, real: bool, trace: bool) -> Result:
    from medusa.testnet.simulation.campaign import Request, simulate_apart
    from medusa.testnet.simulation.manifest import load_manifest

    number = 1 if seed is None else seed
    chosen = None if manifest is None else load_manifest(manifest)
    if real and chosen is not None:
        from medusa.testnet.simulation.run_real import run_real

        return await run_real(chosen, number)
    return await simulate_apart(Request(number, chosen, trace))


def _rendered(result: Result, *, trace: bool) -> RenderableType:
    from medusa.testnet.simulation.screen import render_result

    return render_result(result, trace=trace)
