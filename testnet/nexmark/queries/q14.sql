-- Query 14, calculation: bids of some prices, with the time of day in words, and how many times the
-- letter c is in extra.
-- From nexmark/nexmark, nexmark-flink/src/main/resources/queries/q14.sql, in our words.
-- Left out: the sink (connector blackhole), which declares price as DECIMAL(23, 3), and the
-- declaration of count_char, a user-defined function in Java.

SELECT
    auction,
    bidder,
    0.908 * price AS price,
    CASE
        WHEN HOUR(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
        WHEN HOUR(dateTime) <= 6 OR HOUR(dateTime) >= 20 THEN 'nightTime'
        ELSE 'otherTime'
    END AS bidTimeType,
    dateTime,
    extra,
    count_char(extra, 'c') AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
