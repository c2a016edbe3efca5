-- Linear Road. A car reports every 30 s: so its report before this one is 30 s older, and if there
-- is none, the car has just come.
CREATE TABLE history (
    vid INT, day INT, xway INT, toll INT, time TIMESTAMP,
    PRIMARY KEY (vid, day, xway), WATERMARK FOR time AS time
);

CREATE QUERY linear_road AS BEGIN
    -- What is known of each segment when a minute begins: the cars of the minute before, and the
    -- latest average velocity, that of the five minutes before.

    CREATE TEMPORARY STREAM volumes AS
    SELECT window_end, xway, dir, seg, count(DISTINCT vid) AS cars
    FROM TUMBLE(TABLE reports, DESCRIPTOR(time), INTERVAL '1' MINUTE)
    GROUP BY window_start, window_end, xway, dir, seg;

    CREATE TEMPORARY STREAM velocities AS
    SELECT window_end, xway, dir, seg, cast(round(avg(speed)) AS INT) AS lav
    FROM HOP(TABLE reports, DESCRIPTOR(time), INTERVAL '1' MINUTE, INTERVAL '5' MINUTE)
    GROUP BY window_start, window_end, xway, dir, seg;

    -- A car has stopped if its last four reports give one place: those of the last two minutes. Two
    -- stopped cars in one place are an accident. Cars are told of it from the next minute on, and
    -- for as long as both were still there when the minute began.

    CREATE TEMPORARY STREAM stopped AS
    SELECT window_start, vid, xway, dir, lane, seg, pos, count(*) AS reports
    FROM HOP(TABLE reports, DESCRIPTOR(time), INTERVAL '1' MINUTE, INTERVAL '2' MINUTE)
    GROUP BY window_start, vid, xway, dir, lane, seg, pos
    HAVING count(*) >= 4;

    CREATE TEMPORARY STREAM accidents AS
    SELECT window_start, xway, dir, lane, seg, pos, count(*) AS cars
    FROM stopped
    GROUP BY window_start, xway, dir, lane, seg, pos
    HAVING count(*) >= 2;

    -- They are told of the nearest accident in this segment and the next four.

    CREATE TEMPORARY STREAM conditions AS
    SELECT xway, dir, seg, max(cars) AS cars, max(lav) AS lav, min(ahead) AS ahead
    FROM (
        SELECT xway, dir, seg, cars, cast(NULL AS INT) AS lav, cast(NULL AS INT) AS ahead
        FROM volumes
        UNION ALL
        SELECT xway, dir, seg, cast(NULL AS LONG) AS cars, lav, cast(NULL AS INT) AS ahead
        FROM velocities
        UNION ALL
        SELECT xway, dir, seg, cast(NULL AS LONG) AS cars, cast(NULL AS INT) AS lav, 0 AS ahead
        FROM accidents
        UNION ALL
        SELECT xway, dir, if(dir = 0, seg - 1, seg + 1) AS seg, cast(NULL AS LONG) AS cars,
            cast(NULL AS INT) AS lav, 1 AS ahead
        FROM accidents
        UNION ALL
        SELECT xway, dir, if(dir = 0, seg - 2, seg + 2) AS seg, cast(NULL AS LONG) AS cars,
            cast(NULL AS INT) AS lav, 2 AS ahead
        FROM accidents
        UNION ALL
        SELECT xway, dir, if(dir = 0, seg - 3, seg + 3) AS seg, cast(NULL AS LONG) AS cars,
            cast(NULL AS INT) AS lav, 3 AS ahead
        FROM accidents
        UNION ALL
        SELECT xway, dir, if(dir = 0, seg - 4, seg + 4) AS seg, cast(NULL AS LONG) AS cars,
            cast(NULL AS INT) AS lav, 4 AS ahead
        FROM accidents
    )
    GROUP BY window(stime, '1 minute'), xway, dir, seg;

    -- A car enters a segment with its first report from there. It is told the toll, unless it is
    -- about to leave the expressway.

    CREATE TEMPORARY STREAM entries AS
    SELECT * FROM (
        SELECT r.time AS time, r.vid AS vid, r.xway AS xway, r.dir AS dir, r.seg AS seg,
            r.lane AS lane, p.seg AS left_seg
        FROM reports AS r LEFT JOIN reports AS p
            ON p.vid = r.vid AND p.xway = r.xway AND p.dir = r.dir
            AND p.time = r.time - INTERVAL '30' SECOND
    ) WHERE seg IS DISTINCT FROM left_seg;

    CREATE TEMPORARY STREAM told AS
    SELECT e.time AS time, e.vid AS vid, e.xway AS xway, e.dir AS dir, e.seg AS seg,
        c.ahead AS ahead, coalesce(c.lav, 0) AS lav,
        CASE WHEN c.ahead IS NULL AND c.cars > 50 AND c.lav < 40
            THEN 2 * (c.cars - 50) * (c.cars - 50) ELSE 0 END AS toll
    FROM entries AS e LEFT JOIN conditions AS c
        ON c.xway = e.xway AND c.dir = e.dir AND c.seg = e.seg
        AND c.stime BETWEEN e.time - INTERVAL '60' SECOND AND e.time
    WHERE e.lane <> 4;

    CREATE STREAM tolls AS
    SELECT vid, time, lav, toll FROM told;

    CREATE STREAM alerts AS
    SELECT time, xway, if(dir = 0, seg + ahead, seg - ahead) AS seg, dir, vid
    FROM told WHERE ahead IS NOT NULL;

    -- It pays the toll when it leaves the segment for the next one.

    CREATE TEMPORARY STREAM payments WITH (within = INTERVAL '1' HOUR) AS
    SELECT e.vid AS vid, t.toll AS toll
    FROM entries AS e ASOF JOIN told AS t
        ON t.vid = e.vid AND t.xway = e.xway AND t.dir = e.dir AND t.seg = e.left_seg;

    CREATE TEMPORARY STREAM accounts AS
    SELECT vid, sum(toll) AS balance FROM payments WHERE toll > 0 GROUP BY vid;

    CREATE STREAM balances AS
    SELECT q.time AS time, q.qid AS qid, q.vid AS vid, coalesce(a.balance, 0) AS balance
    FROM balance_requests AS q LEFT JOIN accounts FOR SYSTEM_TIME AS OF q.time AS a ON a.vid = q.vid;

    CREATE STREAM expenditures AS
    SELECT q.time AS time, q.qid AS qid, q.vid AS vid, h.toll AS toll
    FROM expenditure_requests AS q JOIN history FOR SYSTEM_TIME AS OF q.time AS h
        ON h.vid = q.vid AND h.day = q.day AND h.xway = q.xway;
END;
