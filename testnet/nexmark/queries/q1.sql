-- Query 1, currency conversion: every bid, its price in euros instead of dollars.
-- From nexmark/nexmark, nexmark-flink/src/main/resources/queries/q1.sql, in our words.
-- Left out: the sink (connector blackhole), which declares price as DECIMAL(23, 3).

SELECT
    auction,
    bidder,
    0.908 * price AS price,
    dateTime,
    extra
FROM bid
