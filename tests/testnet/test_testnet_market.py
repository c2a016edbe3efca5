"""The market: its prices and quotes, trades from a file, and the oracle against plain Python."""

from __future__ import annotations

import bisect
import datetime
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from medusa.testnet.market import oracle
from medusa.testnet.market.generate import (
    DAY_S,
    OPENING,
    START_US,
    Prices,
    prices_of,
    quotes,
    trades,
    walk,
)
from medusa.testnet.market.tables import EXCHANGES, QUOTE, TIME, TRADE, BadTradesError, read_taq

TAQ: Final = (
    Path(__file__).parents[2].parent / "shared" / "data" / "taq_trades_multi_2014-09-17.parquet"
)
MINUTE: Final = datetime.timedelta(minutes=1)
HOUR_S: Final = 3_600

Row = dict[str, Any]


@pytest.fixture(scope="module")
def hour() -> Prices:
    return walk(3, seconds=HOUR_S)


def exact(price: float) -> Fraction:
    """Return the price with four decimal places."""
    return Fraction(round(price * 10_000), 10_000)


def by_minute(given: pa.Table) -> dict[tuple[datetime.datetime, str], list[Row]]:
    groups = defaultdict(list)
    for row in given.to_pylist():
        groups[row["time"].replace(second=0, microsecond=0), row["symbol"]].append(row)
    return dict(sorted(groups.items()))


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def known(chosen: Callable[[list[float]], float], values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return chosen(there) if there else None


def crossed_by_hand(quoted_by: dict[str, pa.Table]) -> list[tuple[Any, ...]]:
    """Go through all quotes by time; of two quotes at one moment each sees the other exchange's
    quote."""
    moments = defaultdict(list)
    for exchange, table in quoted_by.items():
        for row in table.to_pylist():
            moments[row["time"], row["symbol"]].append((exchange, row))
    newest: dict[tuple[str, str], Row] = {}
    found = []
    for (time, symbol), quoted in sorted(moments.items(), key=itemgetter(0)):
        newest.update({(exchange, symbol): row for exchange, row in quoted})
        books = [newest.get((exchange, symbol)) for exchange in EXCHANGES]
        for buys, one, other in zip(EXCHANGES, books, reversed(books), strict=True):
            if one and other and one["bid"] > other["ask"]:
                found += [(time, symbol, buys, one["bid"], other["ask"])] * len(quoted)
    return found


def check_by_hand(given: pa.Table, quoted_by: dict[str, pa.Table], basis_points: int) -> None:
    """Compute all answers row by row, and compare."""
    groups = by_minute(given)
    vwap = oracle.vwap(given).to_pylist()
    assert [(row["minute"], row["symbol"]) for row in vwap] == list(groups)
    for answer, group in zip(vwap, groups.values(), strict=True):
        volume = sum(row["size"] for row in group)
        assert (answer["trades"], answer["volume"]) == (len(group), volume)
        mean = sum(exact(row["price"]) * row["size"] for row in group) / volume
        assert answer["vwap"] == pytest.approx(float(mean), rel=1e-14)

    right_bars = [
        (
            *key,
            group[0]["price"],
            max(row["price"] for row in group),
            min(row["price"] for row in group),
            group[-1]["price"],
            sum(row["size"] for row in group),
        )
        for key, group in groups.items()
    ]
    assert [tuple(row.values()) for row in oracle.bars(given).to_pylist()] == right_bars

    books: dict[tuple[str, str], tuple[list[datetime.datetime], list[Row]]] = {}
    for exchange, table in quoted_by.items():
        for row in table.to_pylist():
            times, rows = books.setdefault((exchange, row["symbol"]), ([], []))
            times.append(row["time"])
            rows.append(row)
    right_quotes = []
    for row in given.to_pylist():
        found: list[float | None] = []
        for exchange in EXCHANGES:
            times, rows = books.get((exchange, row["symbol"]), ([], []))
            place = bisect.bisect_right(times, row["time"])
            found += [rows[place - 1]["bid"], rows[place - 1]["ask"]] if place else [None, None]
        right_quotes.append((*row.values(), *found))
    answer = oracle.quoted(given, quoted_by).to_pylist()
    assert [tuple(row.values()) for row in answer] == right_quotes
    assert rows_of(oracle.best(given, quoted_by)) == [
        (*row[:4], known(max, row[4::2]), known(min, row[5::2])) for row in right_quotes
    ]
    assert sorted(rows_of(oracle.crossed(quoted_by))) == sorted(crossed_by_hand(quoted_by))

    rises = defaultdict(list)
    for (minute, symbol), group in groups.items():
        first, last = exact(group[0]["price"]), exact(group[-1]["price"])
        if (last - first) / first > Fraction(basis_points, 10_000):
            rises[minute].append((symbol, (last - first) / first))
    right_pairs = [
        (minute, one[0], other[0], float(one[1]), float(other[1]))
        for minute, risen in sorted(rises.items())
        for one, other in itertools.combinations(sorted(risen), 2)
    ]
    pairs = [tuple(row.values()) for row in oracle.together(given, basis_points).to_pylist()]
    assert [pair[:3] for pair in pairs] == [pair[:3] for pair in right_pairs]
    for pair, right in zip(pairs, right_pairs, strict=True):
        assert pair[3:] == pytest.approx(right[3:], rel=1e-12)
    assert pairs, "an empty answer proves nothing"


def test_equals_plain_python(hour: Prices) -> None:
    check_by_hand(trades(3, hour), quotes(3, hour), basis_points=5)


def test_equals_plain_python_for_a_real_day() -> None:
    if not TAQ.exists():
        pytest.skip("taq_trades_multi_2014-09-17: the trades are not here")
    given = read_taq(TAQ)
    assert len(given) == 43_581
    assert given.schema == TRADE
    times = given.column("time").cast(pa.int64()).to_pylist()
    assert times == sorted(times)
    assert given.column("time")[0].as_py().hour == 13, "9:30 in New York is 13:30 UTC"
    check_by_hand(given, quotes(1, prices_of(given)), basis_points=5)


def test_a_trade_before_any_quote_has_none() -> None:
    at = [START_US, START_US + 5, START_US + 10]
    time = pa.array(at).cast(TIME)
    given = pa.table([time, ["X"] * 3, [1.0, 2.0, 3.0], [1, 1, 1]], schema=TRADE)
    book = pa.table([time[1:2], ["X"], [9.0], [9.5], [1], [1]], schema=QUOTE)
    answer = oracle.quoted(given, {"newyork": book, "chicago": QUOTE.empty_table()})
    assert answer.column("newyork_bid").to_pylist() == [None, 9.0, 9.0]
    assert answer.column("chicago_ask").to_pylist() == [None] * 3


def test_a_market_is_crossed_by_another_exchange_s_latest_quote() -> None:
    def book(*rows: tuple[int, float, float]) -> pa.Table:
        time, bid, ask = zip(*rows, strict=True)
        at = pa.array([START_US + each for each in time]).cast(TIME)
        one = [1] * len(rows)
        return pa.table([at, ["X"] * len(rows), bid, ask, one, one], schema=QUOTE)

    newyork = book((0, 1.0, 2.0), (5, 4.0, 5.0), (9, 1.0, 2.0))
    chicago = book((5, 2.0, 3.0), (8, 1.0, 2.0), (9, 2.0, 4.0))
    found = oracle.crossed({"newyork": newyork, "chicago": chicago}).to_pylist()
    bids = [(row["time"].microsecond, row["buys"], row["bid"], row["ask"]) for row in found]
    assert bids == [(5, "newyork", 4.0, 3.0)] * 2 + [(8, "newyork", 4.0, 2.0)]


def test_a_rise_must_be_more_than_the_threshold() -> None:
    """From 100 to 101 is a hundred basis points exactly, which a double of the change would not
    show."""
    at = pa.array([START_US + n for n in range(4)]).cast(TIME)
    given = pa.table([at, ["X", "Y"] * 2, [100.0, 100.0, 101.0, 102.0], [1] * 4], schema=TRADE)
    assert len(oracle.together(given, 100)) == 0
    (pair,) = oracle.together(given, 99).to_pylist()
    assert (pair["one"], pair["other"]) == ("X", "Y")


def test_the_order_of_trades_at_one_time_decides() -> None:
    at = pa.array([START_US] * 3).cast(TIME)
    given = pa.table([at, ["X"] * 3, [2.0, 9.0, 5.0], [1] * 3], schema=TRADE)
    (bar,) = oracle.bars(given).to_pylist()
    assert (bar["open"], bar["high"], bar["low"], bar["close"]) == (2.0, 9.0, 2.0, 5.0)


def test_a_seed_gives_the_same_market(hour: Prices) -> None:
    again = walk(3, seconds=HOUR_S)
    assert quotes(5, again) == quotes(5, hour)
    assert trades(5, again) == trades(5, hour)
    assert quotes(6, hour) != quotes(5, hour)
    assert (walk(4, seconds=HOUR_S).cents["AAA"] != hour.cents["AAA"]).any()


def test_one_symbol_more_changes_no_other(hour: Prices) -> None:
    fewer = walk(3, {"AAA": OPENING["AAA"]}, HOUR_S)
    assert (fewer.cents["AAA"] == hour.cents["AAA"]).all()
    of_both = quotes(1, hour)["chicago"]
    alone = of_both.filter(pc.equal(of_both.column("symbol"), "AAA"))
    assert quotes(1, fewer)["chicago"].to_pylist() == alone.to_pylist()


def test_quotes_are_in_order_and_none_is_crossed(hour: Prices) -> None:
    for table in quotes(1, hour).values():
        assert table.schema == QUOTE
        times = np.asarray(table.column("time"), "M8[us]")
        assert (times[:-1] <= times[1:]).all()
        assert pc.all(pc.less(table.column("bid"), table.column("ask"))).as_py()
        keys = table.select(["time", "symbol"])
        assert len(keys.group_by(["time", "symbol"]).aggregate([])) == len(table)
        # about sixty quotes per minute of each symbol
        assert abs(len(table) / (len(OPENING) * HOUR_S) - 1) < 0.1
    spread = {
        name: pc.mean(pc.subtract(table.column("ask"), table.column("bid"))).as_py()
        for name, table in quotes(1, hour).items()
    }
    assert spread["newyork"] < spread["chicago"]


def test_prices_walk_and_move_together() -> None:
    cents = walk(1).cents
    assert {len(path) for path in cents.values()} == {DAY_S}
    assert {symbol: path[0] for symbol, path in cents.items()} == dict(OPENING)
    returns = {name: np.diff(np.log(path[::60].astype(float))) for name, path in cents.items()}
    for one, other in itertools.combinations(["AAA", "BBB", "DDD"], 2):
        assert np.corrcoef(returns[one], returns[other])[0, 1] > 0.4
    # a price change in one second does not predict the next one
    second = np.diff(np.log(cents["DDD"].astype(float)))
    assert abs(np.corrcoef(second[:-1], second[1:])[0, 1]) < 0.05


def test_the_ends_of_a_day_are_busier() -> None:
    times = np.asarray(trades(1, walk(1)).column("time"), "M8[us]").astype(np.int64) - START_US
    thirds = np.histogram(times, [0, 7_800 * 10**6, 15_600 * 10**6, 23_400 * 10**6])[0]
    assert thirds[1] < 0.7 * min(thirds[0], thirds[2])


def test_the_prices_of_a_day_are_its_trades() -> None:
    at = pa.array([START_US + s * 1_000_000 + 5 for s in (0, 2, 2, 4)]).cast(TIME)
    given = pa.table([at, ["X", "Y", "X", "X"], [1.0, 7.0, 2.0, 3.0], [1] * 4], schema=TRADE)
    prices = prices_of(given)
    assert prices.start_us == START_US
    assert prices.cents["X"].tolist() == [100, 100, 200, 200, 300]
    assert prices.cents["Y"].tolist() == [700] * 5


def taq(**columns: list[Any]) -> pa.Table:
    given = {
        "DT": [datetime.datetime(2024, 1, 5, 9, 30), datetime.datetime(2024, 1, 5, 9, 29)],  # noqa: DTZ001
        "SYMBOL": ["X", "X"],
        "PRICE": [1.5, 2.5],
        "SIZE": [10, 20],
    }
    return pa.table({name: values for name, values in (given | columns).items() if values})


def test_a_file_of_trades(tmp_path: Path) -> None:
    pq.write_table(taq(), tmp_path / "taq.parquet")
    rows = read_taq(tmp_path / "taq.parquet").to_pylist()
    assert [row["price"] for row in rows] == [2.5, 1.5]
    assert rows[1]["time"] == datetime.datetime(2024, 1, 5, 14, 30, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"SIZE": []}, "no column SIZE"),
        ({"PRICE": [1.0, -1.0]}, "row 1: price -1.0 is not that of a trade"),
        ({"PRICE": [float("nan"), 1.0]}, "row 0: price nan"),
        ({"PRICE": [None, 1.0]}, "row 0: price None"),
        ({"SIZE": [0, 1]}, "row 0: size 0"),
        ({"SIZE": [1.5, 1]}, "not a table of trades: Float value 1.5"),
        ({"DT": ["noon", "one"]}, "DT is string; it must be a timestamp"),
        ({"SYMBOL": ["X", None]}, "row 1: symbol None"),
    ],
)
def test_a_wrong_file_of_trades_is_refused_with_its_reason(
    columns: dict[str, list[Any]], reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "taq.parquet"
    pq.write_table(taq(**columns), path)
    with pytest.raises(BadTradesError, match=reason) as raised:
        read_taq(path)
    assert str(path) in str(raised.value)


def test_a_file_that_is_not_parquet(tmp_path: Path) -> None:
    path = tmp_path / "taq.parquet"
    for content in (b"", b"PAR1 and no more", b"DT,SYMBOL,PRICE,SIZE\n"):
        path.write_bytes(content)
        with pytest.raises(BadTradesError, match="not a table of trades"):
            read_taq(path)
    with pytest.raises(BadTradesError, match="not a table of trades"):
        read_taq(tmp_path / "absent.parquet")
