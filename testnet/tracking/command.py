"""The `medusa-testnet tracking` command."""

from __future__ import annotations

from functools import partial
from typing import Final

import click
import msgspec

from medusa.testnet.kit.command import json_option, number

SIGHTINGS_PER_HOUR: Final = 1_000
"""The most sightings of a person in an hour: two readers try every five seconds, and miss some."""

MOST_SIGHTINGS: Final = 5_000_000
"""The most sightings: they and an answer are in memory, some 200 bytes a sighting."""


@click.command()
@number("--persons", 100, 2, 10_000, "Who walk about with tags; the second is Mr X.")
@number("--buildings", 2, 1, 100, "Each with twelve rooms of two readers.")
@number("--hours", 2.0, 0.1, 24, "From 8:00 on.")
@number("--seed", 1, 0, 2**32, "The same seed gives the same sightings.")
@json_option
def tracking(persons: int, hours: float, as_json: bool, **given: object) -> None:
    """Track persons through buildings at a peer with Spark, and check the answers.

    The first paper's appendix follows Mr X: its schema and its query run as they are printed there.
    A table says who may be where, and when; a person whom a reader sees elsewhere strays, and gives
    an alarm. DuckDB gives the right answers. Exits with 1 when an answer is not right, with 2 when
    a query failed.
    """
    if (sightings := persons * hours * SIGHTINGS_PER_HOUR) > MOST_SIGHTINGS:
        raise click.UsageError(
            f"--persons {persons} in --hours {hours:g} are seen about {sightings:,.0f} times, more "
            f"than {MOST_SIGHTINGS:,}"
        )
    # imported here: --help and a mistyped option do not need it
    from medusa.testnet.tracking.workload import Options, tracking_workload
    from medusa.testnet.workload.command import run_command

    options = msgspec.convert({**given, "persons": persons, "hours": hours}, Options)
    run_command("tracking", partial(tracking_workload, options), as_json=as_json)
