"""The right answers of Nexmark's queries over whole tables, by DuckDB.

`queries/` has the text of each query as the benchmark for Flink asks it. DuckDB has no windows over
streams, so here a window is a bucket of time, a hop is a join with its starts, and a session is a
running count of its beginnings.

* The answer of a query whose table is updated is the final state of the table: q4, q6, q9, q15 to
  q19. Windows are all closed: the input has ended.
* A mean of whole numbers is a whole number, cut off, as Flink's AVG of BIGINT: q4, q6, q17.
* Of equal prices the earlier bid is the better one: q6, q9 and q19.
* q12 and q13 have their twins in event time; see their texts.
* A column without a name in a text has the sink's. An answer may have equal rows (q2, q5, q6).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa

from medusa.testnet.nexmark.generate import Events
from medusa.testnet.workload.oracle import answer_of, in_order

TEXTS: Final = Path(__file__).with_name("queries")
"""The folder of the queries' texts, q0.sql to q22.sql: to read, not to run."""

SIDE_ROWS: Final = 10_000

_READ: Final = re.compile(r"\b(?:FROM|JOIN) (\w+)")

_WORDS: Final = """
    CREATE MACRO day_of(moment) AS strftime(moment, '%Y-%m-%d');
    CREATE MACRO minute_of(moment) AS strftime(moment, '%H:%M');
    CREATE MACRO euros(price) AS CAST(CAST(0.908 AS DECIMAL(4, 3)) * price AS DECIMAL(23, 3));
    CREATE MACRO rank_of(price) AS CASE WHEN price < 10000 THEN 1 WHEN price < 1000000 THEN 2
        ELSE 3 END;
    CREATE VIEW won AS
        SELECT a.*, b.auction, b.bidder, b.price, b.dateTime AS bid_dateTime, b.extra AS bid_extra
        FROM auction AS a JOIN bid AS b
            ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
        QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime) = 1"""
"""SQL that several answers share."""


def _ranked(counted: str, name: str) -> str:
    """Columns of SQL: the count in all, and by rank."""
    ranks = (
        f"count({counted}) FILTER (rank_of(price) = {rank}) AS rank{rank}_{name}"
        for rank in (1, 2, 3)
    )
    return ", ".join((f"count({counted}) AS total_{name}", *ranks))


_RANKED: Final = ", ".join(
    (
        _ranked("*", "bids"),
        _ranked("DISTINCT bidder", "bidders"),
        _ranked("DISTINCT auction", "auctions"),
    )
)

