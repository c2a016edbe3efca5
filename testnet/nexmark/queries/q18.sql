-- Query 18, last bid: the last bid of each bidder on each auction. The answer is the final state of
-- an updating table.
-- From nexmark/nexmark, nexmark-flink/src/main/resources/queries/q18.sql, in our words.
-- Left out: the sink (connector blackhole).

SELECT auction, bidder, price, channel, url, dateTime, extra
FROM (
    SELECT
        *,
        ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) AS rank_number
    FROM bid
) AS ranked
WHERE rank_number <= 1
