"""Nexmark's queries again, in plain Python over lists of rows, to check the oracle. Each function
follows the text of its query, not the oracle's SQL, with loops, dictionaries and sorting."""

from __future__ import annotations

import datetime
import decimal
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final

from medusa.testnet.nexmark.generate import Events

Row = dict[str, Any]
Answer = list[tuple[Any, ...]]

EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
SECOND: Final = datetime.timedelta(seconds=1)
GROUPS: Final = (range(10**9), range(10_000), range(10_000, 1_000_000), range(1_000_000, 10**9))
"""Groups of all prices, and of the three ranks of prices."""


class Rows:
    """The three tables as lists of rows."""

    def __init__(self, events: Events) -> None:
        self.person: list[Row] = events.person.to_pylist()
        self.auction: list[Row] = events.auction.to_pylist()
        self.bid: list[Row] = events.bid.to_pylist()


def bucket(moment: datetime.datetime, seconds: int) -> datetime.datetime:
    return EPOCH + (moment - EPOCH) // (seconds * SECOND) * (seconds * SECOND)


def day(row: Row) -> str:
    return str(row["dateTime"].date())


def minute(row: Row) -> str:
    return f"{row['dateTime'].hour:02}:{row['dateTime'].minute:02}"


def columns(rows: Iterable[Row], *names: str) -> Answer:
    return [tuple(row[name] for name in names) for row in rows]


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    groups = defaultdict(list)
    for row in rows:
        groups[tuple(row[name] for name in names)].append(row)
    return groups


def winning(rows: Rows) -> list[tuple[Row, Row]]:
    """Return each auction that got a bid while it was open, with its best bid."""
    bids = grouped(rows.bid, "auction")
    won = []
    for auction in rows.auction:
        best: Row | None = None
        for bid in bids.get((auction["id"],), []):
            is_open = auction["dateTime"] <= bid["dateTime"] <= auction["expires"]
            if is_open and (best is None or bid["price"] > best["price"]):
                best = bid
        if best is not None:
            won.append((auction, best))
    return won


def bids_by_rank(bids: list[Row]) -> tuple[int, ...]:
    return tuple(sum(bid["price"] in prices for bid in bids) for prices in GROUPS)


def statistics(bids: list[Row]) -> tuple[int, ...]:
    distinct = [
        len({bid[column] for bid in bids if bid["price"] in prices})
        for column in ("bidder", "auction")
        for prices in GROUPS
    ]
    return (*bids_by_rank(bids), *distinct)


def q0(rows: Rows) -> Answer:
    return columns(rows.bid, "auction", "bidder", "price", "dateTime", "extra")


def euros(bid: Row) -> decimal.Decimal:
    return bid["price"] * decimal.Decimal("0.908")


def q1(rows: Rows) -> Answer:
    return [(b["auction"], b["bidder"], euros(b), b["dateTime"], b["extra"]) for b in rows.bid]


def q2(rows: Rows) -> Answer:
    return [(bid["auction"], bid["price"]) for bid in rows.bid if bid["auction"] % 123 == 0]


def q3(rows: Rows) -> Answer:
    return [
        (person["name"], person["city"], person["state"], auction["id"])
        for auction in rows.auction
        for person in rows.person
        if auction["seller"] == person["id"]
        and auction["category"] == 10
        and person["state"] in {"OR", "ID", "CA"}
    ]


