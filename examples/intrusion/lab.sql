-- A laboratory: what it tells the others. Both have this script; conns is each one's own stream.

-- Of each ten minutes and each address that was on the list when the connection was made, how many
-- connections there were, from how many hosts.
CREATE QUERY watch AS BEGIN
  CREATE TEMPORARY STREAM listed_conns AS
  SELECT c.src_ip, c.dst_ip, t.kind
  FROM conns AS c
  JOIN cert.example.threats FOR SYSTEM_TIME AS OF c.ts AS t ON t.address = c.dst_ip;

  CREATE STREAM listed WITH (readers = 'cert.example lab-a.example lab-b.example') AS
  SELECT window_start, dst_ip AS address, kind,
         count(DISTINCT src_ip) AS hosts, count(*) AS connections
  FROM TUMBLE(TABLE listed_conns, DESCRIPTOR(stime), INTERVAL '10' MINUTE)
  GROUP BY window_start, dst_ip, kind;
END;

-- A beacon is a host that connects to one address five times or more, with gaps that differ from
-- the first of the five by a tenth at most.
CREATE QUERY beat AS BEGIN
  CREATE TEMPORARY STREAM regular AS
  SELECT src_ip, dst_ip,
         CAST((unix_micros(until) - unix_micros(since)) / 4000000 + 0.5 AS LONG) AS period_s
  FROM conns MATCH_RECOGNIZE (
    PARTITION BY src_ip, dst_ip
    ORDER BY ts
    MEASURES FIRST(A.stime) AS since, LAST(C.stime) AS until
    ONE ROW PER MATCH
    AFTER MATCH SKIP TO NEXT ROW
    PATTERN (A B C{3}) WITHIN INTERVAL '10' MINUTE
    DEFINE
      B AS unix_micros(stime) - unix_micros(A.stime) >= 1000000,
      C AS 10 * (unix_micros(stime) - unix_micros(PREV(stime)))
           BETWEEN 9 * (unix_micros(B.stime) - unix_micros(A.stime))
               AND 11 * (unix_micros(B.stime) - unix_micros(A.stime))
  );

  CREATE STREAM beacons WITH (readers = 'cert.example lab-a.example lab-b.example') AS
  SELECT window_start, dst_ip AS address,
         percentile_disc(0.5) WITHIN GROUP (ORDER BY period_s) AS period_s,
         count(DISTINCT src_ip) AS hosts, count(*) AS beats
  FROM TUMBLE(TABLE regular, DESCRIPTOR(stime), INTERVAL '10' MINUTE)
  GROUP BY window_start, dst_ip;
END;
