"""The `medusa-testnet nexmark` command."""

from __future__ import annotations

from functools import partial
from typing import Final

import click
import msgspec

from medusa.engine.spark.config import Profile
from medusa.testnet.kit.command import choice, json_option, number

MOST_EVENTS: Final = 5_000_000
"""The most events: they and an answer are in memory, some 200 bytes an event each."""


class Queries(click.ParamType[tuple[str, ...]]):
    """Names of queries, with commas between them."""

    name = "queries"

    def convert(
        self, value: str | tuple[str, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        from medusa.testnet.nexmark.oracle import QUERIES

        names = tuple(dict.fromkeys(part.strip().lower() for part in value.split(",")))
        for name in names:
            if name not in QUERIES:
                self.fail(f"{name[:40]!r}: the queries are q0 to q22, like q0,q3", param, ctx)
        return names


@click.command()
@number("--events", 100_000, 1, MOST_EVENTS, "Persons, auctions and bids together.")
@number("--rate", 10_000, 1, 1_000_000, "Events in a second of event time.")
@number("--seed", 1, 0, 2**32, "The same seed gives the same events.")
@click.option(
    "--queries",
    type=Queries(),
    default=(),
    metavar="Q[,Q...]",
    help="Run these, like q0,q3.  [default: all]",
)
@choice(
    "--profile",
    ("edge", "throughput"),
    "Of Medusa's Spark: throughput has Java's optimising compiler, as Flink has.",
)
@click.option(
    "--beside",
    type=click.Choice(["flink"]),
    help="Then run the same queries in this system, over the same events.",
)
@json_option
def nexmark(profile: Profile, beside: str | None, as_json: bool, **given: object) -> None:
    """Run the benchmark Nexmark's queries at a peer with Spark, and check the answers.

    The events are posted, then the queries run one after the other over them. DuckDB gives the
    right answers. Shows which query gave exactly these, how fast, and why a query cannot run. Exits
    with 1 when an answer is not right, with 2 when a query failed.

    Flink is run with --beside flink where it is installed, and with MEDUSA_BENCH_ENVIRONMENTS=1 it
    is installed first, apart from Medusa. What it answers does not change the exit code.
    """
    # imported here: --help and a mistyped option do not need it
    from medusa.testnet.nexmark.flink.run import run_flink
    from medusa.testnet.nexmark.scripts import WITHIN_S
    from medusa.testnet.nexmark.workload import Options, nexmark_workload
    from medusa.testnet.workload.command import run_command

    options = msgspec.convert(given, Options)
    if options.events > options.rate * WITHIN_S:
        raise click.UsageError(
            f"--events at --rate are longer than the {WITHIN_S} s that joins keep"
        )
    run_command(
        "nexmark",
        partial(nexmark_workload, options),
        as_json=as_json,
        profile=profile,
        beside=partial(run_flink, options) if beside else None,
    )
