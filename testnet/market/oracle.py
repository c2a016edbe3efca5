"""The right answers to a trader's queries over whole tables, by DuckDB.

The windows are minutes: tumbling, aligned to the epoch, and named by their beginnings. Of several
trades of a symbol at one time, the first one in the table's order counts as the first. Prices are
decimals of four places, as in TAQ, so that no sum depends on an order; quotients are doubles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from medusa.testnet.market.tables import EXCHANGES, TRADE
from medusa.testnet.workload.oracle import answer_of

_EXACT: Final = """
    CREATE VIEW trade AS SELECT place, time, time_bucket(INTERVAL 1 MINUTE, time) AS minute,
        symbol, CAST(price AS DECIMAL(12, 4)) AS exact, price, size FROM given;
    CREATE VIEW bar AS SELECT minute, symbol,
        arg_min(exact, (time, place)) AS open, max(exact) AS high, min(exact) AS low,
        arg_max(exact, (time, place)) AS close, CAST(sum(size) AS BIGINT) AS volume
        FROM trade GROUP BY minute, symbol"""

_VWAP: Final = """
    SELECT minute, symbol,
        CAST(sum(exact * size) AS DOUBLE) / CAST(sum(size) AS DOUBLE) AS vwap,
        CAST(sum(size) AS BIGINT) AS volume, count(*) AS trades
    FROM trade GROUP BY minute, symbol ORDER BY minute, symbol"""

_BARS: Final = """
    SELECT minute, symbol, CAST(open AS DOUBLE) AS open, CAST(high AS DOUBLE) AS high,
        CAST(low AS DOUBLE) AS low, CAST(close AS DOUBLE) AS close, volume
    FROM bar ORDER BY minute, symbol"""

_AS_OF: Final = """
    FROM trade AS t
    ASOF LEFT JOIN newyork AS n ON t.symbol = n.symbol AND t.time >= n.time
    ASOF LEFT JOIN chicago AS c ON t.symbol = c.symbol AND t.time >= c.time
    ORDER BY t.time, t.place"""

_QUOTED: Final = f"""
    SELECT t.time, t.symbol, t.price, t.size,
        n.bid AS newyork_bid, n.ask AS newyork_ask, c.bid AS chicago_bid, c.ask AS chicago_ask
    {_AS_OF}"""

_BEST: Final = f"""
    SELECT t.time, t.symbol, t.price, t.size,
        greatest(n.bid, c.bid) AS bid, least(n.ask, c.ask) AS ask
    {_AS_OF}"""

_CROSSED: Final = """
    SELECT n.time, n.symbol, 'newyork' AS buys, n.bid, c.ask
    FROM newyork AS n ASOF JOIN chicago AS c ON c.symbol = n.symbol AND n.time >= c.time
    WHERE n.bid > c.ask
    UNION ALL
    SELECT n.time, n.symbol, 'chicago' AS buys, c.bid, n.ask
    FROM newyork AS n ASOF JOIN chicago AS c ON c.symbol = n.symbol AND n.time >= c.time
    WHERE c.bid > n.ask
    UNION ALL
    SELECT c.time, c.symbol, 'newyork' AS buys, n.bid, c.ask
    FROM chicago AS c ASOF JOIN newyork AS n ON n.symbol = c.symbol AND c.time >= n.time
    WHERE n.bid > c.ask
    UNION ALL
    SELECT c.time, c.symbol, 'chicago' AS buys, c.bid, n.ask
    FROM chicago AS c ASOF JOIN newyork AS n ON n.symbol = c.symbol AND c.time >= n.time
    WHERE c.bid > n.ask
    ORDER BY ALL"""

# a change above a number of hundredths of a percent, computed without a division
_TOGETHER: Final = """
    WITH moved AS (
        SELECT minute, symbol, CAST(close - open AS DOUBLE) / CAST(open AS DOUBLE) AS change
        FROM bar WHERE (close - open) * 10000 > open * CAST($basis_points AS BIGINT))
    SELECT a.minute, a.symbol AS one, b.symbol AS other, a.change AS change_of_one,
        b.change AS change_of_other
    FROM moved AS a JOIN moved AS b ON a.minute = b.minute AND a.symbol < b.symbol
    ORDER BY a.minute, one, other"""


def vwap(trades: pa.Table) -> pa.Table:
    """The mean price of each symbol in each minute, weighted by size, with the volume in shares and
    the number of trades."""
    return _answer(_VWAP, {"given": trades})


def bars(trades: pa.Table) -> pa.Table:
    """The first, highest, lowest and last price of each symbol in each minute, and the volume."""
    return _answer(_BARS, {"given": trades})


def quoted(trades: pa.Table, quotes: Mapping[str, pa.Table]) -> pa.Table:
    """Each trade with the latest quote of each exchange, at its time or before; null before any.

    Args:
        trades: the trades, by time.
        quotes: the quotes of each exchange, no two of a symbol at one time.
    """
    return _answer(_QUOTED, {"given": trades, **{name: quotes[name] for name in EXCHANGES}})


def best(trades: pa.Table, quotes: Mapping[str, pa.Table]) -> pa.Table:
    """Each trade with the best bid and offer of the exchanges' latest quotes; null before any.

    Args:
        trades: the trades, by time.
        quotes: the quotes of each exchange, no two of a symbol at one time.
    """
    return _answer(_BEST, {"given": trades, **{name: quotes[name] for name in EXCHANGES}})


def crossed(quotes: Mapping[str, pa.Table]) -> pa.Table:
    """The quotes with which the market is crossed: one exchange buys for more than the other sells
    for, as of its latest quote.

    Args:
        quotes: the quotes of each exchange, no two of a symbol at one time.
    """
    given = {name: quotes[name] for name in EXCHANGES}
    return _answer(_CROSSED, {"given": TRADE.empty_table(), **given})


def together(trades: pa.Table, basis_points: int) -> pa.Table:
    """Pairs of symbols that both rose by more than so much within the same minute, from its first
    trade to its last.

    Args:
        trades: the trades, by time.
        basis_points: hundredths of a percent of the first price.
    """
    return _answer(_TOGETHER, {"given": trades}, {"basis_points": basis_points})


def _answer(
    sql: str, tables: Mapping[str, pa.Table], parameters: Mapping[str, int] | None = None
) -> pa.Table:
    placed = {
        name: table.append_column("place", pa.array(range(len(table)), pa.int64()))
        for name, table in tables.items()
    }
    return answer_of(sql, placed, _EXACT, parameters)
