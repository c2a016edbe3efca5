"""The `medusa-testnet detect` command."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Final

import click
import msgspec

from medusa.testnet.kit.command import choice, json_option, number, print_results, run_each
from medusa.testnet.kit.picture import picture_option

MOST_NODES: Final = 100_000
MOST_CRASHES: Final = 10_000
MOST_SHARE: Final = 0.5
MOST_SECONDS: Final = 3600.0
"""The most virtual seconds of a run: a longer run needs a larger machine than was ever tried, or
shows nothing new."""


class Sizes(click.ParamType[tuple[int, ...]]):
    """Whole numbers, with commas between them."""

    name = "sizes"

    def convert(
        self, value: str | tuple[int, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        sizes = []
        for part in value.split(","):
            if not part.strip().isdecimal() or not 3 <= int(part) <= MOST_NODES:
                self.fail(
                    f"{value!r}: numbers of peers from 3 to {MOST_NODES}, like 10,100", param, ctx
                )
            sizes.append(int(part))
        return tuple(sizes)


@click.command()
@click.option(
    "--nodes",
    "sizes",
    default="1000",
    show_default=True,
    metavar="N[,N...]",
    type=Sizes(),
    help="Peers; several numbers for a run of each.",
)
@number(
    "--crashes",
    *(40, 0, MOST_CRASHES),
    "At each size, each a moment apart; in as many worlds as it takes for no more than 5 % of "
    "the peers (or one) to crash in each.",
    "K",
)
@number("--loss", 0.0, 0, MOST_SHARE, "Of the datagrams, like 0.1.", "SHARE", shown=False)
@number(
    *("--slow", 0.0, 0, MOST_SHARE),
    "Of the peers, like 0.05: they run a tenth of the time, with pauses of seconds.",
    "SHARE",
    shown=False,
)
@number("--seed", 1, 0)
@number(
    *("--seconds", 0.0, 0, MOST_SECONDS),
    "Virtual; watch for that long at least, for false alarms. It ends when all crashes are"
    " known to everybody.",
    "S",
    shown=False,
)
@choice(
    "--preset", ("local", "lan", "wan"), "The detector's, and the delays that go with it.", "lan"
)
@click.option(
    "--killed",
    is_flag=True,
    help="Crashes take the process alone, as kill -9 does: its machine refuses connections. "
    "Otherwise the machine goes silent.",
)
@click.option(
    "--datagrams-only",
    is_flag=True,
    help="Probes that got no answer try no connection, as if firewalls were in the way.",
)
@json_option
@picture_option
def detect(sizes: tuple[int, ...], as_json: bool, plot: Path | None, **given: object) -> None:
    """Simulate the failure detector: real ones, up to thousands, in virtual time.

    Peers crash. The figures: the time until the first and the last peer know, live peers declared
    dead, traffic, and the papers' predictions. Exits with 1 when the figures deviate too far from
    these.
    """
    # imported here: --help and a mistyped option do not need it
    from rich.console import Console

    from medusa.testnet.detection import show
    from medusa.testnet.detection.experiment import run
    from medusa.testnet.detection.figures import Options, bytes_check, checks_of

    console = Console(stderr=as_json)
    runs = [
        (f"{nodes:,} peers:", partial(run, msgspec.convert({**given, "nodes": nodes}, Options)))
        for nodes in sizes
    ]
    draw = None if plot is None else partial(show.draw, path=plot)
    results = run_each(runs, console, show.render_progress, draw)
    checks = [
        (f"{result.nodes:,} peers", check) for result in results for check in checks_of(result)
    ]
    checks += [("all sizes", check) for check in bytes_check(results)]
    if as_json:
        print_results(results)
    console.print(show.render_verdict(checks) if as_json else show.render_results(results, checks))
    sys.exit(0 if all(check.holds for _, check in checks) else 1)
