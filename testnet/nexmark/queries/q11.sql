-- Query 11, user sessions: how many bids did a user make in each session? Ten seconds of silence
-- end one; in Flink a bid exactly ten seconds after the last one still belongs to it.
-- From nexmark/nexmark, nexmark-flink/src/main/resources/queries/q11.sql, in our words.
-- Left out: the sink (connector blackhole).

SELECT
    bidder,
    COUNT(*) AS bid_count,
    SESSION_START(dateTime, INTERVAL '10' SECOND) AS starttime,
    SESSION_END(dateTime, INTERVAL '10' SECOND) AS endtime
FROM bid
GROUP BY bidder, SESSION(dateTime, INTERVAL '10' SECOND)
