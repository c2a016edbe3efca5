-- Query 5, hot items: the auctions with the most bids in the last ten seconds, every two seconds.
-- The window itself is not in the output, so a row may come several times.
-- From nexmark/nexmark, nexmark-flink/src/main/resources/queries/q5.sql, in our words.
-- Left out: the sink (connector blackhole).

SELECT counted.auction, counted.num
FROM (
    SELECT auction, COUNT(*) AS num, window_start AS starttime, window_end AS endtime
    FROM TABLE(
        HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND)
    )
    GROUP BY auction, window_start, window_end
) AS counted
INNER JOIN (
    SELECT MAX(counts.num) AS most, counts.starttime, counts.endtime
    FROM (
        SELECT COUNT(*) AS num, window_start AS starttime, window_end AS endtime
        FROM TABLE(
            HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND)
        )
        GROUP BY auction, window_start, window_end
    ) AS counts
    GROUP BY counts.starttime, counts.endtime
) AS busiest
    ON counted.starttime = busiest.starttime
    AND counted.endtime = busiest.endtime
    AND counted.num >= busiest.most
