-- Query 12, processing time windows: how many bids does a user make in each ten seconds of the
-- clock of the machine? Such an answer depends on the run, and cannot be checked; the oracle answers
-- the twin in event time, with dateTime in place of p_time.
-- From nexmark/nexmark, nexmark-flink/src/main/resources/queries/q12.sql, in our words.
-- Left out: the sink (connector blackhole), and the view timed, which is bid with one column more:
--     SELECT *, PROCTIME() AS p_time FROM bid

SELECT
    bidder,
    COUNT(*) AS bid_count,
    window_start AS starttime,
    window_end AS endtime
FROM TABLE(TUMBLE(TABLE timed, DESCRIPTOR(p_time), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end
