-- Query 4, average price for a category: the mean of the winning bids of its auctions. The answer
-- is the final state of an updating table; AVG of BIGINT is a BIGINT in Flink (the rest is cut off).
-- From nexmark/nexmark, nexmark-flink/src/main/resources/queries/q4.sql, in our words.
-- Left out: the sink (connector blackhole), whose columns are id and final.

SELECT
    won.category AS id,
    AVG(won.final) AS final
FROM (
    SELECT a.category, MAX(b.price) AS final
    FROM auction AS a, bid AS b
    WHERE a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
    GROUP BY a.id, a.category
) AS won
GROUP BY won.category
