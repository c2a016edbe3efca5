-- Who is where nobody let them? The table says from which minute of the day until which one a person
-- may be in a room; a later row for the same one takes the place of the earlier. A person strays
-- with each sighting that no row allows at its time. Sightings in one room that follow one another
-- within a minute are one alarm.
CREATE TABLE permissions (
    time TIMESTAMP, person_id INT, room STRING(32), from_min INT, until_min INT,
    PRIMARY KEY (person_id, room, from_min) NOT ENFORCED, WATERMARK FOR time AS time
);

CREATE QUERY watching AS BEGIN
    CREATE STREAM strays AS
    SELECT s.* FROM sightings AS s
    LEFT ANTI JOIN permissions FOR SYSTEM_TIME AS OF s.time AS p
        ON p.person_id = s.person_id AND p.room = s.room
        AND hour(s.time) * 60 + minute(s.time) >= p.from_min
        AND hour(s.time) * 60 + minute(s.time) < p.until_min;

    CREATE STREAM alarms WITH (within = INTERVAL '1' DAY) AS
    SELECT min(time) AS time, firstval(person_name) AS person_name, person_id,
        firstval(building) AS building, room, max(time) AS until, count(*) AS sightings
    FROM SESSION(TABLE strays PARTITION BY person_id, room, DESCRIPTOR(time), INTERVAL '60' SECOND)
    GROUP BY window_start, person_id, room;
END;
