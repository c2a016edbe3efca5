-- Query 6, average selling price by seller: over the auction and the ten of the seller before it,
-- by the time of the winning bid. Flink refuses it: its OVER cannot read an input that takes rows
-- back (FLINK-19059), and the ranking below does. There is no measurement of q6 to compare with;
-- the answer here is the batch answer over the whole input.
-- From nexmark/nexmark, nexmark-flink/src/main/resources/queries/q6.sql, in our words. The original
-- ranks by price alone; here the earlier of two equal bids wins, as in q9.
-- Left out: the sink (connector blackhole).

SELECT
    won.seller,
    AVG(won.price) OVER (
        PARTITION BY won.seller
        ORDER BY won.dateTime
        ROWS BETWEEN 10 PRECEDING AND CURRENT ROW
    ) AS avg_price
FROM (
    SELECT
        a.id, a.seller, b.price, b.dateTime,
        ROW_NUMBER() OVER (
            PARTITION BY a.id, a.seller ORDER BY b.price DESC, b.dateTime ASC
        ) AS place
    FROM auction AS a, bid AS b
    WHERE a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
) AS won
WHERE won.place <= 1
