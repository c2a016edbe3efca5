"""Seeded quotes of two exchanges, and trades, around prices of a random walk or of a recorded day.

A price is a random walk of each second, in cents. All symbols share a part of each step, so they
move together as shares of one market do, and now and then the whole market jumps. Quotes and trades
are most frequent at the beginning and the end, as on the New York Stock Exchange. The exchanges
quote at different times, Chicago a little after the price, and with a wider spread.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from medusa.testnet.market.tables import EXCHANGES, QUOTE, TRADE

Integers = npt.NDArray[np.int64]

START_US: Final = 1_410_960_600_000_000
"""The start: 2014-09-17 09:30:00 in New York, microseconds since the epoch: the opening of a day of
trade."""

DAY_S: Final = 23_400
"""The trading day from 9:30 to 16:00, in seconds."""

OPENING: Final[Mapping[str, int]] = {
    "AAA": 17_000,
    "BBB": 9_800,
    "CCC": 4_210,
    "DDD": 52_340,
    "ETF": 2_380,
}
"""Symbols and their first prices, cents."""

SECOND: Final = 1_000_000
STEP: Final = 0.000_15
"""Standard deviation of a price in a second, as a share of it: 2 % in a day."""
SHARED: Final = 0.6
"""The part of the variance that all symbols share."""
JUMPS_PER_HOUR: Final = 3.0
JUMP: Final = 0.002
"""Standard deviation of a jump of the market, as a share of the price."""

LAG_US: Final[Mapping[str, int]] = {"newyork": 0, "chicago": 40_000}
"""How long after a price an exchange quotes it."""
WIDER: Final[Mapping[str, int]] = {"newyork": 0, "chicago": 1}
"""Cents that an exchange adds to the spread."""


@dataclass(frozen=True)
class Prices:
    """The prices of each symbol in each second from `start_us` on, cents."""

    start_us: int
    cents: Mapping[str, Integers]


def walk(
    seed: int, opening: Mapping[str, int] = OPENING, seconds: int = DAY_S, start_us: int = START_US
) -> Prices:
    """Prices that walk at random.

    Args:
        seed: the same seed gives the same prices.
        opening: the first price of each symbol, cents.
        seconds: how long.
        start_us: when, microseconds since the epoch.
    """
    rng = _rng(seed, "market")
    market = rng.normal(0, STEP * SHARED**0.5, seconds)
    jumps = rng.random(seconds) < JUMPS_PER_HOUR / 3_600
    market += np.where(jumps, rng.normal(0, JUMP, seconds), 0)
    cents = {}
    for symbol, first in opening.items():
        own = _rng(seed, "walk", symbol).normal(0, STEP * (1 - SHARED) ** 0.5, seconds)
        steps = market + own
        steps[0] = 0
        path = np.rint(first * np.exp(np.cumsum(steps))).astype(np.int64)
        cents[symbol] = np.maximum(path, 10)
    return Prices(start_us, cents)


def prices_of(trades: pa.Table) -> Prices:
    """The prices of a recorded day: for each second the last trade, or else the price before.

    Args:
        trades: ascending by time, with at least one row.
    """
    micros = np.asarray(trades.column("time").cast(pa.int64()))
    start_us = int(micros[0]) // SECOND * SECOND
    second = (micros - start_us) // SECOND
    symbols = np.asarray(trades.column("symbol"))
    traded = np.rint(np.asarray(trades.column("price")) * 100).astype(np.int64)
    cents = {}
    for symbol in sorted(set(symbols)):
        chosen = symbols == symbol
        path = np.zeros(int(second[-1]) + 1, dtype=np.int64)
        path[second[chosen]] = traded[chosen]
        known = np.maximum.accumulate(np.where(path > 0, np.arange(len(path)), 0))
        # before the first trade the price is that of the first trade
        cents[str(symbol)] = np.where(path[known] > 0, path[known], traded[chosen][0])
    return Prices(start_us, cents)


def quotes(seed: int, prices: Prices, per_minute: float = 60.0) -> dict[str, pa.Table]:
    """The quotes of each exchange around prices, by time; no two of a symbol have the same time.
    Args: seed: the same seed gives the same quotes. prices: the prices around which they are.
    per_minute: quotes of a symbol by an exchange, on average.
    """
    return {
        exchange: _by_time(
            QUOTE,
            [
                _quotes_of(_rng(seed, exchange, symbol), exchange, symbol, prices, per_minute)
                for symbol in prices.cents
            ],
        )
        for exchange in EXCHANGES
    }


def trades(seed: int, prices: Prices, per_minute: float = 20.0) -> pa.Table:
    """Trades around prices, by time: at the price or a cent beside it, most of them small.

    Args:
        seed: the same seed gives the same trades.
        prices: the prices around which these are.
        per_minute: trades of a symbol, on average.
    """
    parts = []
    for symbol, cents in prices.cents.items():
        rng = _rng(seed, "trades", symbol)
        times = _times(rng, len(cents), per_minute)
        price = cents[times // SECOND] + rng.integers(-1, 2, len(times))
        # shares are traded by the hundred, apart from some odd lots
        lots = 100 * np.ceil(rng.pareto(1.5, len(times)) + 0.01).astype(np.int64)
        odd = rng.random(len(times)) < 0.15
        size = np.where(odd, rng.integers(1, 100, len(times)), np.minimum(lots, 100_000))
        parts.append(_part(symbol, prices.start_us + times, price / 100, size))
    return _by_time(TRADE, parts)


def _rng(seed: int, *words: str) -> np.random.Generator:
    """A separate random generator for each purpose, so that a new symbol does not change the
    others."""
    return np.random.default_rng([seed, zlib.crc32(repr(words).encode())])


def _times(rng: np.random.Generator, seconds: int, per_minute: float) -> Integers:
    """Different times, ascending, microseconds from the start: busier at both ends."""
    middle = np.abs(np.linspace(-1, 1, seconds))
    each_second = rng.poisson((0.6 + 1.2 * middle**2) * per_minute / 60)
    whole = np.repeat(np.arange(seconds), each_second) * SECOND
    return np.unique(whole + rng.integers(0, SECOND, len(whole)))


def _quotes_of(
    rng: np.random.Generator, exchange: str, symbol: str, prices: Prices, per_minute: float
) -> list[pa.Array]:
    cents = prices.cents[symbol]
    times = _times(rng, len(cents), per_minute)
    price = cents[np.maximum(times - LAG_US[exchange], 0) // SECOND]
    below = rng.geometric(0.6, len(times)) - 1 + WIDER[exchange]
    above = rng.geometric(0.6, len(times)) + WIDER[exchange]
    bid = np.maximum(price - below, 1)
    sizes = (100 * rng.geometric(0.2, len(times)) for _ in range(2))
    return _part(
        symbol, prices.start_us + times, bid / 100, np.maximum(price + above, 2) / 100, *sizes
    )


def _part(
    symbol: str, times: Integers, *columns: Integers | npt.NDArray[np.float64]
) -> list[pa.Array]:
    names = pa.array([symbol]).take(pa.array(np.zeros(len(times), dtype=np.int64)))
    return [pa.array(times).cast(QUOTE.field("time").type), names, *map(pa.array, columns)]


def _by_time(schema: pa.Schema, parts: list[list[pa.Array]]) -> pa.Table:
    whole = pa.concat_tables(
        [schema.empty_table(), *(pa.table(part, schema=schema) for part in parts)]
    )
    order = pc.sort_indices(whole, [("time", "ascending"), ("symbol", "ascending")])
    return whole.take(order)
