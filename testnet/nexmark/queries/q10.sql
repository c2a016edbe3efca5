-- Query 10, log to the file system: every bid with its day and its minute.
-- From nexmark/nexmark, nexmark-flink/src/main/resources/queries/q10.sql, in our words.
-- Left out: the sink (connector filesystem, CSV), partitioned by dt and hm, with the times at which
-- it closes and publishes a file. That part is what q10 measures in Flink.

SELECT
    auction, bidder, price, dateTime, extra,
    DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS dt,
    DATE_FORMAT(dateTime, 'HH:mm') AS hm
FROM bid
