-- Query 17, auction statistics: bids on each auction on each day, and their prices. The answer is
-- the final state of an updating table; AVG of BIGINT is a BIGINT in Flink (the rest is cut off).
-- From nexmark/nexmark, nexmark-flink/src/main/resources/queries/q17.sql, in our words.
-- Left out: the sink (connector blackhole).

SELECT
    auction,
    DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS `day`,
    COUNT(*) AS total_bids,
    COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
    COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
    COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
    MIN(price) AS min_price,
    MAX(price) AS max_price,
    AVG(price) AS avg_price,
    SUM(price) AS sum_price
FROM bid
GROUP BY auction, DATE_FORMAT(dateTime, 'yyyy-MM-dd')
