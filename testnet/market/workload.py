"""The market as a workload: trades and the quotes of two exchanges, a trader's queries, and their
right answers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from medusa.overlay.errors import InvalidInputError
from medusa.testnet.market import oracle
from medusa.testnet.market.generate import OPENING, prices_of, quotes, trades, walk
from medusa.testnet.market.tables import EXCHANGES, BadTradesError, read_taq
from medusa.testnet.workload.workload import Script, Workload

QUERIES: Final = Path(__file__).with_name("queries")
"""The folder of the queries' texts."""

RISE_BP: Final = 5
"""The least rise of a symbol in a minute, hundredths of a percent, as in `queries/trades.sql`."""

MOST_ROWS: Final = 5_000_000
"""Trades and quotes, about: they and an answer are in memory, some 200 bytes a row."""


@dataclass(frozen=True)
class Options:
    """The options of the generator. Attributes: file: of trades (see
    `medusa.testnet.market.tables.read_taq`), around whose prices the
        exchanges quote; None: trades are generated for `minutes` from the opening.
    trades_per_minute: the trades of a symbol. quotes_per_minute: the quotes of a symbol by an
        exchange.
    """

    seed: int
    minutes: int = 60
    trades_per_minute: float = 20.0
    quotes_per_minute: float = 60.0
    file: Path | None = None


def market_workload(options: Options) -> Workload:
    """Generate the market, for both scripts.

    Raises:
        InvalidInputError: the file is no table of trades, or has none; or there would be more than
            `MOST_ROWS`.
    """
    if options.file is None:
        _check_size(len(OPENING), options.minutes, options.trades_per_minute, options)
        prices = walk(options.seed, seconds=options.minutes * 60)
        traded = trades(options.seed, prices, options.trades_per_minute)
    else:
        traded = _trades_of(options.file, options)
        prices = prices_of(traded)
    quoted = quotes(options.seed, prices, options.quotes_per_minute)
    what = "Market" if options.file is None else f"Market of {options.file.name}"
    counted = sum(table.num_rows for table in quoted.values())
    return Workload(
        f"{what}, {traded.num_rows:,} trades, {counted:,} quotes",
        {"trades": traded, **quoted},
        (
            Script(
                text_of("trades"),
                {
                    "vwap": partial(oracle.vwap, traded),
                    "bars": partial(oracle.bars, traded),
                    "together": partial(oracle.together, traded, RISE_BP),
                },
            ),
            Script(
                text_of("quotes"),
                {
                    "quoted": partial(oracle.quoted, traded, quoted),
                    "best": partial(oracle.best, traded, quoted),
                    "crossed": partial(oracle.crossed, quoted),
                },
            ),
        ),
    )


def _trades_of(file: Path, options: Options) -> pa.Table:
    try:
        traded = read_taq(file)
    except BadTradesError as error:
        raise InvalidInputError(str(error)) from None
    if not traded.num_rows:
        raise InvalidInputError(f"{file}: no trade; give a file with one at least")
    times = traded.column("time").cast(pa.int64())
    minutes = (times[-1].as_py() - times[0].as_py()) / 60_000_000
    symbols = pc.count_distinct(traded.column("symbol")).as_py()
    _check_size(symbols, minutes, traded.num_rows / max(symbols * minutes, 1), options)
    return traded


def _check_size(symbols: int, minutes: float, trades_per_minute: float, options: Options) -> None:
    per_minute = trades_per_minute + len(EXCHANGES) * options.quotes_per_minute
    if (rows := symbols * minutes * per_minute) > MOST_ROWS:
        raise InvalidInputError(
            f"{symbols} symbols in {minutes:.0f} minutes are about {rows:,.0f} trades and quotes, "
            f"more than {MOST_ROWS:,}: give fewer quotes per minute, or fewer symbols or minutes"
        )


def text_of(query: str) -> str:
    """The text of a file of `queries/`."""
    return (QUERIES / f"{query}.sql").read_text()
