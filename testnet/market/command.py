"""The `medusa-testnet market` command."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click
import msgspec

from medusa.testnet.kit.command import json_option, number


@click.command()
@number("--minutes", 60, 1, 390, "From the opening; a whole day has 390.")
@number("--trades-per-minute", 20.0, 1, 10_000, "Of each of the five symbols, on average.")
@number("--quotes-per-minute", 60.0, 1, 10_000, "Of each symbol by each exchange, on average.")
@number("--seed", 1, 0, 2**32, "The same seed gives the same market.")
@click.option(
    "--trades",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Trades from a Parquet file of TAQ (DT, SYMBOL, PRICE, SIZE); quotes are around them.",
)
@json_option
def market(as_json: bool, **given: object) -> None:
    """Run a trader's queries at a peer with Spark, and check the answers.

    Trades give mean prices weighted by size (VWAP), bars of each minute, and pairs of symbols that
    rise together. The quotes of two exchanges give the best bid and offer as of each trade, and the
    moments when the market is crossed. DuckDB gives the right answers. Exits with 1 when an answer
    is not right, with 2 when a query failed.
    """
    # imported here: --help and a mistyped option do not need it
    from medusa.testnet.market.workload import Options, market_workload
    from medusa.testnet.workload.command import run_command

    options = msgspec.convert(given, Options)
    run_command("market", partial(market_workload, options), as_json=as_json)
