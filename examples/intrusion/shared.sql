-- cert.example: what both laboratories found, in one stream for all three; and the addresses that
-- both of them found within the same ten minutes.
CREATE QUERY shared AS BEGIN
  CREATE STREAM sightings WITH (readers = 'lab-a.example lab-b.example') AS
  SELECT 'lab-a' AS lab, 'listed' AS found, window_start, address, hosts, connections
  FROM "medusa://lab-a.example/listed"
  UNION ALL
  SELECT 'lab-b', 'listed', window_start, address, hosts, connections
  FROM "medusa://lab-b.example/listed"
  UNION ALL
  SELECT 'lab-a', 'beacon', window_start, address, hosts, beats
  FROM "medusa://lab-a.example/beacons"
  UNION ALL
  SELECT 'lab-b', 'beacon', window_start, address, hosts, beats
  FROM "medusa://lab-b.example/beacons";

  CREATE STREAM campaigns WITH (readers = 'lab-a.example lab-b.example') AS
  SELECT window_start, address, count(DISTINCT lab) AS labs, sum(connections) AS connections
  FROM TUMBLE(TABLE sightings, DESCRIPTOR(stime), INTERVAL '10' MINUTE)
  GROUP BY window_start, address
  HAVING count(DISTINCT lab) > 1;
END;
