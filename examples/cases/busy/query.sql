CREATE STREAM conns (
  ts TIMESTAMP, src_ip STRING(64), dst_port INT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
);

CREATE STREAM busy AS
SELECT window_start, src_ip, count(*) AS conns
FROM TUMBLE(TABLE conns, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
GROUP BY window_start, src_ip
HAVING count(*) > 2;