QUERIES: Final[Mapping[str, str]] = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": "SELECT auction, bidder, euros(price) AS price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """
        SELECT name, city, state, auction.id
        FROM auction JOIN person ON seller = person.id
        WHERE category = 10 AND state IN ('OR', 'ID', 'CA')""",
    "q4": """
        SELECT category AS id, CAST(sum(price) // count(*) AS BIGINT) AS final
        FROM won GROUP BY category""",
    "q5": """
        WITH starts AS (
            SELECT auction, time_bucket(INTERVAL 2 SECONDS, dateTime) - to_seconds(back) AS start
            FROM bid, generate_series(0, 8, 2) AS hop(back)),
        counts AS (SELECT auction, start, count(*) AS num FROM starts GROUP BY auction, start)
        SELECT auction, num FROM counts
        QUALIFY num = max(num) OVER (PARTITION BY start)""",
    "q6": """
        SELECT seller, CAST(sum(price) OVER last_ones // count(*) OVER last_ones AS BIGINT)
            AS avg_price
        FROM won
        WINDOW last_ones AS (
            PARTITION BY seller ORDER BY bid_dateTime ROWS BETWEEN 10 PRECEDING AND CURRENT ROW)""",
    "q7": """
        WITH highest AS (
            SELECT time_bucket(INTERVAL 10 SECONDS, dateTime) AS start, max(price) AS price
            FROM bid GROUP BY start)
        SELECT auction, bidder, bid.price, dateTime, extra
        FROM bid JOIN highest
            ON bid.price = highest.price
            AND dateTime BETWEEN start AND start + INTERVAL 10 SECONDS""",
    "q8": """
        SELECT DISTINCT person.id, name, time_bucket(INTERVAL 10 SECONDS, person.dateTime) AS stime
        FROM person JOIN auction
            ON person.id = seller
            AND time_bucket(INTERVAL 10 SECONDS, auction.dateTime)
                = time_bucket(INTERVAL 10 SECONDS, person.dateTime)""",
    "q9": "SELECT * FROM won",
    "q10": """
        SELECT auction, bidder, price, dateTime, extra,
            day_of(dateTime) AS dt, minute_of(dateTime) AS hm
        FROM bid""",
    "q11": """
        WITH marked AS (
            SELECT bidder, dateTime, coalesce(dateTime - lag(dateTime) OVER earlier
                > INTERVAL 10 SECONDS, true) AS begins
            FROM bid WINDOW earlier AS (PARTITION BY bidder ORDER BY dateTime)),
        numbered AS (
            SELECT bidder, dateTime, count(*) FILTER (begins) OVER (
                PARTITION BY bidder ORDER BY dateTime) AS session
            FROM marked)
        SELECT bidder, count(*) AS bid_count, min(dateTime) AS starttime,
            max(dateTime) + INTERVAL 10 SECONDS AS endtime
        FROM numbered GROUP BY bidder, session""",
    "q12": """
        SELECT bidder, count(*) AS bid_count,
            time_bucket(INTERVAL 10 SECONDS, dateTime) AS starttime,
            starttime + INTERVAL 10 SECONDS AS endtime
        FROM bid GROUP BY bidder, starttime""",
    "q13": """
        SELECT auction, bidder, price, dateTime, value
        FROM bid JOIN side_input ON auction % 10000 = key""",
    "q14": """
        SELECT auction, bidder, euros(price) AS price,
            CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
                 WHEN hour(dateTime) IN (7, 19) THEN 'otherTime'
                 ELSE 'nightTime' END AS bidTimeType,
            dateTime, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
        FROM bid WHERE euros(price) > 1000000 AND euros(price) < 50000000""",
    "q15": f"""
        SELECT day_of(dateTime) AS day,
            {_RANKED}
        FROM bid GROUP BY day""",  # noqa: S608 - our own words
    "q16": f"""
        SELECT channel, day_of(dateTime) AS day, minute_of(max(dateTime)) AS minute,
            {_RANKED}
        FROM bid GROUP BY channel, day""",  # noqa: S608 - our own words
    "q17": f"""
        SELECT auction, day_of(dateTime) AS day,
            {_ranked("*", "bids")},
            min(price) AS min_price, max(price) AS max_price,
            CAST(sum(price) // count(*) AS BIGINT) AS avg_price,
            CAST(sum(price) AS BIGINT) AS sum_price
        FROM bid GROUP BY auction, day""",  # noqa: S608 - our own words
    "q18": """
        SELECT auction, bidder, price, channel, url, dateTime, extra FROM bid
        QUALIFY row_number() OVER (PARTITION BY auction, bidder ORDER BY dateTime DESC) = 1""",
    "q19": """
        SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, dateTime)
            AS rank_number
        FROM bid QUALIFY rank_number <= 10""",
    "q20": """
        SELECT auction, bidder, price, channel, url,
            bid.dateTime AS bid_dateTime, bid.extra AS bid_extra,
            itemName, description, initialBid, reserve,
            auction.dateTime AS auction_dateTime, expires, seller, category,
            auction.extra AS auction_extra
        FROM bid JOIN auction ON bid.auction = auction.id WHERE category = 10""",
    "q21": """
        SELECT auction, bidder, price, channel, coalesce(
            CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
                WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3' END,
            nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')) AS channel_id
        FROM bid WHERE channel_id IS NOT NULL""",
    "q22": """
        SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1,
            split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
        FROM bid""",
}
"""The answers in DuckDB's SQL, by query."""


def side_input() -> pa.Table:
    """The table with which q13 joins: the numbers from 0 to 9999, each with itself as text."""
    keys = pa.array(range(SIDE_ROWS), pa.int64())
    return pa.table({"key": keys, "value": keys.cast(pa.string())})


def reads(query: str) -> frozenset[str]:
    """The tables that a query reads.

    Raises:
        KeyError: there is no such query.
    """
    found = set(_READ.findall(QUERIES[query]))
    if "won" in found:
        found |= {"auction", "bid"}
    return frozenset(found & {"person", "auction", "bid", "side_input"})


def expected(query: str, events: Events) -> pa.Table:
    """The answer of a query over whole tables, sorted by its columns from left to right.

    Args:
        query: q0 to q22.
        events: all input of the query.

    Raises:
        KeyError: there is no such query.
    """
    tables = {
        "person": events.person,
        "auction": events.auction,
        "bid": events.bid,
        "side_input": side_input(),
    }
    return in_order(answer_of(QUERIES[query], tables, _WORDS))
