-- Linear Road. Every car reports every 30 s, so its report before this one is 30 s older; if there
-- is none, the car has just come.
CREATE TABLE history (
    vid INT, day INT, xway INT, toll INT, time TIMESTAMP,
    PRIMARY KEY (vid, day, xway), WATERMARK FOR time AS time
);

CREATE QUERY linear_road AS BEGIN
    -- the minute before, and the five minutes before, of each segment

    CREATE TEMPORARY STREAM volumes AS
    SELECT window_end, xway, dir, seg, count(DISTINCT vid) AS cars
    FROM TUMBLE(TABLE reports, DESCRIPTOR(time), INTERVAL '1' MINUTE)
    GROUP BY window_start, window_end, xway, dir, seg;

    CREATE TEMPORARY STREAM velocities AS
    SELECT window_end, xway, dir, seg, cast(round(avg(speed)) AS INT) AS lav
    FROM HOP(TABLE reports, DESCRIPTOR(time), INTERVAL '1' MINUTE, INTERVAL '5' MINUTE)
    GROUP BY window_start, window_end, xway, dir, seg;

    CREATE TEMPORARY STREAM conditions AS
    SELECT v.xway AS xway, v.dir AS dir, v.seg AS seg, v.lav AS lav, c.cars AS cars
    FROM velocities AS v LEFT JOIN volumes AS c
        ON c.xway = v.xway AND c.dir = v.dir AND c.seg = v.seg AND c.stime = v.stime;

    -- a car has stopped if it gives one place in four reports in a row: this one and the three of
    -- the 90 s before; two stopped cars in one place are an accident, which is told in the next
    -- minute if both are still there at the end of this one

    CREATE TEMPORARY STREAM stopped AS
    SELECT r.time AS time, r.vid AS vid, r.xway AS xway, r.dir AS dir, r.lane AS lane,
        r.seg AS seg, r.pos AS pos
    FROM reports AS r
    JOIN reports AS a ON a.vid = r.vid AND a.xway = r.xway AND a.dir = r.dir AND a.lane = r.lane
        AND a.pos = r.pos AND a.time = r.time - INTERVAL '30' SECOND
    JOIN reports AS b ON b.vid = r.vid AND b.xway = r.xway AND b.dir = r.dir AND b.lane = r.lane
        AND b.pos = r.pos AND b.time = r.time - INTERVAL '60' SECOND
    JOIN reports AS c ON c.vid = r.vid AND c.xway = r.xway AND c.dir = r.dir AND c.lane = r.lane
        AND c.pos = r.pos AND c.time = r.time - INTERVAL '90' SECOND;

    CREATE TEMPORARY STREAM accidents AS
    SELECT window_start, xway, dir, seg, lane, pos, count(DISTINCT vid) AS cars
    FROM TUMBLE(TABLE stopped, DESCRIPTOR(time), INTERVAL '1' MINUTE)
    WHERE second(time) >= 30
    GROUP BY window_start, xway, dir, seg, lane, pos
    HAVING count(DISTINCT vid) >= 2;

    -- each accident is told in its segment and the four before it; the nearest counts
    CREATE TEMPORARY STREAM warnings AS
    SELECT window_start, xway, dir, seg, min(ahead) AS ahead
    FROM (
        SELECT xway, dir, seg, 0 AS ahead FROM accidents
        UNION ALL SELECT xway, dir, if(dir = 0, seg - 1, seg + 1) AS seg, 1 AS ahead FROM accidents
        UNION ALL SELECT xway, dir, if(dir = 0, seg - 2, seg + 2) AS seg, 2 AS ahead FROM accidents
        UNION ALL SELECT xway, dir, if(dir = 0, seg - 3, seg + 3) AS seg, 3 AS ahead FROM accidents
        UNION ALL SELECT xway, dir, if(dir = 0, seg - 4, seg + 4) AS seg, 4 AS ahead FROM accidents
    )
    GROUP BY window(stime, '1 minute'), xway, dir, seg;

    -- a car enters a segment with the first report from it

    CREATE TEMPORARY STREAM moves AS
    SELECT r.time AS time, r.vid AS vid, r.xway AS xway, r.dir AS dir, r.seg AS seg, r.lane AS lane,
        p.seg AS left_seg
    FROM reports AS r LEFT JOIN reports AS p
        ON p.vid = r.vid AND p.xway = r.xway AND p.dir = r.dir
        AND p.time = r.time - INTERVAL '30' SECOND;

    CREATE TEMPORARY STREAM entries AS
    SELECT * FROM moves WHERE seg IS DISTINCT FROM left_seg;

    CREATE TEMPORARY STREAM told AS
    SELECT e.time AS time, e.vid AS vid, e.xway AS xway, e.dir AS dir, e.seg AS seg,
        w.ahead AS ahead, coalesce(c.lav, 0) AS lav,
        CASE WHEN w.ahead IS NULL AND c.cars > 50 AND c.lav < 40
            THEN 2 * (c.cars - 50) * (c.cars - 50) ELSE 0 END AS toll
    FROM (SELECT * FROM entries WHERE lane <> 4) AS e
    LEFT JOIN conditions AS c ON c.xway = e.xway AND c.dir = e.dir AND c.seg = e.seg
        AND c.stime BETWEEN e.time - INTERVAL '60' SECOND AND e.time
    LEFT JOIN warnings AS w ON w.xway = e.xway AND w.dir = e.dir AND w.seg = e.seg
        AND w.stime BETWEEN e.time - INTERVAL '60' SECOND AND e.time;

    CREATE STREAM tolls AS
    SELECT vid, time, lav, toll FROM told;

    CREATE STREAM alerts AS
    SELECT time, xway, if(dir = 0, seg + ahead, seg - ahead) AS seg, dir, vid
    FROM told WHERE ahead IS NOT NULL;

    -- the toll of a segment is paid on leaving it for the next one

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
