-- Query 13, bounded side input join: every bid with a value that a table gives for its auction, as
-- the table is at the processing time of the bid. The table never changes in the benchmark, so the
-- twin in event time, which the oracle answers, gives the same.
-- From nexmark/nexmark, nexmark-flink/src/main/resources/queries/q13.sql, in our words.
-- Left out: the sink (connector blackhole), and the source of side_input (connector filesystem,
-- CSV: key and value, the numbers from 0 to 9999 and the same as text).

SELECT b.auction, b.bidder, b.price, b.dateTime, s.`value`
FROM (SELECT *, PROCTIME() AS p_time FROM bid) AS b
INNER JOIN side_input FOR SYSTEM_TIME AS OF b.p_time AS s
    ON MOD(b.auction, 10000) = s.key
