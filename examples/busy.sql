CREATE SCHEMA conn (
  ts DOUBLE,                                        -- stime: seconds since the epoch
  src_ip STRING(64) NOT NULL,
  dst_port INT,
  WATERMARK FOR ts AS ts
);

CREATE STREAM conns USING conn
WITH (slack = INTERVAL '5' SECOND, history = INTERVAL '1' DAY);

CREATE QUERY busy_sources AS BEGIN
  CREATE TEMPORARY STREAM per_source WITH (box = 'count') AS
  SELECT window_start, src_ip, count(*) AS conns
  FROM TUMBLE(TABLE conns, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
  GROUP BY window_start, src_ip;

  CREATE STREAM busy AS
  SELECT * FROM per_source WHERE conns > 100;
END;
