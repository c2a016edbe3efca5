-- Query 7, highest bid: the bids with the highest price of each ten seconds. BETWEEN takes in both
-- ends: a bid exactly at the end of a window counts for it if it has the same price.
-- From nexmark/nexmark, nexmark-flink/src/main/resources/queries/q7.sql, in our words.
-- Left out: the sink (connector blackhole).

SELECT b.auction, b.bidder, b.price, b.dateTime, b.extra
FROM bid AS b
INNER JOIN (
    SELECT MAX(price) AS highest, window_end AS endtime
    FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end
) AS peak
    ON b.price = peak.highest
WHERE b.dateTime BETWEEN peak.endtime - INTERVAL '10' SECOND AND peak.endtime
