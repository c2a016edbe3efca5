-- Figure 1 of "The Medusa Distributed Stream-Processing System": tolls for the segments of a road,
-- and tow trucks for the cars that have broken down. The letters are the paper's.
CREATE QUERY figure_1 AS BEGIN
    CREATE TEMPORARY STREAM speeds AS                                       -- (a)
    SELECT window_start, segment, avg(speed) AS speed
    FROM TUMBLE(TABLE sightings, DESCRIPTOR(time), INTERVAL '1' MINUTE)
    GROUP BY window_start, segment;

    CREATE TEMPORARY STREAM volumes AS                                      -- (b)
    SELECT window_start, segment, count(DISTINCT car) AS cars
    FROM TUMBLE(TABLE sightings, DESCRIPTOR(time), INTERVAL '1' MINUTE)
    GROUP BY window_start, segment;

    CREATE TEMPORARY STREAM segment_tolls AS                                -- (c)
    SELECT s.segment AS segment, s.speed AS speed, v.cars AS cars,
        CASE WHEN s.speed < 40 AND v.cars > 50 THEN 2 * (v.cars - 50) * (v.cars - 50) ELSE 0
            END AS toll
    FROM speeds AS s JOIN volumes AS v ON v.segment = s.segment AND v.stime = s.stime;

    CREATE TEMPORARY STREAM driving, broken_down AS SPLIT sightings BY speed > 0 ELSE;  -- (e), (f)

    CREATE STREAM toll_notifications AS                                     -- (d)
    SELECT c.time AS time, c.car AS car, c.segment AS segment, t.toll AS toll
    FROM driving AS c JOIN segment_tolls AS t
        ON t.segment = c.segment AND t.stime BETWEEN c.time - INTERVAL '60' SECOND AND c.time
    WHERE t.toll > 0;

    CREATE TEMPORARY STREAM tow_trucks AS                                   -- (g)
    SELECT * FROM sightings WHERE tow_truck;

    CREATE STREAM tow_truck_dispatch AS                                     -- (h)
    SELECT b.car AS car, b.segment AS segment, t.car AS truck, t.time AS seen
    FROM broken_down AS b JOIN tow_trucks AS t
        ON t.segment = b.segment AND t.car <> b.car
        AND t.time BETWEEN b.time - INTERVAL '30' SECOND AND b.time;
END;
