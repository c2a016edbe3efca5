-- Query 8, monitor new users: who joined and opened an auction within the same ten seconds?
-- From nexmark/nexmark, nexmark-flink/src/main/resources/queries/q8.sql, in our words.
-- Left out: the sink (connector blackhole), whose third column is stime.

SELECT p.id, p.name, p.starttime AS stime
FROM (
    SELECT id, name, window_start AS starttime, window_end AS endtime
    FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
    GROUP BY id, name, window_start, window_end
) AS p
INNER JOIN (
    SELECT seller, window_start AS starttime, window_end AS endtime
    FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
    GROUP BY seller, window_start, window_end
) AS a
    ON p.id = a.seller AND p.starttime = a.starttime AND p.endtime = a.endtime