def q4(rows: Rows) -> Answer:
    prices = defaultdict(list)
    for auction, bid in winning(rows):
        prices[auction["category"]].append(bid["price"])
    return [(category, sum(won) // len(won)) for category, won in prices.items()]


def q5(rows: Rows) -> Answer:
    counts: dict[datetime.datetime, Counter[int]] = defaultdict(Counter)
    for bid in rows.bid:
        start = bucket(bid["dateTime"], 2)
        while start + 10 * SECOND > bid["dateTime"]:
            counts[start][bid["auction"]] += 1
            start -= 2 * SECOND
    return [
        (auction, count)
        for window in counts.values()
        for auction, count in window.items()
        if count == max(window.values())
    ]


def q6(rows: Rows) -> Answer:
    by_seller = defaultdict(list)
    for auction, bid in winning(rows):
        by_seller[auction["seller"]].append((bid["dateTime"], bid["price"]))
    answer = []
    for seller, won in by_seller.items():
        prices = [price for _, price in sorted(won)]
        for last in range(1, len(prices) + 1):
            eleven = prices[max(last - 11, 0) : last]
            answer.append((seller, sum(eleven) // len(eleven)))
    return answer


def q7(rows: Rows) -> Answer:
    highest: dict[datetime.datetime, int] = {}
    for bid in rows.bid:
        start = bucket(bid["dateTime"], 10)
        highest[start] = max(highest.get(start, 0), bid["price"])
    best = [
        bid
        for bid in rows.bid
        for start, price in highest.items()
        if bid["price"] == price and start <= bid["dateTime"] <= start + 10 * SECOND
    ]
    return columns(best, "auction", "bidder", "price", "dateTime", "extra")


def q8(rows: Rows) -> Answer:
    sold = {(auction["seller"], bucket(auction["dateTime"], 10)) for auction in rows.auction}
    joined = {(p["id"], p["name"], bucket(p["dateTime"], 10)) for p in rows.person}
    return [row for row in joined if (row[0], row[2]) in sold]


def q9(rows: Rows) -> Answer:
    bid_columns = ("auction", "bidder", "price", "dateTime", "extra")
    return [
        (*auction.values(), *(bid[column] for column in bid_columns))
        for auction, bid in winning(rows)
    ]


def q10(rows: Rows) -> Answer:
    return [(*row, day(bid), minute(bid)) for row, bid in zip(q0(rows), rows.bid, strict=True)]


def q11(rows: Rows) -> Answer:
    answer = []
    for (bidder,), bids in grouped(rows.bid, "bidder").items():
        times = sorted(bid["dateTime"] for bid in bids)
        session = [times[0]]
        for earlier, later in itertools.pairwise(times):
            if later - earlier > 10 * SECOND:
                answer.append((bidder, len(session), session[0], earlier + 10 * SECOND))
                session = []
            session.append(later)
        answer.append((bidder, len(session), session[0], times[-1] + 10 * SECOND))
    return answer


def q12(rows: Rows) -> Answer:
    counts = Counter((bid["bidder"], bucket(bid["dateTime"], 10)) for bid in rows.bid)
    return [(bidder, n, start, start + 10 * SECOND) for (bidder, start), n in counts.items()]


def q13(rows: Rows) -> Answer:
    picked = columns(rows.bid, "auction", "bidder", "price", "dateTime")
    return [(*row, str(row[0] % 10_000)) for row in picked]


def q14(rows: Rows) -> Answer:
    words = dict.fromkeys(range(8, 19), "dayTime") | {7: "otherTime", 19: "otherTime"}
    return [
        (
            bid["auction"],
            bid["bidder"],
            euros(bid),
            words.get(bid["dateTime"].hour, "nightTime"),
            bid["dateTime"],
            bid["extra"],
            bid["extra"].count("c"),
        )
        for bid in rows.bid
        if 1_000_000 < euros(bid) < 50_000_000
    ]


def with_days(rows: Rows) -> list[Row]:
    return [bid | {"day": day(bid), "minute": minute(bid)} for bid in rows.bid]


def q15(rows: Rows) -> Answer:
    return [(*key, *statistics(bids)) for key, bids in grouped(with_days(rows), "day").items()]


def q16(rows: Rows) -> Answer:
    return [
        (*key, max(bid["minute"] for bid in bids), *statistics(bids))
        for key, bids in grouped(with_days(rows), "channel", "day").items()
    ]


def q17(rows: Rows) -> Answer:
    answer = []
    for key, bids in grouped(with_days(rows), "auction", "day").items():
        prices = [bid["price"] for bid in bids]
        numbers = min(prices), max(prices), sum(prices) // len(prices), sum(prices)
        answer.append((*key, *bids_by_rank(bids), *numbers))
    return answer


def q18(rows: Rows) -> Answer:
    last = {(bid["bidder"], bid["auction"]): tuple(bid.values()) for bid in rows.bid}
    return list(last.values())


def q19(rows: Rows) -> Answer:
    answer = []
    for bids in grouped(rows.bid, "auction").values():
        best = sorted(bids, key=lambda bid: (-bid["price"], bid["dateTime"]))[:10]
        answer += [(*bid.values(), place) for place, bid in enumerate(best, 1)]
    return answer


def q20(rows: Rows) -> Answer:
    of_auction = "itemName description initialBid reserve dateTime expires seller category extra"
    auctions = {auction["id"]: auction for auction in rows.auction if auction["category"] == 10}
    return [
        (*bid.values(), *(auctions[bid["auction"]][column] for column in of_auction.split()))
        for bid in rows.bid
        if bid["auction"] in auctions
    ]


def q21(rows: Rows) -> Answer:
    known = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
    answer = []
    for bid in rows.bid:
        found = re.search(r"&channel_id=([^&]*)", bid["url"])
        channel = known.get(bid["channel"].lower(), found.group(1) if found else None)
        if channel is not None:
            answer.append((bid["auction"], bid["bidder"], bid["price"], bid["channel"], channel))
    return answer


def q22(rows: Rows) -> Answer:
    picked = columns(rows.bid, "auction", "bidder", "price", "channel")
    return [(*row, *bid["url"].split("/")[3:6]) for row, bid in zip(picked, rows.bid, strict=True)]


BY_HAND: Final[dict[str, Callable[[Rows], Answer]]] = {
    f"q{number}": globals()[f"q{number}"] for number in range(23)
}
