-- Query 2, selection: the bids on every 123rd auction.
-- From nexmark/nexmark, nexmark-flink/src/main/resources/queries/q2.sql, in our words.
-- Left out: the sink (connector blackhole).

SELECT auction, price
FROM bid
WHERE MOD(auction, 123) = 0
