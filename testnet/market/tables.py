"""The tables of the market, and trades read from a file of the Trade and Quote database (TAQ)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

TIME: Final = pa.timestamp("us", "UTC")

TRADE: Final = pa.schema(
    [("time", TIME), ("symbol", pa.string()), ("price", pa.float64()), ("size", pa.int64())]
)
"""The schema of a trade: dollars for a share, and the number of shares."""

QUOTE: Final = pa.schema(
    [
        ("time", TIME),
        ("symbol", pa.string()),
        ("bid", pa.float64()),
        ("ask", pa.float64()),
        ("bid_size", pa.int64()),
        ("ask_size", pa.int64()),
    ]
)
"""The schema of a quote: the dollars for which an exchange buys and sells a share, until its next
quote of the symbol."""

EXCHANGES: Final = ("newyork", "chicago")

ZONE: Final = "America/New_York"
"""The zone of times in TAQ, which has the wall time of the exchange without a zone."""

MAX_TRADES: Final = 50_000_000
"""Trades of a file: a day of all symbols has fewer, and they take 2 GB."""

MAX_PRICE: Final = 1_000_000.0
"""Dollars: the dearest share costs less, and every sum stays exact."""


class BadTradesError(ValueError):
    """A file is no table of trades: the message names the file and the defect."""


def read_taq(path: Path) -> pa.Table:
    """The trades of a Parquet file with the columns DT, SYMBOL, PRICE and SIZE, by time.

    Trades of one time stay in the order of the file. Times are cut to microseconds.

    Raises:
        BadTradesError: the file cannot be read, or a value is no trade.
    """
    try:
        with pq.ParquetFile(path) as file:
            if file.metadata.num_rows > MAX_TRADES:
                raise BadTradesError(
                    f"{path}: {file.metadata.num_rows} trades; give at most {MAX_TRADES}"
                )
            raw = file.read(columns=["DT", "SYMBOL", "PRICE", "SIZE"])
        missing = {"DT", "SYMBOL", "PRICE", "SIZE"} - set(raw.column_names)
        if missing:
            raise BadTradesError(f"{path}: no column {', '.join(sorted(missing))}")
        trades = pa.table(
            [
                _in_utc(path, raw.column("DT")),
                raw.column("SYMBOL").cast(pa.string()),
                raw.column("PRICE").cast(pa.float64()),
                raw.column("SIZE").cast(pa.int64()),
            ],
            schema=TRADE,
        )
    except (OSError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())[:200]
        raise BadTradesError(f"{path}: not a table of trades: {reason}") from None
    _check(path, trades)
    # the place in the file breaks ties, because sort_by alone need not be stable
    placed = trades.append_column("place", pa.array(range(len(trades)), pa.int64()))
    return placed.sort_by([("time", "ascending"), ("place", "ascending")]).drop(["place"])


def _in_utc(path: Path, column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_timestamp(column.type):
        raise BadTradesError(f"{path}: DT is {column.type}; it must be a timestamp")
    micros = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    return (micros if micros.type.tz else pc.assume_timezone(micros, ZONE)).cast(TIME)


def _check(path: Path, trades: pa.Table) -> None:
    good = {
        "time": pc.is_valid(trades.column("time")),
        "symbol": pc.not_equal(trades.column("symbol"), ""),
        "price": pc.and_(
            pc.greater(trades.column("price"), 0), pc.less(trades.column("price"), MAX_PRICE)
        ),
        "size": pc.greater(trades.column("size"), 0),
    }
    for name, column in good.items():
        row = pc.index(pc.fill_null(column, False), False).as_py()
        if row >= 0:
            value = trades.column(name)[row].as_py()
            raise BadTradesError(f"{path}: row {row}: {name} {value!r} is not that of a trade")
