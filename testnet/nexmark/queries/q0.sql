-- Query 0, pass through: every bid as it is.
-- From nexmark/nexmark, nexmark-flink/src/main/resources/queries/q0.sql, in our words.
-- Left out: the sink (connector blackhole).

SELECT auction, bidder, price, dateTime, extra
FROM bid
