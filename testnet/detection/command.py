"""The `medusa-testnet detect` command."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Final, Literal

import click

from testnet.kit.command import NumberRange, ending_in_one_line, json_option, print_json
from testnet.kit.picture import picture_option

MOST_NODES: Final = 100_000
MOST_CRASHES: Final = 10_000
MOST_SHARE: Final = 0.5
MOST_SECONDS: Final = 3600.0
"""More needs a bigger machine than any this was tried on, or says nothing new."""


class Sizes(click.ParamType[tuple[int, ...]]):
    """Whole numbers, with commas between them."""

    name = "sizes"

    def convert(
        self,
        value: str | tuple[int, ...],
        param: click.Parameter | None,
        ctx: click.Context | None,
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
@click.option(
    "--crashes",
    default=40,
    show_default=True,
    metavar="K",
    type=click.IntRange(0, MOST_CRASHES),
    help="At each size, each a moment apart; in as many worlds as it takes for no more than 5 % of "
    "the peers (or one) to crash in each.",
)
@click.option(
    "--loss",
    default=0.0,
    metavar="SHARE",
    type=NumberRange(0, MOST_SHARE),
    help="Of the datagrams, like 0.1.",
)
@click.option(
    "--slow",
    default=0.0,
    metavar="SHARE",
    type=NumberRange(0, MOST_SHARE),
    help="Of the peers, like 0.05: they run a tenth of the time, with pauses of seconds.",
)
@click.option("--seed", default=1, show_default=True, metavar="N", type=click.IntRange(0))
@click.option(
    "--seconds",
    default=0.0,
    metavar="S",
    type=NumberRange(0, MOST_SECONDS),
    help="Virtual; watch for that long at least, for false alarms. It ends when all crashes are"
    " known to everybody.",
)
@click.option(
    "--preset",
    default="lan",
    show_default=True,
    type=click.Choice(["local", "lan", "wan"]),
    help="The detector's, and the delays that go with it.",
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
def detect(
    *,
    sizes: tuple[int, ...],
    crashes: int,
    loss: float,
    slow: float,
    seed: int,
    seconds: float,
    preset: Literal["local", "lan", "wan"],
    killed: bool,
    datagrams_only: bool,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Simulate the failure detector: real ones, up to thousands, in virtual time.

    Peers crash; how soon does the first one know, how soon the last, who was taken for dead and
    was not, what does it cost, and what did the papers promise? Exits with 1 when the figures
    stray too far from that.
    """
    # Late: --help and a mistyped option need none of this.
    from rich.console import Console

    from testnet.detection import show
    from testnet.detection import show as picture
    from testnet.detection.experiment import run
    from testnet.detection.figures import Options, Result, bytes_check, checks_of
    from testnet.kit.stages import open_progress

    console = Console(stderr=as_json)
    results: list[Result] = []
    with ending_in_one_line():
        with open_progress(console, show.render_progress) as progress:
            for nodes in sizes:
                options = Options(
                    nodes, crashes, loss, slow, seed, seconds, preset, killed, datagrams_only
                )
                results.append(run(options, partial(progress, f"{nodes:,} peers:")))
        if plot is not None:
            picture.draw(results, plot)
    checks = [
        (f"{result.nodes:,} peers", check) for result in results for check in checks_of(result)
    ]
    checks += [("all sizes", check) for check in bytes_check(results)]
    if as_json:
        print_json(results[0] if len(results) == 1 else results)
    console.print(show.render_verdict(checks) if as_json else show.render_results(results, checks))
    sys.exit(0 if all(check.holds for _, check in checks) else 1)
